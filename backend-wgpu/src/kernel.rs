//! Table of the kernels, and how the WGSL text of each is assembled from files.
//!
//! A kernel's text is [`prelude`] (core's numbers as constants, grid.wgsl and vec8.wgsl), the functions of its tensors, the files that
//! it includes in order, the function of an elementwise kernel, `operand.wgsl` once for each operand with its name in it (`operand` becomes `x`, `OPERAND` becomes
//! `X`, its binding 5, 6, … in order), and its own file. There is no other preprocessing: every file is plain WGSL.
//!
//! An operand's type is a constant, so that a kernel has a variant for each type of each operand. Where that would be many
//! for little, as of a bias, it is a parameter: `"bias" = "p.output.bias"` in the table below.

use crate::conversions::{Conversions, Decoding, Encoding};
use core::fmt::Write;
use function::FunctionText;
use gradscale_core::{backend::ABI, scale, store_format::StoreFormat};
use std::collections::HashMap;
use tensor::Tensor;

/// WGSL kernel: its name, source, included files and the tensors that it binds.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub name: &'static str,
    pub source: &'static str,
    pub includes: &'static [&'static str],
    pub operands: &'static [Operand],
    /// Tensors that the kernel binds besides its operands, for example its output.
    pub others: &'static [Tensor],
}

/// Input tensor of a kernel, which reads it as f32 through `operand.wgsl`.
#[derive(Debug)]
pub(crate) struct Operand {
    pub name: &'static str,
    /// Name of the parameter that holds the operand's type, unless the type is a constant of the pipeline.
    pub dtype: Option<&'static str>,
}

impl Operand {
    /// Returns the text of `operand.wgsl` with its names replaced by those of this operand.
    fn text(&self) -> String {
        let named = OPERAND.replace("operand", self.name);
        match self.dtype {
            Some(parameter) => named.replace("override OPERAND: u32;", "").replace("OPERAND", parameter),
            None => named.replace("OPERAND", &self.name.to_uppercase()),
        }
    }
}

