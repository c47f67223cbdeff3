//! Machine code for RDNA 3, against a budget: instructions for each multiply-add in the main loop of products, and of the
//! whole loop of elementwise kernels; bytes of the whole kernel, and no spills.
//!
//! Mesa's RADV compiles for a GPU that is not there (its *null device*), so no hardware is needed. The figures are those
//! of one compiler for one GPU. They are tested because the time of a product follows from them: every instruction that is
//! no multiply-add takes the place of one.
//!
//! The test needs the environment of `drivers.sh`, which chooses driver and GPU, and is skipped without it.

mod loops;
mod radv;

use super::{
    ATTENTION, ATTENTION_VJP, BINARY, CONV, COOP_16, COOP_CONV_16, GEMM, Kernel, NORM, NORM_VJP, POOL, SUM,
    TextOptions, UNARY, UNPOOL, function::FunctionText,
};
use crate::{
    conversions::{Conversions, Decoding, Encoding},
    product_tile::ProductTile,
};
use gradscale_core::{
    backend::DType,
    ops::{BinaryOp, Unary},
};
use loops::LoopCounts;
use naga::{
    ShaderStage,
    back::{pipeline_constants::process_overrides, spv},
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ValidationFlags, Validator},
};

/// Maximum number of bytes of a kernel. Instruction caches of RDNA 3 have 32 KiB for two compute units.
const MAX_CODE_BYTES: u64 = 16 << 10;

/// Maximum number of instructions for each multiply-add of the main loop, waits and hints not counted.
const MAX_GEMM: f64 = 1.25;
const MAX_CONV: f64 = 1.5;

/// Kernel with constants and its budget.
struct Budget {
    name: &'static str,
    kernel: &'static Kernel,
    tile: ProductTile,
    k_contiguous: [u32; 2],
    constants: &'static [(&'static str, u32)],
    max_instructions_per_fma: f64,
}

/// Returns the SPIR-V of a kernel as wgpu writes it for a device whose run-time checks are off.
fn spirv(kernel: &Kernel, options: TextOptions, constants: &[(&'static str, u32)]) -> Vec<u32> {
    let text = kernel.text(options);
    let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|error| panic!("{}", error.emit_to_string(&text)));
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module).expect("a valid kernel");
    let entry = (ShaderStage::Compute, "main");
    let declared = module.overrides.iter().filter_map(|(_, constant)| constant.name.clone());
    let value = |name: &String| constants.iter().find(|(other, _)| other == name).map(|&(_, value)| f64::from(value));
    let values = declared.filter_map(|name| value(&name).map(|value| (name, value))).collect();
    let (module, info) = process_overrides(&module, &info, Some(entry), &values).expect("values of all constants");
    let unchecked = BoundsCheckPolicies {
        index: BoundsCheckPolicy::Unchecked,
        buffer: BoundsCheckPolicy::Unchecked,
        image_load: BoundsCheckPolicy::Unchecked,
        binding_array: BoundsCheckPolicy::Unchecked,
    };
    let options = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: unchecked,
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let pipeline = spv::PipelineOptions { shader_stage: entry.0, entry_point: entry.1.into() };
    spv::write_vec(&module, &info, &options, Some(&pipeline)).expect("SPIR-V")
}

/// Text for a device as RADV's are: `pack2x16float` truncates there, and a conversion to f16 rounds.
const OPTIONS: TextOptions = TextOptions {
    windows: 1,
    subgroups: true,
    conversions: Conversions { decoding: Decoding::Hardware, encoding: Encoding::Round },
    function: None,
};

const fn gemm(name: &'static str, k_contiguous: [u32; 2]) -> Budget {
    let tile = ProductTile::Side128;
    Budget { name, kernel: &GEMM, tile, k_contiguous, constants: &[], max_instructions_per_fma: MAX_GEMM }
}

