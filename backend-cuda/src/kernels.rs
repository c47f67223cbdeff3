//! The kernels: source files, their common definitions, and their variants.

use core::fmt::Write;
use gradscale_core::{backend::ABI, ops::MAX_DIMS, scale::MAX_STEP, store_format::StoreFormat};
use std::collections::HashSet;

/// Source file of kernels, in the folder `kernels`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Name of the CUDA source file, without its folder.
    pub name: &'static str,
    /// CUDA source text of the file, embedded in the program.
    pub text: &'static str,
}

macro_rules! file {
    ($name:literal) => {
        File { name: $name, text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/kernels/", $name)) }
    };
}

// After the macro, which they use.
mod attention_variants;
mod gemm_variants;

pub use attention_variants::AttentionKernels;
pub use gemm_variants::{
    CONV_HALO, FP8_CONV_TILES, FP8_TILES, HALO_BYTES, LARGEST_TILE, MAX_ACCUMULATION_K, MAX_HALO_STEPS, MMA_FP8,
    MMA_FP8_CONV, MMA_SYNC_CONV, MMA_SYNC_GEMM, OPERAND_PARTS, PROMOTION_K, SIMT, SIMT_VEC4_CONV, SIMT_VEC4_GEMM,
    SPLIT_K_REDUCE, TILE_SHAPES, TILE_WARPS, TileShape, UNALIGNED_TILE, WGMMA_BF16X6_CONV, WGMMA_BF16X6_CONV_SWAPPED,
    WGMMA_BF16X6_GEMM, WGMMA_CONV, WGMMA_CONV_SWAPPED, WGMMA_FP8, WGMMA_FP8_TILE, WGMMA_TMA_CLUSTER_BLOCKS,
    WGMMA_TMA_CONV, WGMMA_TMA_CONV_SWAPPED, WGMMA_TMA_GEMM, WGMMA_TMA_TILE_SHAPES, WarpGrid,
};

/// Compilation unit: files in order, preceded by definitions.
#[derive(Debug)]
pub struct Module {
    /// Unique name of the module, which also names its cubin.
    pub name: &'static str,
    /// Source files in order, after `ptx.cuh`, which every module begins with.
    pub files: &'static [File],
    /// Macros that define this variant of the module, with their numbers. They replace constants of core of that name.
    pub defines: &'static [(&'static str, u32)],
    /// Threads of a block of the module's kernels.
    pub threads: u32,
    /// Minimum number of blocks per multiprocessor, which limits the registers of a thread.
    pub blocks: u32,
    /// Bytes of dynamic shared memory of the module's kernels.
    pub shared: u32,
    /// The same on sm_75, if it differs there.
    pub shared_sm75: Option<u32>,
    /// Minimum and maximum compute capability for which the module is compiled.
    pub arch: [u32; 2],
}

/// Kernel entry point: its module and its name.
#[derive(Debug)]
pub struct Kernel {
    /// Module that contains the entry point.
    pub module: &'static Module,
    /// Name of the `extern "C"` function in the module.
    pub entry: &'static str,
}

/// Source file of the device's instructions as functions, which every module begins with.
pub const PTX: File = file!("ptx.cuh");

impl Module {
    const fn new(name: &'static str, files: &'static [File]) -> Self {
        Self { name, files, defines: &[], threads: 256, blocks: 2, shared: 0, shared_sm75: None, arch: [75, u32::MAX] }
    }

    /// Returns the bytes of dynamic shared memory on a compute capability.
    #[must_use]
    pub fn shared_bytes(&self, arch: u32) -> u32 {
        if arch < 80 { self.shared_sm75.unwrap_or(self.shared) } else { self.shared }
    }

    /// Returns the source text to compile, with `machine` as the file of instructions.
    #[must_use]
    pub fn source(&self, machine: File) -> String {
        let files = || core::iter::once(&machine).chain(self.files);
        let words = |file: &File| file.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let used: HashSet<&str> = files().flat_map(words).collect();
        let own = [("THREADS", self.threads), ("BLOCKS", self.blocks), ("SHARED_TOTAL", self.shared)];
        let mut text = String::new();
        // Only definitions that the module uses. A new constant for another operator then does not change this text, so
        // that compiled machine code stays valid.
        let is_replaced = |name: &str| self.defines.iter().any(|&(own, _)| own == name);
        let shared = ABI.iter().copied().flatten().filter(|&&(name, _)| !is_replaced(name));
        let defines = shared.chain(&own).chain(self.defines);
        for (name, value) in defines.filter(|(name, _)| used.contains(name)) {
            writeln!(text, "#define {name} {value}u").ok();
        }
        writeln!(text, "#define MAX_STEP {MAX_STEP}").ok();
        for file in files() {
            write!(text, "#line 1 \"{}\"\n{}", file.name, file.text).ok();
        }
        text
    }
}