/// Returns the first name in a list of at most one, or `None`.
const fn parameter(named: &[&'static str]) -> Option<&'static str> {
    if named.is_empty() { None } else { Some(named[0]) }
}

pub(crate) const HALF: &str = include_str!("kernels/half.wgsl");
pub(crate) const SCALE: &str = include_str!("kernels/scale.wgsl");
pub(crate) const LOGARITHM: &str = include_str!("kernels/logarithm.wgsl");
pub(crate) const STORE: &str = include_str!("kernels/store.wgsl");
pub(crate) const ELEMENTWISE: &str = include_str!("kernels/elementwise.wgsl");
pub(crate) const SHARED: &str = include_str!("kernels/shared.wgsl");
pub(crate) const OUTPUT: &str = include_str!("kernels/output.wgsl");
pub(crate) const STORE_ROW: &str = include_str!("kernels/store_row.wgsl");
pub(crate) const TILE: &str = include_str!("kernels/tile.wgsl");
pub(crate) const CONV_INDICES: &str = include_str!("kernels/conv_indices.wgsl");
pub(crate) const COOP: &str = include_str!("kernels/coop.wgsl");
pub(crate) const COOP_GEMM: &str = include_str!("kernels/coop_gemm.wgsl");
pub(crate) const COOP_CONV: &str = include_str!("kernels/coop_conv.wgsl");
pub(crate) const WINDOWS: &str = include_str!("kernels/windows.wgsl");
pub(crate) const MATH: &str = include_str!("kernels/math.wgsl");
pub(crate) const FUNCTION: &str = include_str!("kernels/function.wgsl");
pub(crate) const PARALLEL_REDUCE: &str = include_str!("kernels/parallel_reduce.wgsl");
pub(crate) const REDUCTION: &str = include_str!("kernels/reduction.wgsl");
pub(crate) const NORM_GROUPS: &str = include_str!("kernels/norm_groups.wgsl");
pub(crate) const NORM_SAVED: &str = include_str!("kernels/norm_saved.wgsl");
pub(crate) const NORM_STATS: &str = include_str!("kernels/norm_stats.wgsl");
pub(crate) const NORM_MEANS: &str = include_str!("kernels/norm_means.wgsl");
pub(crate) const NORM_GRAD: &str = include_str!("kernels/norm_grad.wgsl");
pub(crate) const SOFTMAX_ROWS: &str = include_str!("kernels/softmax_rows.wgsl");
pub(crate) const CAST: &str = include_str!("kernels/cast.wgsl");
pub(crate) const ATTENTION_TILE: &str = include_str!("kernels/attention_tile.wgsl");
pub(crate) const CELL: &str = include_str!("kernels/cell.wgsl");
pub(crate) const EXPONENTS: &str = include_str!("kernels/exponents.wgsl");
pub(crate) const GRU_UNIT: &str = include_str!("kernels/gru_unit.wgsl");
pub(crate) const LSTM_UNIT: &str = include_str!("kernels/lstm_unit.wgsl");
pub(crate) const LABELS: &str = include_str!("kernels/labels.wgsl");
pub(crate) const ROI_BOXES: &str = include_str!("kernels/roi_boxes.wgsl");
pub(crate) const ROI_BINS: &str = include_str!("kernels/roi_bins.wgsl");
pub(crate) const CTC: &str = include_str!("kernels/ctc.wgsl");
pub(crate) const MULTI_TENSOR: &str = include_str!("kernels/multi_tensor.wgsl");
const MERGE: [&str; 2] = [include_str!("kernels/merge.wgsl"), include_str!("kernels/merge_subgroups.wgsl")];
const DECODE_INTEGERS: &str = include_str!("kernels/decode_integers.wgsl");
const DECODE_HARDWARE: &str = include_str!("kernels/decode_hardware.wgsl");
const DECODE_QUIETED: &str = include_str!("kernels/decode_quieted.wgsl");
const ENCODE_INTEGERS: &str = include_str!("kernels/encode_integers.wgsl");
const ENCODE_PACK: &str = include_str!("kernels/encode_pack.wgsl");
const ENCODE_ROUND: &str = include_str!("kernels/encode_round.wgsl");
const FORMAT_OF_MEMORY: &str = include_str!("kernels/format_of_memory.wgsl");
const FORMAT_EIGHT_BITS: &str = include_str!("kernels/format_eight_bits.wgsl");
const GRID: &str = include_str!("kernels/grid.wgsl");
const VEC8: &str = include_str!("kernels/vec8.wgsl");
const OPERAND: &str = include_str!("kernels/operand.wgsl");

/// Binding of the first operand. Those before are parameters, control, rows, y, partials.
pub(crate) const FIRST_OPERAND: u32 = 5;

/// Name of the file with a kernel's own text: the kernel's name, unless two kernels share a file.
macro_rules! file_name {
    ($name:literal) => {
        $name
    };
    ($name:literal $file:literal) => {
        $file
    };
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $id:ident = $name:literal $(from $file:literal)? [$($include:expr),*] ($($operand:literal $(= $dtype:literal)?),*) $($other:ident)*;)*) => {
        $($(#[$doc])* pub(crate) static $id: Kernel = Kernel {
            name: $name,
            source: include_str!(concat!("kernels/", file_name!($name $($file)?), ".wgsl")),
            includes: &[$($include),*],
            operands: &[$(Operand { name: $operand, dtype: parameter(&[$($dtype)?]) }),*],
            others: &[$(tensor::$other),*],
        };)*
        /// All kernels of the backend, in the order in which the macro lists them.
        #[cfg(test)]
        pub(crate) static KERNELS: &[&Kernel] = &[$(&$id),*];
    };
}