const fn conv(
    name: &'static str, tile: ProductTile, k_contiguous: [u32; 2], constants: &'static [(&'static str, u32)],
) -> Budget {
    Budget { name, kernel: &CONV, tile, k_contiguous, constants, max_instructions_per_fma: MAX_CONV }
}

/// Products of halves whose sizes are multiples of the tile's depth, as those of most networks are, in the tile for 64
/// channels.
const BUDGETS: [Budget; 7] = [
    gemm("gemm a along k, b across", [1, 0]),
    gemm("gemm along k", [1, 1]),
    gemm("gemm across", [0, 0]),
    conv("conv forward", ProductTile::Rows128, [1, 1], &[("PASS", 0), ("SAME_TAP", 1), ("STRIDED", 0)]),
    conv("conv data", ProductTile::Rows128, [1, 0], &[("PASS", 1), ("SAME_TAP", 1), ("STRIDED", 0)]),
    conv("conv weight", ProductTile::Columns128, [0, 0], &[("PASS", 2), ("SAME_TAP", 0), ("STRIDED", 0)]),
    conv("conv forward, 128 channels", ProductTile::Side128, [1, 1], &[("PASS", 0), ("SAME_TAP", 1), ("STRIDED", 0)]),
];

impl Budget {
    fn constants(&self) -> Vec<(&'static str, u32)> {
        let ([rows, columns], [a, b]) = (self.tile.sides(), self.k_contiguous);
        let half = DType::F16.code();
        let shared = [("A", half), ("B", half), ("ROWS", rows), ("COLUMNS", columns), ("K_TILE", self.tile.depth())];
        let layout =
            [("LANE_COLUMNS", self.tile.lane_columns()), ("ALIGNED", 1), ("A_K_CONTIGUOUS", a), ("B_K_CONTIGUOUS", b)];
        [&shared, &layout[..], self.constants].concat()
    }
}

/// Returns true if the environment chooses a null device.
fn is_chosen() -> bool {
    std::env::var_os("RADV_FORCE_FAMILY").is_some()
}

/// Fails where the environment chooses a GPU that the driver does not know.
#[test]
fn a_null_device_is_there() {
    assert!(!is_chosen() || radv::compile(&spirv(&super::PROBE, OPTIONS, &[])).is_some());
}

#[test]
fn products_stay_within_their_budget_of_instructions() {
    if !is_chosen() {
        println!("SKIPPED: no null device; backend-wgpu/drivers.sh runs this test where Mesa has one");
        return;
    }
    let mut exceeded = Vec::new();
    for budget in &BUDGETS {
        let Budget { name, kernel, max_instructions_per_fma, .. } = budget;
        let code = radv::compile(&spirv(kernel, OPTIONS, &budget.constants())).expect("a null device");
        let counts = LoopCounts::of_main_loop(&code.assembly).expect("a loop with multiply-adds");
        let per_fma = f64::from(counts.instructions) / f64::from(counts.multiply_adds);
        println!(
            "{name}: {per_fma:.2} instructions per FMA ({} and {}), {} bytes of code, {} registers, {} spilled",
            counts.instructions, counts.multiply_adds, code.bytes, code.registers, code.spills
        );
        if per_fma > *max_instructions_per_fma || code.bytes > MAX_CODE_BYTES || code.spills != 0 {
            exceeded.push(*name);
        }
    }
    assert!(exceeded.is_empty(), "more than the budget: {exceeded:?}");
}

/// Kernel with cooperative matrices, its constants, and its budget of instructions for each multiply-add of matrices.
struct CoopBudget {
    name: &'static str,
    kernel: &'static Kernel,
    k_contiguous: [u32; 2],
    constants: &'static [(&'static str, u32)],
    max_instructions_per_wmma: f64,
}