/// Converts a small number to u32 for the kernels' macros.
#[expect(clippy::cast_possible_truncation, reason = "below 2^32 by far")]
const fn to_u32(number: usize) -> u32 {
    number as u32
}

const STORE: File = file!("store.cuh");
const ELEMENTWISE: File = file!("elementwise.cuh");
const FUNCTIONS: File = file!("functions.cuh");

const UNARY_MODULE: Module = Module::new("unary", &[STORE, ELEMENTWISE, FUNCTIONS, file!("unary.cu")]);
/// Kernel of elementwise functions of one tensor: `y[i] = f(x[i])`.
pub static UNARY: Kernel = Kernel { module: &UNARY_MODULE, entry: "unary" };

/// Returns the thresholds and the numbers by which `round.cu` and `round_blocks.cu` round to a format of eight bits.
const fn format_defines(format: StoreFormat) -> [(&'static str, u32); 7] {
    let (convention, mantissa_bits) = (format.convention(), f32::MANTISSA_DIGITS - 1);
    [
        ("FLUSH_END", convention.flush_end()),
        ("SUBNORMAL_END", convention.subnormal_end()),
        ("OVERFLOW_START", convention.overflow_start()),
        ("FORMAT_LEAST_NORMAL", format.min_normal_bits()),
        ("FORMAT_TO_LAST_PLACE", (mantissa_bits - format.format().mantissa_bits()) << mantissa_bits),
        ("FORMAT_OVERFLOWED", format.overflow_bits()),
        ("FORMAT_LARGEST", format.largest_bits()),
    ]
}

const ROUND_FILES: [File; 3] = [STORE, file!("round.cu"), file!("round_blocks.cu")];
const ROUND_E5M2_MODULE: Module =
    Module { defines: &format_defines(StoreFormat::E5m2), ..Module::new("round_e5m2", &ROUND_FILES) };
const ROUND_E4M3_MODULE: Module =
    Module { defines: &format_defines(StoreFormat::E4m3), ..Module::new("round_e4m3", &ROUND_FILES) };
/// Kernel of stores in E5M2.
pub static ROUND_E5M2: Kernel = Kernel { module: &ROUND_E5M2_MODULE, entry: "round_stores" };
/// Kernel of stores in E4M3.
pub static ROUND_E4M3: Kernel = Kernel { module: &ROUND_E4M3_MODULE, entry: "round_stores" };
/// Kernel of stores in blocks of E5M2.
pub static ROUND_BLOCKS_E5M2: Kernel = Kernel { module: &ROUND_E5M2_MODULE, entry: "round_blocks" };
/// Kernel of stores in blocks of E4M3.
pub static ROUND_BLOCKS_E4M3: Kernel = Kernel { module: &ROUND_E4M3_MODULE, entry: "round_blocks" };

const BINARY_MODULE: Module = Module::new("binary", &[STORE, ELEMENTWISE, FUNCTIONS, file!("binary.cu")]);
/// Kernel of elementwise functions of two tensors: `y[i] = f(a[i], b[…])`.
pub static BINARY: Kernel = Kernel { module: &BINARY_MODULE, entry: "binary" };

/// Number of terms that one launch of [`SUM`] adds.
pub const SUM_TERMS: usize = 4;
const SUM_MODULE: Module = Module {
    defines: &[("SUM_TERMS", to_u32(SUM_TERMS))],
    ..Module::new("sum", &[STORE, ELEMENTWISE, file!("sum.cu")])
};
/// Kernel of sums of several tensors: `y[i] = Σ terms[·][i]`.
pub static SUM: Kernel = Kernel { module: &SUM_MODULE, entry: "sum" };

const COPY_MODULE: Module =
    Module { defines: &[("COPY_DIMS", to_u32(MAX_DIMS))], ..Module::new("copy", &[STORE, file!("copy.cu")]) };
/// Kernel of strided copies that convert and observe values in the epilogue.
pub static COPY: Kernel = Kernel { module: &COPY_MODULE, entry: "copy" };
/// Kernel of strided copies of words without change.
pub static COPY_WORDS: Kernel = Kernel { module: &COPY_MODULE, entry: "copy_words" };

const REDUCE_MODULE: Module = Module::new("reduce", &[STORE, ELEMENTWISE, file!("reduce.cu")]);
/// Kernel of reductions along one axis, or along parts of it.
pub static REDUCE: Kernel = Kernel { module: &REDUCE_MODULE, entry: "reduce" };

const PAD_MODULE: Module = Module::new("pad", &[file!("pad.cu")]);
/// Kernel that pads the channels of halves with zeros to eight.
pub static PAD: Kernel = Kernel { module: &PAD_MODULE, entry: "pad" };

const CODES: File = file!("codes.cuh");

const PACK_MODULE: Module = Module::new("pack", &[CODES, file!("pack.cu")]);
/// Kernel that packs halves, which are values of a format of eight bits, to bytes.
pub static PACK: Kernel = Kernel { module: &PACK_MODULE, entry: "pack_values" };
/// Kernel that unpacks bytes of a format to halves.
pub static UNPACK: Kernel = Kernel { module: &PACK_MODULE, entry: "unpack_values" };

const PACK_FP8_MODULE: Module =
    Module { arch: [89, u32::MAX], ..Module::new("pack_fp8", &[CODES, file!("pack_fp8.cu")]) };
/// Kernel that packs halves to bytes of a format of eight bits, of operands that are contiguous along k.
pub static PACK_FP8_ROWS: Kernel = Kernel { module: &PACK_FP8_MODULE, entry: "pack_rows" };
/// Kernel that packs and transposes the other operands.
pub static PACK_FP8_COLUMNS: Kernel = Kernel { module: &PACK_FP8_MODULE, entry: "pack_columns" };

// Other devices have no kernel of products of parts.
const SPLIT_BF16_MODULE: Module = Module { arch: [90, 90], ..Module::new("split_bf16", &[file!("split_bf16.cu")]) };
/// Kernel that splits f32 values into three bfloat16.
pub static SPLIT_BF16: Kernel = Kernel { module: &SPLIT_BF16_MODULE, entry: "split_bf16" };

const ROWS_MODULE: Module = Module::new("rows", &[STORE, ELEMENTWISE, file!("rows.cu")]);
/// Kernel that gathers rows of a table (embedding).
pub static ROWS_GATHER: Kernel = Kernel { module: &ROWS_MODULE, entry: "rows_gather" };
/// Kernel that sets the counts of indices by table row to zero.
pub static ROWS_CLEAR: Kernel = Kernel { module: &ROWS_MODULE, entry: "rows_clear" };
/// Kernel that counts the indices of each row of an embedding table.
pub static ROWS_COUNT: Kernel = Kernel { module: &ROWS_MODULE, entry: "rows_count" };
/// Kernel that gives each row of a table a range of positions.
pub static ROWS_START: Kernel = Kernel { module: &ROWS_MODULE, entry: "rows_start" };
/// Kernel that writes the positions of indices to the ranges of their rows.
pub static ROWS_PLACE: Kernel = Kernel { module: &ROWS_MODULE, entry: "rows_place" };
/// Kernel that sorts the positions of each range.
pub static ROWS_RANK: Kernel = Kernel { module: &ROWS_MODULE, entry: "rows_rank" };
/// Kernel that adds rows to those of a table that indices select (embedding gradient).
pub static ROWS_SCATTER: Kernel = Kernel { module: &ROWS_MODULE, entry: "rows_scatter" };

const POOL_FILE: File = file!("pool.cuh");
const POOL_MODULE: Module = Module::new("pool", &[STORE, ELEMENTWISE, POOL_FILE, file!("pool.cu")]);
/// Kernel of pooling: the maximum or the mean of each window.
pub static POOL: Kernel = Kernel { module: &POOL_MODULE, entry: "pool" };
/// Kernel that scatters the gradients of pooling windows to the pixels of an image.
pub static UNPOOL_SCATTER: Kernel = Kernel { module: &POOL_MODULE, entry: "unpool_scatter" };
/// Kernel that gathers from each pooling window the element that the maximum was at.
pub static UNPOOL_GATHER: Kernel = Kernel { module: &POOL_MODULE, entry: "unpool_gather" };

const POOL_UNROLLED_MODULE: Module =
    Module::new("pool_unrolled", &[STORE, ELEMENTWISE, POOL_FILE, file!("pool_unrolled.cu")]);
/// Kernel of pooling in windows of 2 × 2 with stride 2.
pub static POOL_2X2: Kernel = Kernel { module: &POOL_UNROLLED_MODULE, entry: "pool_2x2" };
/// Kernel of pooling in windows of 3 × 3 with stride 2.
pub static POOL_3X3: Kernel = Kernel { module: &POOL_UNROLLED_MODULE, entry: "pool_3x3" };
/// Kernel of [`UNPOOL_GATHER`] for windows of 2 × 2 with stride 2.
pub static UNPOOL_GATHER_2X2: Kernel = Kernel { module: &POOL_UNROLLED_MODULE, entry: "unpool_gather_2x2" };
/// Kernel of [`UNPOOL_SCATTER`] for windows of 2 × 2 with stride 2.
pub static UNPOOL_SCATTER_2X2: Kernel = Kernel { module: &POOL_UNROLLED_MODULE, entry: "unpool_scatter_2x2" };
/// Kernel of [`UNPOOL_SCATTER`] for windows of 3 × 3 with stride 2.
pub static UNPOOL_SCATTER_3X3: Kernel = Kernel { module: &POOL_UNROLLED_MODULE, entry: "unpool_scatter_3x3" };

const ROI_ALIGN_MODULE: Module = Module::new("roi_align", &[STORE, ELEMENTWISE, file!("roi_align.cu")]);
/// Kernel of `RoIAlign`: boxes of images, resampled to one size.
pub static ROI_ALIGN: Kernel = Kernel { module: &ROI_ALIGN_MODULE, entry: "roi_align" };
/// Kernel of the gradient of `RoIAlign` with respect to the images.
pub static ROI_ALIGN_VJP: Kernel = Kernel { module: &ROI_ALIGN_MODULE, entry: "roi_align_vjp" };

const ROI_POOL_MODULE: Module = Module::new("roi_pool", &[STORE, ELEMENTWISE, file!("roi_pool.cu")]);
/// Kernel of `RoI` max pooling: the largest value in each bin of a box.
pub static ROI_POOL: Kernel = Kernel { module: &ROI_POOL_MODULE, entry: "roi_pool" };
/// Kernel of the gradient of `RoI` max pooling with respect to the images.
pub static ROI_UNPOOL: Kernel = Kernel { module: &ROI_POOL_MODULE, entry: "roi_unpool" };

const BLOCK_REDUCE: File = file!("block_reduce.cuh");
const ROW_REDUCE: File = file!("row_reduce.cuh");
const NORM: File = file!("norm.cuh");

const NORM_MODULE: Module = Module::new("norm", &[STORE, ELEMENTWISE, BLOCK_REDUCE, NORM, file!("norm.cu")]);
/// Kernel that computes mean, variance and 1 / σ of each channel.
pub static NORM_MOMENTS: Kernel = Kernel { module: &NORM_MODULE, entry: "norm_moments" };
/// Kernel that computes 1 / σ of each group from the variances.
pub static NORM_INV_STD: Kernel = Kernel { module: &NORM_MODULE, entry: "norm_inv_std" };
/// Kernel that normalises by statistics that are computed already.
pub static NORM_APPLY: Kernel = Kernel { module: &NORM_MODULE, entry: "norm_apply" };
/// Kernel that normalises f16 tensors, with fixed channels for each thread.
pub static NORM_APPLY_BY_CHANNEL: Kernel = Kernel { module: &NORM_MODULE, entry: "norm_apply_by_channel" };
/// Kernel that computes the statistics of groups within one image and normalises them.
pub static NORM_GROUPS: Kernel = Kernel { module: &NORM_MODULE, entry: "norm_groups" };

const NORM_VJP_MODULE: Module =
    Module::new("norm_vjp", &[STORE, ELEMENTWISE, BLOCK_REDUCE, NORM, file!("norm_vjp.cu")]);
/// Kernel of sums by channel of the normalisation's gradient, and of it times the normalised values, which also stores
/// them as the gradients of scale and shift.
pub static NORM_VJP_TOTALS: Kernel = Kernel { module: &NORM_VJP_MODULE, entry: "norm_vjp_totals" };
/// Kernel of the normalisation's gradient with respect to x, from sums that are computed already.
pub static NORM_VJP_APPLY: Kernel = Kernel { module: &NORM_VJP_MODULE, entry: "norm_vjp_apply" };
/// Kernel of the normalisation's gradient with respect to f16 x, with fixed channels for each thread.
pub static NORM_VJP_APPLY_BY_CHANNEL: Kernel = Kernel { module: &NORM_VJP_MODULE, entry: "norm_vjp_apply_by_channel" };
/// Kernel of the normalisation's gradient with respect to x, in groups of one image.
pub static NORM_VJP_GROUPS: Kernel = Kernel { module: &NORM_VJP_MODULE, entry: "norm_vjp_groups" };
/// Kernel of the normalisation's gradient with respect to x, and of its sums by channel, if each pixel is a group.
pub static NORM_VJP_ROWS: Kernel = Kernel { module: &NORM_VJP_MODULE, entry: "norm_vjp_rows" };
/// Kernel that adds partial sums by channel, and stores the gradients of scale and shift.
pub static NORM_VJP_AFFINE: Kernel = Kernel { module: &NORM_VJP_MODULE, entry: "norm_vjp_affine" };

const SOFTMAX_MODULE: Module = Module::new("softmax", &[STORE, ELEMENTWISE, ROW_REDUCE, file!("softmax.cu")]);
/// Kernel of the softmax of rows, and of its logarithm.
pub static SOFTMAX: Kernel = Kernel { module: &SOFTMAX_MODULE, entry: "softmax" };
/// Kernel of the gradient of a softmax of rows, or of its logarithm, with respect to the scores.
pub static SOFTMAX_VJP: Kernel = Kernel { module: &SOFTMAX_MODULE, entry: "softmax_vjp" };

const CELL: File = file!("cell.cuh");

const LSTM_MODULE: Module = Module::new("lstm", &[STORE, ELEMENTWISE, FUNCTIONS, CELL, file!("lstm.cu")]);
/// Kernel of a step of an LSTM cell.
pub static LSTM: Kernel = Kernel { module: &LSTM_MODULE, entry: "lstm" };
/// Kernel of the gradient of a step of an LSTM cell.
pub static LSTM_VJP: Kernel = Kernel { module: &LSTM_MODULE, entry: "lstm_vjp" };

const GRU_MODULE: Module = Module::new("gru", &[STORE, ELEMENTWISE, FUNCTIONS, CELL, file!("gru.cu")]);
/// Kernel of a step of a GRU cell.
pub static GRU: Kernel = Kernel { module: &GRU_MODULE, entry: "gru" };
/// Kernel of the gradient of a step of a GRU cell.
pub static GRU_VJP: Kernel = Kernel { module: &GRU_MODULE, entry: "gru_vjp" };

/// Maximum number of classes of a row that a single thread handles.
pub const MAX_CLASSES_PER_THREAD: u32 = 32;
const CROSS_ENTROPY_MODULE: Module = Module {
    defines: &[("MAX_CLASSES_PER_THREAD", MAX_CLASSES_PER_THREAD)],
    // Three blocks, because loads of labels and row sums have latency in addition to that of logits, and exponentials
    // are slow.
    blocks: 3,
    ..Module::new("cross_entropy", &[STORE, ELEMENTWISE, BLOCK_REDUCE, ROW_REDUCE, file!("cross_entropy.cu")])
};
/// Kernel of the cross-entropy: log-sum-exp of each row, and each block's share of the loss.
pub static CROSS_ENTROPY: Kernel = Kernel { module: &CROSS_ENTROPY_MODULE, entry: "cross_entropy" };
/// Kernel of the cross-entropy for many classes, where a block computes a row.
pub static CROSS_ENTROPY_LONG_ROWS: Kernel = Kernel { module: &CROSS_ENTROPY_MODULE, entry: "cross_entropy_long_rows" };
/// Kernel that computes the cross-entropy's loss and divisor from the blocks' shares.
pub static CROSS_ENTROPY_FINISH: Kernel = Kernel { module: &CROSS_ENTROPY_MODULE, entry: "cross_entropy_finish" };
/// Kernel of the cross-entropy's gradient with respect to the logits.
pub static CROSS_ENTROPY_VJP: Kernel = Kernel { module: &CROSS_ENTROPY_MODULE, entry: "cross_entropy_vjp" };
/// Kernel of the cross-entropy's gradient for f16 logits where eight neighbouring elements span at most two rows.
pub static CROSS_ENTROPY_VJP_TWO_ROWS: Kernel =
    Kernel { module: &CROSS_ENTROPY_MODULE, entry: "cross_entropy_vjp_two_rows" };

const CTC_MODULE: Module = Module::new("ctc", &[STORE, BLOCK_REDUCE, file!("ctc.cu")]);
/// Kernel that computes the log-sum-exp of each frame for the CTC loss.
pub static CTC_ROWS: Kernel = Kernel { module: &CTC_MODULE, entry: "ctc_rows" };
/// Kernel that sums over the alignments of the CTC loss, and computes the losses.
pub static CTC_SUMS: Kernel = Kernel { module: &CTC_MODULE, entry: "ctc_sums" };
/// Kernel of the CTC loss's gradient with respect to the logits.
pub static CTC_GRADIENT: Kernel = Kernel { module: &CTC_MODULE, entry: "ctc_gradient" };

/// Number of elements of a tensor that one block handles in multi-tensor launches.
pub const CHUNK_ELEMENTS: u32 = 4096;
const MULTI_TENSOR: File = file!("multi_tensor.cuh");

/// Tensors that one launch of [`OPTIMIZE`] or [`GLOBAL_NORM`] takes. Kernels may have 32 KiB of parameters from compute
/// capability 7.0 on (CUDA 12.1); these are 12.
pub const MAX_TENSORS_PER_LAUNCH: usize = 256;
const OPTIMIZE_MODULE: Module = Module {
    defines: &[("CHUNK_ELEMENTS", CHUNK_ELEMENTS), ("MAX_TENSORS_PER_LAUNCH", to_u32(MAX_TENSORS_PER_LAUNCH))],
    ..Module::new("optimize", &[MULTI_TENSOR, file!("optimize.cu")])
};
/// Kernel that updates all parameters by the optimizer's rule.
pub static OPTIMIZE: Kernel = Kernel { module: &OPTIMIZE_MODULE, entry: "optimize" };

const GLOBAL_NORM_MODULE: Module = Module {
    defines: &[("CHUNK_ELEMENTS", CHUNK_ELEMENTS), ("MAX_TENSORS_PER_LAUNCH", to_u32(MAX_TENSORS_PER_LAUNCH))],
    ..Module::new("global_norm", &[MULTI_TENSOR, BLOCK_REDUCE, file!("global_norm.cu")])
};
/// Kernel that computes each block's partial sum of squares of the gradients.
pub static GLOBAL_NORM: Kernel = Kernel { module: &GLOBAL_NORM_MODULE, entry: "global_norm" };
/// Kernel that computes the gradients' global norm from partial sums of squares.
pub static GLOBAL_NORM_FINISH: Kernel = Kernel { module: &GLOBAL_NORM_MODULE, entry: "global_norm_finish" };

/// Wire formats between ranks: one f16 per value, exact sums of several, or f32.
pub const GRAD_REDUCE_KINDS: [(&str, u32); 3] =
    [("GRAD_REDUCE_F16", 0), ("GRAD_REDUCE_I64", 1), ("GRAD_REDUCE_F32", 2)];
const GRAD_REDUCE_MODULE: Module =
    Module { defines: &GRAD_REDUCE_KINDS, ..Module::new("grad_reduce", &[STORE, file!("grad_reduce.cu")]) };
/// Kernel that adds the gradients of a micro-batch to the buffer that is sent.
pub static GRAD_REDUCE_ACCUMULATE: Kernel = Kernel { module: &GRAD_REDUCE_MODULE, entry: "grad_reduce_accumulate" };
/// Kernel that computes means of the sums received from all ranks.
pub static GRAD_REDUCE_MEAN: Kernel = Kernel { module: &GRAD_REDUCE_MODULE, entry: "grad_reduce_mean" };
/// Kernel that reads a parameter's mean gradient from the buffer that all ranks reduced.
pub static GRAD_REDUCE_READ: Kernel = Kernel { module: &GRAD_REDUCE_MODULE, entry: "grad_reduce_read" };

/// Kernels that are not variants of a matrix product or convolution.
static STANDALONE: &[&Kernel] = &[
    &UNARY,
    &ROUND_E5M2,
    &ROUND_E4M3,
    &ROUND_BLOCKS_E5M2,
    &ROUND_BLOCKS_E4M3,
    &SPLIT_K_REDUCE,
    &BINARY,
    &SUM,
    &COPY,
    &COPY_WORDS,
    &PAD,
    &PACK,
    &UNPACK,
    &PACK_FP8_ROWS,
    &PACK_FP8_COLUMNS,
    &SPLIT_BF16,
    &REDUCE,
    &ROWS_GATHER,
    &ROWS_CLEAR,
    &ROWS_COUNT,
    &ROWS_START,
    &ROWS_PLACE,
    &ROWS_RANK,
    &ROWS_SCATTER,
    &POOL,
    &UNPOOL_SCATTER,
    &UNPOOL_GATHER,
    &POOL_2X2,
    &POOL_3X3,
    &UNPOOL_GATHER_2X2,
    &UNPOOL_SCATTER_2X2,
    &UNPOOL_SCATTER_3X3,
    &ROI_ALIGN,
    &ROI_ALIGN_VJP,
    &ROI_POOL,
    &ROI_UNPOOL,
    &NORM_MOMENTS,
    &NORM_INV_STD,
    &NORM_APPLY,
    &NORM_APPLY_BY_CHANNEL,
    &NORM_GROUPS,
    &NORM_VJP_TOTALS,
    &NORM_VJP_APPLY,
    &NORM_VJP_APPLY_BY_CHANNEL,
    &NORM_VJP_GROUPS,
    &NORM_VJP_ROWS,
    &NORM_VJP_AFFINE,
    &SOFTMAX,
    &SOFTMAX_VJP,
    &LSTM,
    &LSTM_VJP,
    &GRU,
    &GRU_VJP,
    &CROSS_ENTROPY,
    &CROSS_ENTROPY_LONG_ROWS,
    &CROSS_ENTROPY_FINISH,
    &CROSS_ENTROPY_VJP,
    &CROSS_ENTROPY_VJP_TWO_ROWS,
    &CTC_ROWS,
    &CTC_SUMS,
    &CTC_GRADIENT,
    &OPTIMIZE,
    &GLOBAL_NORM,
    &GLOBAL_NORM_FINISH,
    &GRAD_REDUCE_ACCUMULATE,
    &GRAD_REDUCE_MEAN,
    &GRAD_REDUCE_READ,
];

/// Returns the kernels that only compute capability 9.0 (sm_90a) has.
pub fn wgmma_kernels() -> impl Iterator<Item = &'static Kernel> {
    let by_tma = WGMMA_TMA_GEMM.as_flattened().iter().chain(WGMMA_TMA_CONV.as_flattened());
    let by_threads = WGMMA_CONV.as_flattened().iter().chain(&WGMMA_CONV_SWAPPED);
    by_tma.chain(&WGMMA_TMA_CONV_SWAPPED).chain(&CONV_HALO).chain(by_threads)
}

