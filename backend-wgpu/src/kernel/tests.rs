//! Every kernel, without a GPU: parsed, validated, and written in the languages of Vulkan, Metal and DX12.

use super::{BINARY, FUNCTION, KERNELS, Kernel, ROUND_BLOCKS, TextOptions, function::FunctionText};
use crate::{
    conversions::{Conversions, Decoding, Encoding},
    product_tile::ProductTile,
};
use gradscale_core::{
    ops::{BinaryOp, Unary},
    store_format::StoreFormat,
};
use naga::{
    AddressSpace, ShaderStage,
    back::{hlsl, msl, pipeline_constants::process_overrides, spv},
    valid::{Capabilities, ValidationFlags, Validator},
};

/// Storage buffers of a kernel that `WebGPU` guarantees.
const MAX_STORAGE_BUFFERS: usize = 8;

/// Value of all constants, enough to reach each type and function once, but for those of windows and tiles.
fn checked(kernel: &Kernel, options: TextOptions, (value, tile): (f64, ProductTile)) -> Result<(), String> {
    let text = kernel.text(options);
    let windows = options.windows;
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| error.emit_to_string(&text))?;
    // Cooperative matrices are taken only where all of this is there.
    let coop = kernel.name.starts_with("coop");
    let extra = Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::COOPERATIVE_MATRIX;
    let (f16, packs_f16) = (options.conversions.needs_f16(), options.conversions != Conversions::default());
    let mut plain = Capabilities::empty();
    plain.set(Capabilities::SUBGROUP, options.subgroups);
    plain.set(Capabilities::SHADER_FLOAT16, f16);
    plain.set(Capabilities::SHADER_FLOAT16_IN_FLOAT32, packs_f16);
    let capabilities = if coop { extra } else { plain };
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);

    let info = validator.validate(&module).map_err(|error| error.emit_to_string(&text))?;
    let names = module.overrides.iter().filter_map(|(_, constant)| constant.name.clone());
    let is_tiled = kernel.includes.contains(&super::TILE);
    let [rows, columns] = tile.sides();
    let value_of = |name: &str| match name {
        // 128 MiB, a common size of bindings.
        "WINDOW" => 27.0,
        "ROWS" if is_tiled => rows.into(),
        "COLUMNS" if is_tiled => columns.into(),
        "K_TILE" if is_tiled => tile.depth().into(),
        "LANE_COLUMNS" if is_tiled => tile.lane_columns().into(),
        // Constants that the text computes from these.
        "QUARTERS" => f64::from(tile.depth() / 4),
        "A_VEC4S" => f64::from(rows / 4),
        "B_VEC4S" => f64::from(columns / 4),
        "ROW_VEC4S" => f64::from(rows * tile.lane_columns() / 1024),
        "COLUMN_VEC4S" => f64::from(columns / (4 * tile.lane_columns())),
        _ => value,
    };
    let constants = names.map(|name| (name.clone(), value_of(&name))).collect();
    let entry = (ShaderStage::Compute, "main");
    let said = |error: &dyn std::fmt::Debug| format!("{}: {error:?}", kernel.name);
    let (module, info) = process_overrides(&module, &info, Some(entry), &constants).map_err(|error| said(&error))?;
    let shared: u32 = module.global_variables.iter().map(|(_, variable)| shared_bytes(&module, variable)).sum();
    assert!(
        shared <= if coop { crate::product_engine::WORKGROUP_MEMORY_BYTES } else { 16384 },
        "{} needs {shared} bytes of workgroup memory",
        kernel.name
    );
    let is_storage = |variable: &naga::GlobalVariable| matches!(variable.space, AddressSpace::Storage { .. });
    let buffers = module.global_variables.iter().filter(|(_, variable)| is_storage(variable)).count();
    // The number of windows is chosen by what a device allows.
    assert!(buffers <= MAX_STORAGE_BUFFERS || windows > 1, "{} binds {buffers} storage buffers", kernel.name);
    let size: u32 = module.entry_points.iter().map(|entry| entry.workgroup_size.iter().product::<u32>()).sum();
    assert!(size <= 256, "{} has {size} invocations", kernel.name);
    let pipeline = spv::PipelineOptions { shader_stage: entry.0, entry_point: entry.1.into() };
    let words = spv::write_vec(&module, &info, &spv::Options::default(), Some(&pipeline)).map_err(|e| said(&e))?;
    let pipeline = msl::PipelineOptions { entry_point: Some((entry.0, entry.1.into())), ..Default::default() };
    let options = msl::Options { lang_version: (2, 4), ..Default::default() };
    let (metal, _) = msl::write_string(&module, &info, &options, &pipeline).map_err(|error| said(&error))?;
    if coop {
        // wgpu has no cooperative matrices on DX12.
        assert!(words.len() > 50 && metal.contains("simdgroup"), "{}", kernel.name);
        return Ok(());
    }
    let pipeline = hlsl::PipelineOptions { entry_point: Some((entry.0, entry.1.into())) };
    // Subgroups are wave operations, from shader model 6.0 on, and f16 is a type from 6.2 on.
    let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, ..Default::default() };
    let mut high = String::new();
    hlsl::Writer::new(&mut high, &options, &pipeline).write(&module, &info, None).map_err(|error| said(&error))?;
    assert!(words.len() > 50 && metal.contains("kernel") && high.contains("numthreads"), "{}", kernel.name);
    Ok(())
}