kernels! {
    PARTIAL_WORD_WRITE = "partial_word_write" [] ();
    PROBE = "probe" [] ();
    CONVERSIONS = "conversions" [HALF] ();
    COMPARE = "compare" [] ();
    STREAM = "stream" [] ();
    MULTIPLY_ADDS = "multiply_adds" [] ();
    MOMENTS = "moments" [HALF] ();
    UNARY = "unary" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, FUNCTION] ("x") Y;
    ROUND_BLOCKS = "round_blocks" [HALF, SCALE, LOGARITHM, STORE] ("x") WORD_Y;
    PACK = "pack" [] () WORD_Y WORD_X;
    UNPACK = "unpack" [] () WORD_Y WORD_X;
    COPY = "copy" [HALF, SCALE, LOGARITHM, STORE, SHARED] ("x") SHARED_Y;
    GEMM = "gemm" [HALF, SCALE, LOGARITHM, STORE, SHARED, OUTPUT, STORE_ROW, TILE] ("a", "b", "bias" = "p.output.bias") SHARED_Y;
    COOP_8 = "coop_8" [HALF, SCALE, LOGARITHM, STORE, SHARED, OUTPUT, STORE_ROW, COOP, COOP_GEMM] ("bias" = "p.output.bias") SHARED_Y;
    COOP_16 = "coop_16" [HALF, SCALE, LOGARITHM, STORE, SHARED, OUTPUT, STORE_ROW, COOP, COOP_GEMM] ("bias" = "p.output.bias") SHARED_Y;
    COOP_CONV_8 = "coop_conv_8" from "coop_8" [HALF, SCALE, LOGARITHM, STORE, SHARED, OUTPUT, STORE_ROW, COOP, CONV_INDICES, COOP_CONV] ("bias" = "p.output.bias") SHARED_Y;
    COOP_CONV_16 = "coop_conv_16" from "coop_16" [HALF, SCALE, LOGARITHM, STORE, SHARED, OUTPUT, STORE_ROW, COOP, CONV_INDICES, COOP_CONV] ("bias" = "p.output.bias") SHARED_Y;
    CONV = "conv" [HALF, SCALE, LOGARITHM, STORE, SHARED, OUTPUT, STORE_ROW, TILE, CONV_INDICES] ("a", "b", "bias" = "p.output.bias") SHARED_Y;
    SPLIT_K_REDUCE = "split_k_reduce" [HALF, SCALE, LOGARITHM, STORE, SHARED, OUTPUT] ("bias" = "p.output.bias") SHARED_Y;
    POOL = "pool" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, WINDOWS] ("x") Y OFFSETS;
    UNPOOL = "unpool" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, WINDOWS] ("x", "offset") Y;
    BINARY = "binary" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, FUNCTION] ("a", "b") Y;
    SUM = "sum" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE] ("a" = "p.types.x", "b" = "p.types.y", "c" = "p.types.z", "d" = "p.types.w") Y;
    GATHER = "gather" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE] ("x") Y INDICES;
    SCATTER = "scatter" [HALF, SCALE, LOGARITHM, STORE, SHARED] ("x") SHARED_Y INDICES;
    ROI_ALIGN = "roi_align" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, ROI_BOXES] ("x") Y BOXES;
    ROI_POOL = "roi_pool" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, ROI_BOXES, ROI_BINS] ("x") Y BOXES WRITTEN_POSITIONS;
    ROI_UNPOOL = "roi_unpool" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, ROI_BOXES, ROI_BINS] ("x") Y BOXES READ_POSITIONS;
    REDUCE = "reduce" [HALF, SCALE, LOGARITHM, MATH, REDUCTION, PARALLEL_REDUCE] ("x");
    REDUCE_END = "reduce_end" [HALF, SCALE, LOGARITHM, STORE, SHARED, MATH, REDUCTION, PARALLEL_REDUCE] () SHARED_Y;
    NORM_STATS_GROUPS = "norm_stats_groups" [HALF, SCALE, LOGARITHM, MATH, NORM_GROUPS, NORM_SAVED, PARALLEL_REDUCE, NORM_STATS] ("x");
    NORM_STATS_CHANNELS = "norm_stats_channels" [HALF, SCALE, LOGARITHM, MATH, NORM_GROUPS, NORM_SAVED, PARALLEL_REDUCE, NORM_STATS] ("x");
    NORM_STATS_FINAL = "norm_stats_final" [HALF, SCALE, LOGARITHM, MATH, NORM_SAVED, PARALLEL_REDUCE] ();
    NORM_INV_STD = "norm_inv_std" [HALF, SCALE, LOGARITHM, MATH, NORM_SAVED] ();
    NORM = "norm" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, NORM_GROUPS] ("x") Y;
    NORM_GRAD_GROUPS = "norm_grad_groups" [HALF, SCALE, LOGARITHM, MATH, NORM_GROUPS, NORM_SAVED, NORM_MEANS, PARALLEL_REDUCE, NORM_GRAD] ("x", "dy");
    NORM_GRAD_CHANNELS = "norm_grad_channels" [HALF, SCALE, LOGARITHM, MATH, NORM_GROUPS, NORM_SAVED, NORM_MEANS, PARALLEL_REDUCE, NORM_GRAD] ("x", "dy");
    NORM_GRAD_MEANS = "norm_grad_means" [HALF, SCALE, LOGARITHM, MATH, NORM_SAVED, NORM_MEANS, PARALLEL_REDUCE] ();
    NORM_VJP = "norm_vjp" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, NORM_GROUPS] ("x", "dy") Y;
    NORM_GRAD_AFFINE = "norm_grad_affine" [HALF, SCALE, LOGARITHM, STORE, SHARED, PARALLEL_REDUCE] () SHARED_Y;
    SOFTMAX = "softmax" [HALF, SCALE, LOGARITHM, STORE, SHARED, MATH, SOFTMAX_ROWS] ("x", "selection") SHARED_Y;
    SOFTMAX_VJP = "softmax_vjp" [HALF, SCALE, LOGARITHM, STORE, SHARED, MATH, SOFTMAX_ROWS] ("x", "dy") SHARED_Y;
    ATTENTION = "attention" [HALF, SCALE, LOGARITHM, STORE, SHARED, MATH, ATTENTION_TILE] ("a", "b", "v") SHARED_Y LOG_SUMS;
    ATTENTION_ENDS = "attention_ends" [HALF] ("lengths") LOG_SUMS;
    ATTENTION_ROWS = "attention_rows" [HALF, SCALE, EXPONENTS] ("x", "dy", "lengths") READ_LOG_SUMS;
    ATTENTION_VJP = "attention_vjp" [HALF, SCALE, LOGARITHM, STORE, CAST, SHARED, MATH, ATTENTION_TILE] ("a", "b", "u", "v") SHARED_Y;
    LSTM = "lstm" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, CELL, LSTM_UNIT] ("x" = "p.types.x", "h" = "p.types.y", "c" = "p.types.z") Y STATE;
    LSTM_VJP = "lstm_vjp" [HALF, SCALE, LOGARITHM, MATH, CELL, EXPONENTS, LSTM_UNIT] ("x" = "p.types.x", "h" = "p.types.y", "c" = "p.types.z", "dh" = "p.types.w", "dc" = "TYPE_F32") SUMS NEXT_STATE;
    GRU = "gru" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, CELL, GRU_UNIT] ("x" = "p.types.x", "h" = "p.types.y", "old" = "p.types.z") Y;
    GRU_VJP = "gru_vjp" [HALF, SCALE, LOGARITHM, MATH, CELL, EXPONENTS, GRU_UNIT] ("x" = "p.types.x", "h" = "p.types.y", "old" = "p.types.z", "dh" = "p.types.w") SUMS DX NEXT_STATE;
    CROSS_ENTROPY_ROWS = "cross_entropy_rows" [HALF, SCALE, LOGARITHM, MATH, LABELS] ("x", "labels") LOSS_OUTPUT;
    CROSS_ENTROPY_END = "cross_entropy_end" [HALF, SCALE, LOGARITHM, MATH] () LOSS_OUTPUT;
    CROSS_ENTROPY_FACTORS = "cross_entropy_factors" [HALF, SCALE, LOGARITHM, MATH, LABELS] ("labels") LOSS_OUTPUT;
    CROSS_ENTROPY_VJP = "cross_entropy_vjp" [HALF, SCALE, LOGARITHM, STORE, ELEMENTWISE, MATH, LABELS] ("x", "labels") Y;
    CTC_ROWS = "ctc_rows" [HALF, SCALE, LOGARITHM, MATH, CTC] ("x");
    CTC_SUMS = "ctc_sums" [HALF, SCALE, LOGARITHM, MATH, CTC] ("x") LOSS_OUTPUT TABLE;
    CTC_GRADIENT = "ctc_gradient" [HALF, SCALE, LOGARITHM, MATH, CTC] ("x") LOSS_OUTPUT TABLE;
    SQUARES = "squares" [HALF, SCALE, MULTI_TENSOR] ();
    GLOBAL_NORM = "global_norm" [HALF, SCALE, LOGARITHM, MATH] ();
    STEP = "step" [HALF, SCALE, LOGARITHM, MATH] ();
    OPTIMIZE = "optimize" [HALF, SCALE, LOGARITHM, MATH, MULTI_TENSOR] ();
}