/// Returns the kernels of products of operands of eight bits that only compute capability 9.0 (sm_90a) has.
pub fn wgmma_fp8_kernels() -> impl Iterator<Item = &'static Kernel> {
    WGMMA_FP8.as_flattened().iter()
}

/// Returns the kernels of products of f32 operands by tensor cores, which only compute capability 9.0 (sm_90a) has.
pub fn wgmma_bf16x6_kernels() -> impl Iterator<Item = &'static Kernel> {
    let convolutions = WGMMA_BF16X6_CONV.as_flattened().iter().chain(&WGMMA_BF16X6_CONV_SWAPPED);
    WGMMA_BF16X6_GEMM.as_flattened().iter().chain(convolutions)
}

/// Iterates over the entry points of all kernels of the backend.
pub fn all_kernels() -> impl Iterator<Item = &'static Kernel> {
    let simt = SIMT.iter().chain(&SIMT_VEC4_GEMM).chain(&SIMT_VEC4_CONV);
    let halves = MMA_SYNC_GEMM.as_flattened().iter().chain(MMA_SYNC_CONV.as_flattened());
    let fp8 = [&MMA_FP8, &MMA_FP8_CONV].into_iter().flat_map(|kernels| kernels.as_flattened().as_flattened());
    let products = simt.chain(halves).chain(fp8).chain(wgmma_kernels());
    let products = products.chain(wgmma_fp8_kernels()).chain(wgmma_bf16x6_kernels());
    STANDALONE.iter().copied().chain(AttentionKernels::list_all()).chain(products)
}