fn shared_bytes(module: &naga::Module, variable: &naga::GlobalVariable) -> u32 {
    let shared = variable.space == AddressSpace::WorkGroup;
    if shared { module.types[variable.ty].inner.size(module.to_ctx()) } else { 0 }
}

const fn text_options(windows: u32, subgroups: bool, decoding: Decoding, encoding: Encoding) -> TextOptions {
    TextOptions { windows, subgroups, conversions: Conversions { decoding, encoding }, function: None }
}

/// Options of texts, the value of all constants, and the tile.
const VARIANTS: [(TextOptions, (f64, ProductTile)); 4] = [
    (text_options(1, false, Decoding::Integers, Encoding::Integers), (1.0, ProductTile::Side16)),
    (text_options(1, true, Decoding::Hardware, Encoding::Round), (2.0, ProductTile::Side64)),
    (text_options(2, false, Decoding::Hardware, Encoding::Pack), (1.0, ProductTile::Rows128)),
    (text_options(16, true, Decoding::Quieted, Encoding::Pack), (2.0, ProductTile::Side128)),
];

/// Returns the functions that a kernel may apply; those that apply none have one text.
fn functions(kernel: &Kernel) -> Vec<Option<FunctionText>> {
    let formats = [StoreFormat::E5m2, StoreFormat::E4m3].map(FunctionText::for_format);
    if kernel.name == ROUND_BLOCKS.name {
        return formats.map(Some).to_vec();
    }
    if !kernel.includes.contains(&FUNCTION) {
        return vec![None];
    }
    let unary = Unary::ALL.iter().copied();
    if kernel.name != BINARY.name {
        return unary.map(FunctionText::for_unary).chain(formats).map(Some).collect();
    }
    let binary = BinaryOp::ARITHMETIC.iter().copied().chain(unary.map(BinaryOp::Grad));
    binary.map(|op| Some(FunctionText::for_binary(op))).collect()
}

/// Kernels that apply a function have many texts, so each of these is checked with one of the variants in turn.
#[test]
fn every_kernel_is_valid_in_four_languages() {
    let check = |kernel: &Kernel, function, (options, value)| {
        let options = TextOptions { function, ..options };
        checked(kernel, options, value).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
    };
    for kernel in KERNELS {
        if functions(kernel).iter().any(Option::is_some) {
            functions(kernel)
                .into_iter()
                .zip(VARIANTS.into_iter().cycle())
                .for_each(|(function, variant)| check(kernel, function, variant));
        } else {
            VARIANTS.into_iter().for_each(|variant| check(kernel, None, variant));
        }
    }
}

/// Pipelines are kept by the names of their functions.
#[test]
fn functions_of_a_kernel_have_different_names_and_texts() {
    for kernel in KERNELS {
        let all: Vec<FunctionText> = functions(kernel).into_iter().flatten().collect();
        for function in &all {
            let same = |other: &&FunctionText| {
                other.name == function.name || (other.parts, other.format) == (function.parts, function.format)
            };
            assert_eq!(all.iter().filter(same).count(), 1, "{}: {}", kernel.name, function.name);
        }
    }
}

/// Writes the text of every variant that a browser may get into the folder GRADSCALE_WGSL, if the variable is set. A
/// browser's compiler checks properties that naga does not, above all that subgroup and workgroup operations are in
/// uniform control flow. `web/test.sh` compiles them in Chromium.
#[test]
fn texts_for_browsers() {
    let Some(folder) = std::env::var_os("GRADSCALE_WGSL").map(std::path::PathBuf::from) else { return };
    // Browsers have no cooperative matrices.
    for kernel in KERNELS.iter().filter(|kernel| !kernel.name.starts_with("coop")) {
        for function in functions(kernel) {
            let part = function.map_or_else(String::new, |function| format!("-{}", function.name));
            for (options, _) in VARIANTS {
                let TextOptions { windows, subgroups, mut conversions, .. } = options;
                // The browser of the test may have no f16 in shaders.
                if conversions.needs_f16() {
                    conversions.encoding = Encoding::Pack;
                }
                let options = TextOptions { conversions, function, ..options };
                let suffix = if subgroups { "-subgroups" } else { "" };
                let name = format!("{}{part}-{windows}{suffix}.wgsl", kernel.name);
                std::fs::write(folder.join(name), kernel.browser_text(options)).unwrap();
            }
        }
    }
}

/// Checks the error message of the test of all kernels for a planted mistake.
#[test]
fn a_broken_kernel_is_found() {
    let broken = Kernel {
        name: "broken",
        source: "@compute @workgroup_size(1) fn main() { let a: u32 = 1.5; }",
        ..super::PARTIAL_WORD_WRITE
    };
    assert!(checked(&broken, VARIANTS[0].0, VARIANTS[0].1).is_err());
}

#[test]
fn names_are_files() {
    for kernel in KERNELS {
        assert_eq!(KERNELS.iter().filter(|other| other.name == kernel.name).count(), 1, "{}", kernel.name);
    }
}