const fn coop_conv(
    name: &'static str, k_contiguous: [u32; 2], constants: &'static [(&'static str, u32)], max: f64,
) -> CoopBudget {
    CoopBudget { name, kernel: &COOP_CONV_16, k_contiguous, constants, max_instructions_per_wmma: max }
}

const fn coop_gemm(name: &'static str, k_contiguous: [u32; 2], max: f64) -> CoopBudget {
    CoopBudget { name, kernel: &COOP_16, k_contiguous, constants: &[], max_instructions_per_wmma: max }
}

/// Mesa 25.0.7 has 26 to 29 and 30 to 37, of which a third are rare paths: eights that are not there, and ends of rows. An
/// instruction with matrices occupies its unit for 32 cycles, in which others are issued.
const COOP_BUDGETS: [CoopBudget; 6] = [
    coop_gemm("cooperative gemm a along k, b across", [1, 0], 32.0),
    coop_gemm("cooperative gemm along k", [1, 1], 32.0),
    coop_gemm("cooperative gemm across", [0, 0], 32.0),
    coop_conv("cooperative conv forward", [1, 1], &[("PASS", 0), ("SAME_TAP", 1), ("STRIDED", 0)], 40.0),
    coop_conv("cooperative conv data", [1, 0], &[("PASS", 1), ("SAME_TAP", 1), ("STRIDED", 0)], 40.0),
    coop_conv("cooperative conv weight", [0, 0], &[("PASS", 2), ("SAME_TAP", 0), ("STRIDED", 0)], 40.0),
];

#[test]
fn cooperative_products_stay_within_their_budget_of_instructions() {
    if !is_chosen() {
        println!("SKIPPED: no null device; backend-wgpu/drivers.sh runs this test where Mesa has one");
        return;
    }
    let mut exceeded = Vec::new();
    for CoopBudget { name, kernel, k_contiguous: [a, b], constants, max_instructions_per_wmma } in &COOP_BUDGETS {
        let layout = [("A_K_CONTIGUOUS", *a), ("B_K_CONTIGUOUS", *b), ("SIZE", 64)];
        let Some(code) = radv::compile_cooperative(&spirv(kernel, OPTIONS, &[&layout[..], constants].concat())) else {
            println!("SKIPPED: this Mesa has no cooperative matrices for RDNA 3");
            return;
        };
        let counts = LoopCounts::of_matrix_loop(&code.assembly).expect("a loop with matrices");
        let per_wmma = f64::from(counts.instructions) / f64::from(counts.matrix_multiply_adds);
        println!(
            "{name}: {per_wmma:.1} instructions per WMMA ({} and {}), {} bytes of code, {} registers, {} spilled",
            counts.instructions, counts.matrix_multiply_adds, code.bytes, code.registers, code.spills
        );
        if per_wmma > *max_instructions_per_wmma || code.bytes > MAX_CODE_BYTES || code.spills != 0 {
            exceeded.push(*name);
        }
    }
    assert!(exceeded.is_empty(), "more than the budget: {exceeded:?}");
}

/// Elementwise kernel on halves with constants, and the maximum number of instructions of its loop over eights. Rare paths
/// count as often as they stand in the text: special numbers, histograms, moments, and lengths that are not in eights.
struct LoopBudget {
    name: &'static str,
    kernel: &'static Kernel,
    function: Option<FunctionText>,
    constants: &'static [(&'static str, u32)],
    max_instructions: u32,
}

const HALF_TYPE: u32 = DType::F16.code();

const LOOP_BUDGETS: [LoopBudget; 9] = [
    LoopBudget {
        name: "cast",
        kernel: &UNARY,
        function: Some(FunctionText::for_unary(Unary::Id)),
        constants: &[("X", HALF_TYPE)],
        max_instructions: 1000,
    },
    LoopBudget {
        name: "relu",
        kernel: &UNARY,
        function: Some(FunctionText::for_unary(Unary::Relu)),
        constants: &[("X", HALF_TYPE)],
        max_instructions: 1050,
    },
    LoopBudget {
        name: "relu gradient",
        kernel: &BINARY,
        function: Some(FunctionText::for_binary(BinaryOp::Grad(Unary::Relu))),
        constants: &[("A", HALF_TYPE), ("B", HALF_TYPE)],
        max_instructions: 1400,
    },
    LoopBudget { name: "sum of two", kernel: &SUM, function: None, constants: &[("TERMS", 2)], max_instructions: 1800 },
    LoopBudget {
        name: "batch norm",
        kernel: &NORM,
        function: None,
        constants: &[("X", HALF_TYPE), ("BATCH", 1), ("AFFINE", 1)],
        max_instructions: 1400,
    },
    LoopBudget {
        name: "batch norm gradient",
        kernel: &NORM_VJP,
        function: None,
        constants: &[("X", HALF_TYPE), ("DY", HALF_TYPE), ("BATCH", 1), ("SCALED", 1)],
        max_instructions: 1450,
    },
    LoopBudget {
        name: "maxima of 2x2",
        kernel: &POOL,
        function: None,
        constants: &[("X", HALF_TYPE), ("AVERAGE", 0), ("OFFSETS", 1), ("EIGHTS", 1), ("TWO_BY_TWO", 1)],
        max_instructions: 1900,
    },
    LoopBudget {
        name: "gradient of maxima",
        kernel: &UNPOOL,
        function: None,
        constants: &[("X", HALF_TYPE), ("OFFSET", DType::U8.code()), ("AVERAGE", 0), ("SCATTER", 1), ("EIGHTS", 1)],
        max_instructions: 1250,
    },
    LoopBudget {
        name: "values at maxima",
        kernel: &UNPOOL,
        function: None,
        constants: &[("X", HALF_TYPE), ("OFFSET", DType::U8.code()), ("AVERAGE", 0), ("SCATTER", 0), ("EIGHTS", 1)],
        max_instructions: 1400,
    },
];