/// Returns the constants of core's binary interface as WGSL text, which precedes every kernel. Thresholds of statistics
/// are those of the format in which a kernel stores.
pub(crate) fn prelude(format: StoreFormat) -> String {
    let (mut text, convention) = (String::new(), format.convention());
    for &(name, value) in ABI.iter().copied().flatten() {
        let value = match name {
            "FLUSH_END" => convention.flush_end(),
            "SUBNORMAL_END" => convention.subnormal_end(),
            "OVERFLOW_START" => convention.overflow_start(),
            _ => value,
        };
        writeln!(text, "const {name}: u32 = {value}u;").ok();
    }
    writeln!(text, "const MAX_STEP: i32 = {};", scale::MAX_STEP).ok();
    text + GRID + VEC8
}

/// Properties of a device, and of the tensors of a launch, that a kernel's text depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextOptions {
    /// Number of windows for each tensor.
    pub windows: u32,
    pub subgroups: bool,
    pub conversions: Conversions,
    /// Function of an elementwise kernel.
    pub function: Option<FunctionText>,
}

/// Returns the text of the function that rounds a store's results to a format.
fn format_text(format: StoreFormat) -> String {
    match format {
        StoreFormat::Fp16 => FORMAT_OF_MEMORY.to_owned(),
        StoreFormat::E5m2 | StoreFormat::E4m3 => {
            let mantissa_bits = f32::MANTISSA_DIGITS - 1;
            let constants = [
                ("FORMAT_DROPPED_DIGITS", mantissa_bits - format.format().mantissa_bits()),
                ("FORMAT_LEAST_EXPONENT", format.min_normal_bits() >> mantissa_bits),
                ("FORMAT_OVERFLOWED", format.overflow_bits()),
                ("FORMAT_LARGEST", format.largest_bits()),
            ];
            let constants = constants.map(|(name, value)| format!("const {name}: u32 = {value}u;\n"));
            constants.concat() + FORMAT_EIGHT_BITS
        }
    }
}

impl Conversions {
    /// Returns the text of the functions that convert.
    fn text(self) -> String {
        let decode = match self.decoding {
            Decoding::Integers => DECODE_INTEGERS,
            Decoding::Hardware => DECODE_HARDWARE,
            Decoding::Quieted => DECODE_QUIETED,
        };
        let encode = match self.encoding {
            Encoding::Integers => ENCODE_INTEGERS,
            Encoding::Pack => ENCODE_PACK,
            Encoding::Round => ENCODE_ROUND,
        };
        decode.to_owned() + encode
    }

    /// Returns true if the kernels must enable f16.
    pub const fn needs_f16(self) -> bool {
        matches!(self.encoding, Encoding::Round)
    }
}

impl Kernel {
    /// Returns the operands of the kernel with their bindings, and then its other tensors.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor> {
        let operands =
            (FIRST_OPERAND..).zip(self.operands).map(|(binding, operand)| Tensor::operand(operand.name, binding));
        operands.chain(self.others.iter().copied())
    }

    /// Returns the number of statistics rows that a workgroup of the kernel observes at once: that of its store, and those of
    /// two casts.
    fn observed_sites(&self) -> u32 {
        if self.includes.contains(&CAST) { 3 } else { 1 }
    }

    /// Returns the whole WGSL text of the kernel.
    pub fn text(&self, options: TextOptions) -> String {
        let TextOptions { windows, subgroups, conversions, function } = options;
        // Directives that enable extensions must come first.
        let enables: String = self.source.split_inclusive('\n').take_while(|line| line.starts_with("enable")).collect();
        let source = &self.source[enables.len()..];
        let converts = self.includes.contains(&HALF);
        let f16 = if converts && conversions.needs_f16() && !enables.contains("f16") { "enable f16;\n" } else { "" };
        let format = function.map_or(StoreFormat::Fp16, |function| function.format);
        let mut text = f16.to_owned() + &enables + &prelude(format);
        if windows > 1 {
            text += "override WINDOW: u32;\n";
        }
        self.tensors().for_each(|tensor| text += &tensor.text(windows));
        for &include in self.includes {
            text += include;
            if include == HALF {
                text += &conversions.text();
            }
            if include == STORE {
                writeln!(text, "const OBSERVED_SITES: u32 = {}u;", self.observed_sites()).ok();
                text += MERGE[usize::from(subgroups)];
                text += &format_text(format);
            }
            if include == FUNCTION {
                function.iter().flat_map(|function| function.parts).for_each(|part| text += part);
            }
        }
        self.operands.iter().for_each(|operand| text += &operand.text());
        text + source
    }

    /// Returns the text of [`Kernel::text`] as browsers take it: subgroups must be enabled there, which naga does not
    /// read yet.
    pub fn browser_text(&self, options: TextOptions) -> String {
        let enables = if options.subgroups { "enable subgroups;\n" } else { "" };
        enables.to_owned() + &self.text(options)
    }
}

pub(crate) mod function;
#[cfg(all(test, target_os = "linux"))]
mod instructions;
pub(crate) mod tensor;
#[cfg(test)]
mod tests;

/// Key of a compiled module: the properties of a launch that its text depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModuleKey {
    pub kernel: &'static str,
    /// Name of the function of an elementwise kernel.
    pub function: Option<&'static str>,
    /// Number of windows for each tensor.
    pub windows: u32,
}

/// Names and values of a pipeline's constants.
pub(crate) type Constants = Vec<(&'static str, u32)>;

/// Cache of compiled kernels, by what their text depends on and by the values of their constants.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    pub modules: HashMap<ModuleKey, wgpu::ShaderModule>,
    pub pipelines: HashMap<(ModuleKey, Constants), wgpu::ComputePipeline>,
}