#[test]
fn elementwise_loops_stay_within_their_budget_of_instructions() {
    if !is_chosen() {
        println!("SKIPPED: no null device; backend-wgpu/drivers.sh runs this test where Mesa has one");
        return;
    }
    let mut exceeded = Vec::new();
    for LoopBudget { name, kernel, function, constants, max_instructions } in &LOOP_BUDGETS {
        let options = TextOptions { function: *function, ..OPTIONS };
        let code = radv::compile(&spirv(kernel, options, constants)).expect("a null device");
        let counts = LoopCounts::of_longest_loop(&code.assembly).expect("a loop");
        println!(
            "{name}: {} instructions for eight elements, {} bytes of code, {} registers, {} spilled",
            counts.instructions, code.bytes, code.registers, code.spills
        );
        if counts.instructions > *max_instructions || code.bytes > MAX_CODE_BYTES || code.spills != 0 {
            exceeded.push(*name);
        }
    }
    assert!(exceeded.is_empty(), "more than the budget: {exceeded:?}");
}

/// Kernel of an attention of halves with constants, and the maximum number of instructions for each multiply-add of its
/// loop over tiles.
struct AttentionBudget {
    name: &'static str,
    kernel: &'static Kernel,
    constants: &'static [(&'static str, u32)],
    max_instructions_per_fma: f64,
}

const ATTENTION_BUDGETS: [AttentionBudget; 8] = [
    AttentionBudget {
        name: "attention",
        kernel: &ATTENTION,
        constants: &[("WIDE_RESULTS", 0)],
        max_instructions_per_fma: 3.0,
    },
    AttentionBudget {
        name: "attention, 128 wide",
        kernel: &ATTENTION,
        constants: &[("WIDE_RESULTS", 1)],
        max_instructions_per_fma: 3.0,
    },
    attention_vjp("attention dq", &[("WIDE_RESULTS", 0), ("ROWS_ARE_QUERIES", 1), ("OF_VALUES", 0)]),
    attention_vjp("attention dq, 128 wide", &[("WIDE_RESULTS", 1), ("ROWS_ARE_QUERIES", 1), ("OF_VALUES", 0)]),
    attention_vjp("attention dk", &[("WIDE_RESULTS", 0), ("ROWS_ARE_QUERIES", 0), ("OF_VALUES", 0)]),
    attention_vjp("attention dk, 128 wide", &[("WIDE_RESULTS", 1), ("ROWS_ARE_QUERIES", 0), ("OF_VALUES", 0)]),
    attention_vjp("attention dv", &[("WIDE_RESULTS", 0), ("ROWS_ARE_QUERIES", 0), ("OF_VALUES", 1)]),
    attention_vjp("attention dv, 128 wide", &[("WIDE_RESULTS", 1), ("ROWS_ARE_QUERIES", 0), ("OF_VALUES", 1)]),
];

const fn attention_vjp(name: &'static str, constants: &'static [(&'static str, u32)]) -> AttentionBudget {
    AttentionBudget { name, kernel: &ATTENTION_VJP, constants, max_instructions_per_fma: 3.6 }
}

#[test]
fn attention_stays_within_its_budget_of_instructions() {
    if !is_chosen() {
        println!("SKIPPED: no null device; backend-wgpu/drivers.sh runs this test where Mesa has one");
        return;
    }
    let types = ["A", "B", "U", "V"].map(|operand| (operand, HALF_TYPE));
    let mut exceeded = Vec::new();
    for AttentionBudget { name, kernel, constants, max_instructions_per_fma } in &ATTENTION_BUDGETS {
        let constants = [&types, &[("ALIGNED", 1)][..], constants].concat();
        let code = radv::compile(&spirv(kernel, OPTIONS, &constants)).expect("a null device");
        let counts = LoopCounts::of_main_loop(&code.assembly).expect("a loop with multiply-adds");
        let per_fma = f64::from(counts.instructions) / f64::from(counts.multiply_adds);
        println!(
            "{name}: {per_fma:.2} instructions per FMA ({} and {}), {} bytes of code, {} registers, {} spilled",
            counts.instructions, counts.multiply_adds, code.bytes, code.registers, code.spills
        );
        if per_fma > *max_instructions_per_fma || code.bytes > MAX_CODE_BYTES || code.spills != 0 {
            exceeded.push(*name);
        }
    }
    assert!(exceeded.is_empty(), "more than the budget: {exceeded:?}");
}
