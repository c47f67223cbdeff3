//! Selection of the kernel and of the split-K factor of a GEMM, by a cost model of the device. A product with M = 1 has
//! no gemv kernel of its own: it takes a GEMM kernel, of whose tile of 64 or 128 rows it fills one. With f16 operands
//! this is mostly `mma_sync_gemm_64x64` or `mma_sync_gemm_64x128`; on sm_90 with long sums `wgmma_tma_gemm_128x128`. Its
//! few tiles are divided by split-K. f32 operands take a SIMT kernel, or on sm_90 tensor cores (`bf16x6.rs`).
//!
//! cuBLASLt calls this step its heuristic. Convolutions are selected in the same way, because they are implicit GEMMs
//! (`implicit_gemm.cuh`). In pseudo-code:
//!
//! ```text
//! select(problem, device):
//!     candidates = mma.sync kernels, one for each tile shape
//!     if the device is an sm_90:
//!         candidates += wgmma kernels that load by TMA, by cp.async, or halo tiles (halo.rs has their cycles)
//!     (f32: the SIMT kernels, and on an sm_90 those of bf16x6.rs, charged with the split of the operands)
//!     for each candidate and each number of splits:
//!         tiles    = ceil(m / tile.m) * ceil(n / tile.n) * batch * splits
//!         waves    = ceil(tiles / multiprocessors)
//!         mainloop = k / splits / 64 * max(tensor cores, shared memory, instruction issue)
//!         epilogue = tile.m * tile.n / STORES_PER_CYCLE
//!         cycles   = waves * (BLOCK_OVERHEAD_CYCLES + mainloop + epilogue)
//!     return the candidate and the number of splits with the fewest cycles
//! ```
//!
//! The code differs from this sketch for the following reasons.
//!
//! 1. **Waves ignore occupancy.** A multiprocessor may hold several blocks, but they share its tensor cores. So a wave
//!    is one tile for each multiprocessor. For example, 2048³ has 128 tiles of 128 × 256: one wave that uses 97 % of
//!    132 multiprocessors. Tiles of 128 × 128 need two waves.
//! 2. **A small block cannot use a multiprocessor alone.** Two warps keep one of four tensor cores busy, so eight warps
//!    are needed. A block of four warps is therefore charged the main loops of two waves even if there is only one.
//! 3. **The main loop takes the maximum of three resources, not their sum,** because loads are pipelined and run while
//!    tensor cores multiply. Shared memory moves 128 bytes a cycle, for what copies write and for what tensor cores
//!    read. A multiprocessor issues 128 instructions of threads a cycle.
//! 4. **Loads by threads are dominated by addresses.** An integer division is about 28 instructions, and a convolution
//!    divides to find a pixel. The counts come from machine code (`sass.py`), because an estimate misled this model:
//!    with 24 instructions for each operand it expected more of wgmma with `cp.async` than of mma.sync. An H100 ran both
//!    equally fast, for example the first weight gradient of SegNet at 43.1 and 42.6 TFLOP/s.
//! 5. **Specialized epilogue warps hide the epilogue.** With TMA and at most 128 columns, they store a tile while the
//!    next one is multiplied. Such a tile costs the longer of the two, and only the last epilogue is exposed.
//! 6. **Long sums must be split.** The accumulators of tensor cores truncate, so sums of one sign drift. Above
//!    `max_accumulation_k` terms a sum is split even if that costs time. Kernels with epilogue warps are exempt,
//!    because they add such partial sums in shared memory themselves.
//! 7. **f16 results may add twice as many terms.** Their own rounding is 2^-11 of a value, beside which the drift of
//!    8192 terms (2^-14) is small. Weight gradients stay in f32, so they do not get this allowance.
//! 8. **Splitting costs a second kernel.** It reads all partial sums, so a launch is added, and the longer of two
//!    times: the traffic at the bandwidth of memory, or the latency of L2 for each group of partial sums.
//! 9. **Few numbers of splits are tried:** those just above the minimum, and those that fill one to four waves. Other
//!    numbers leave a wave partly empty. A test compares this with every number on 300 shapes: the selected one
//!    is within 10 % of the best.
//! 10. **Free memory has no influence, nor has the store.** The number of splits decides the order of a sum, and so its
//!     bits. It depends on the shape, the number of multiprocessors and the total memory alone. For example, a training
//!     that is resumed on the same device has the same bits, whatever else occupies its memory.
//! 11. **The result is a list.** A kernel that only one architecture has is used only after its self test has passed
//!     (`self_test.rs`). So the candidates are returned in their order, down to the first that needs no self test.
//!     The sort is stable: of equal candidates the first wins, and TMA comes before `cp.async`.
//!
//! Only ratios between candidates matter. The constants are those of an H100's multiprocessor, from NVIDIA's documents
//! or counted in machine code. docs/gpu.md has measured times beside such a model. Candidates have not been compared
//! with each other on a device yet, and the figures of other cards have not been checked at all.

use crate::{
    conv_halo::{HaloConv, TILE_RESULTS, TILE_SIDE},
    gemm_problem::{GemmKind, GemmProblem},
    kernels::{
        CONV_HALO, FP8_CONV_TILES, FP8_TILES, Kernel, LARGEST_TILE, MAX_ACCUMULATION_K, MMA_FP8, MMA_FP8_CONV,
        OPERAND_PARTS, TILE_SHAPES, TILE_WARPS, TileShape, UNALIGNED_TILE, WGMMA_BF16X6_CONV,
        WGMMA_BF16X6_CONV_SWAPPED, WGMMA_BF16X6_GEMM, WGMMA_CONV, WGMMA_CONV_SWAPPED, WGMMA_FP8, WGMMA_FP8_TILE,
        WGMMA_TMA_CLUSTER_BLOCKS, WGMMA_TMA_CONV, WGMMA_TMA_CONV_SWAPPED, WGMMA_TMA_GEMM, WGMMA_TMA_TILE_SHAPES,
        WarpGrid,
    },
};
use gradscale_core::{
    ops::{GemmShape, Pass},
    store_format::StoreFormat,
};

mod halo;
#[cfg(test)]
mod tests;

/// Main loop of a GEMM kernel: its multiply instructions, and how operands reach shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MainloopKind {
    /// `wgmma` instructions, whose operand tiles TMA loads to shared memory.
    WgmmaTma,
    /// `wgmma`, with halo tiles of pixels that TMA loads once for all taps.
    WgmmaHalo,
    /// `wgmma`; threads load 8-wide vectors by `cp.async`.
    WgmmaCpAsync,
    /// `wgmma` of the parts of f32 operands, which TMA loads: six products of bfloat16.
    WgmmaBf16x6,
    /// `mma.sync` by a grid of warps; threads load 8-wide vectors.
    MmaSync(WarpGrid),
    /// `mma.sync` by a grid of warps; threads load single elements.
    MmaSyncUnaligned(WarpGrid),
    /// FMA instructions of the SIMT kernel, without tensor cores.
    Simt,
    /// FMA instructions of the SIMT kernel for aligned f32 operands.
    SimtVec4,
}

/// Instructions of a device's tensor cores, each with those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TensorCores {
    /// `mma.sync.m16n8k8` of sm_75.
    M16n8k8,
    /// `mma.sync.m16n8k16`, from sm_80 on.
    M16n8k16,
    /// `wgmma` of sm_90a.
    Wgmma,
}

/// Instructions with which a thread loads an 8-wide vector: its address and its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LoadInstructions {
    /// Instructions for the operand that has the rows of a tile.
    rows: u32,
    /// Instructions for the operand that has the columns of a tile.
    columns: u32,
}

/// Kernel of a GEMM, and the tile of results that one of its blocks computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelConfig {
    pub kernel: &'static Kernel,
    /// Rows and columns of results that a block computes.
    pub tile: TileShape,
    /// Blocks of a cluster. Their tiles are consecutive in m, and they share the columns' operand by multicast.
    pub cluster: u32,
    mainloop: MainloopKind,
    loads: LoadInstructions,
    /// True if the rows of a tile are columns of the result (`operand_swap.cuh`).
    pub swaps_ab: bool,
}

/// Split of the sums over k into parts that different blocks add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitK {
    pub splits: u32,
    /// Terms of a split, a multiple of [`K_TILE`]. The last split may be shorter.
    pub split_len: u32,
    /// Number of cycles of the GEMM that the model expects with this split.
    cycles: u64,
}

/// Shape of a GEMM and the limits on its number of splits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitKConstraints {
    pub shape: GemmShape,
    pub batch: u32,
    /// Maximum number of terms that one accumulator of a tensor core may add.
    pub max_accumulation_k: u32,
    /// Minimum number of splits of the sums over k.
    pub min_splits: u32,
    /// Maximum number of splits, which the workspace of partial sums limits.
    pub max_splits: u32,
}

/// Tile of the kernel without tensor cores (`TILE` of simt.cu).
const SIMT_TILE: TileShape = TileShape::new(64, 64);
/// Tile of the kernel for aligned f32 operands (`TILE` of simt_vec4.cu).
const SIMT_VEC4_TILE: TileShape = TileShape::new(128, 128);
/// Cycles of both kernels without tensor cores in halves of those that their multiplications take. The first reached 10.9
/// of 67 TFLOP/s on an H100 (docs/gpu.md). The second has not been measured; libraries reach three quarters of the peak.
const SIMT_HALF_CYCLES: [u64; 2] = [12, 3];
/// Products of the parts of f32 operands (`PART_PRODUCTS` of wgmma.cuh).
const PART_PRODUCTS: u32 = 6;
/// Bytes that a split of an f32 value moves: it reads the value, and writes its parts.
const SPLIT_BYTES: u64 = 4 + 2 * OPERAND_PARTS as u64;
/// Minimum number of terms of f32 sums on tensor cores. Shorter sums of both signs are a little more exact without them,
/// because additions of tensor cores truncate (`tests/bf16x6.rs`).
pub(crate) const MIN_BF16X6_K: u32 = 256;
/// Minimum number of terms of a split. With fewer, a block would mostly wait: the main loop of 256 terms takes 1024
/// cycles for 128 × 64 results, less than [`BLOCK_OVERHEAD_CYCLES`].
const MIN_SPLIT_K: u32 = 256;
/// Terms of k in one stage of shared memory. Splits are multiples of it.
const K_TILE: u32 = 64;
/// Waves up to which numbers of splits that fill them are tried: with more, a partly filled last wave is at most a
/// fifth of the time.
const MAX_WAVES: u32 = 4;
/// Number of splits above the minimum that are tried.
const EXTRA_SPLITS: u32 = 8;

/// Cycles from the start of a block to its first multiplication, and from its last one to its end: about two
/// latencies of memory. An estimate that was not measured.
const BLOCK_OVERHEAD_CYCLES: u64 = 1500;
/// Results that a multiprocessor stores in a cycle: an epilogue has 10 to 17 instructions for each result (sass.csv),
/// and a multiprocessor issues 128 a cycle.
const STORES_PER_CYCLE: u64 = 8;
/// Sums that a multiprocessor writes to shared memory in a cycle: 128 bytes of f32.
const SMEM_WRITES_PER_CYCLE: u64 = 32;
/// Cycles from the end of a kernel until the next one works: about 2 µs, an estimate that was not measured.
const LAUNCH_CYCLES: u64 = 4000;
/// Bytes of memory for each multiprocessor in a cycle: 3.35 TB/s of an H100 for 132 multiprocessors at 1.6 GHz.
const DRAM_BYTES_PER_SM_CYCLE: u64 = 16;
/// Partial sums that a thread of split_k_reduce.cu loads before it adds the first (`PARTIALS_IN_FLIGHT` there).
const PARTIALS_IN_FLIGHT: u32 = 8;
/// Latency of L2 in cycles: approximately the published value of an H100, not measured here.
const L2_LATENCY_CYCLES: u64 = 300;

/// Returns the instructions that load an 8-wide vector of a (`rows`) and of b (`columns`).
///
/// `sass.py` counts them in machine code (`copies of` in sass.csv). The counts of three tiles of each pass are solved
/// for both operands. A division is about 28 instructions: an element of x needs two, one of dy four in the data pass,
/// a weight there one.
const fn load_instructions(kind: GemmKind) -> LoadInstructions {
    let [rows, columns] = match kind {
        GemmKind::Matmul(_) => [17, 17],
        GemmKind::Conv(Pass::Forward) => [78, 12],
        GemmKind::Conv(Pass::Data) => [106, 56],
        GemmKind::Conv(Pass::Weight) => [22, 78],
    };
    LoadInstructions { rows, columns }
}

/// Pairs of formats of products of operands of eight bits.
pub(crate) const EIGHT_BIT_FORMATS: [[StoreFormat; 2]; 4] = [
    [StoreFormat::E5m2, StoreFormat::E5m2],
    [StoreFormat::E5m2, StoreFormat::E4m3],
    [StoreFormat::E4m3, StoreFormat::E5m2],
    [StoreFormat::E4m3, StoreFormat::E4m3],
];

/// Returns the indices of the formats of a and b in tables of kernels for eight bits.
fn format_indices(formats: [StoreFormat; 2]) -> [usize; 2] {
    formats.map(|format| usize::from(format == StoreFormat::E4m3))
}

/// Returns candidates down to the first that needs no self-test.
fn down_to_safe(mut candidates: Vec<KernelConfig>) -> Vec<KernelConfig> {
    let safe = candidates.iter().position(|config| !config.is_arch_specific()).unwrap_or(0);
    candidates.truncate(safe + 1);
    candidates
}

impl SplitK {
    /// Returns the only split of k terms, whose cycles nobody compares.
    pub const fn unsplit(k: u32) -> Self {
        Self { splits: 1, split_len: k, cycles: 0 }
    }
}

impl SplitKConstraints {
    /// Limits for a problem whose partial sums have `workspace_bytes` bytes.
    ///
    /// Neither the store nor free memory has an influence, so sums have the same bits with every store and in every run
    /// on a device.
    pub fn new(problem: &GemmProblem, workspace_bytes: usize) -> Self {
        let shape = problem.shape;
        // The reduction of splits drops columns of padding, so there must be one.
        let min_splits = problem.min_splits.max(if problem.stored_columns < shape.n { 2 } else { 1 });
        // Weight gradients stay in f32; other results are rounded to f16, whose error hides more drift.
        let max_accumulation_k = match problem.kind {
            GemmKind::Matmul([true, _]) | GemmKind::Conv(Pass::Weight) => MAX_ACCUMULATION_K,
            GemmKind::Matmul([false, _]) | GemmKind::Conv(Pass::Forward | Pass::Data) => 2 * MAX_ACCUMULATION_K,
        };
        let constraints = Self { shape, batch: problem.batch, max_accumulation_k, min_splits, max_splits: 1 };
        let max_by_workspace = workspace_bytes / (4 * constraints.result_count()).max(1);
        Self {
            max_splits: u32::try_from(max_by_workspace).unwrap_or(u32::MAX).min(shape.k.div_ceil(MIN_SPLIT_K)),
            ..constraints
        }
    }

    /// Returns the number of results of all matrices of the batch.
    pub fn result_count(&self) -> usize {
        self.shape.m as usize * self.shape.n as usize * self.batch as usize
    }
}

impl KernelConfig {
    /// Returns the kernel without tensor cores for operands of any type and alignment.
    pub fn simt_unaligned(problem: &GemmProblem) -> Self {
        let loads = LoadInstructions { rows: 24, columns: 24 };
        let mainloop = MainloopKind::Simt;
        Self { kernel: problem.simt, tile: SIMT_TILE, cluster: 1, mainloop, loads, swaps_ab: false }
    }

    /// Returns the kernel without tensor cores: one for operands of any type, or one for aligned f32 operands.
    pub fn simt(problem: &GemmProblem, has_f32_operands: bool, workspace_bytes: usize, multiprocessors: u32) -> Self {
        let simt = Self::simt_unaligned(problem);
        if !has_f32_operands || !problem.is_vec4 {
            return simt;
        }
        let (kernel, mainloop) = (problem.kind.simt_vec4_kernel(), MainloopKind::SimtVec4);
        let vec4 = Self { kernel, tile: SIMT_VEC4_TILE, mainloop, ..simt };
        // Large tiles leave multiprocessors idle where results are few.
        let [simt_cycles, vec4_cycles] =
            [simt, vec4].map(|config| config.simt_cycles(problem, workspace_bytes, multiprocessors));
        if vec4_cycles <= simt_cycles { vec4 } else { simt }
    }

    /// Returns the modelled cycles of a kernel without tensor cores.
    fn simt_cycles(&self, problem: &GemmProblem, workspace_bytes: usize, multiprocessors: u32) -> u64 {
        let half_cycles = SIMT_HALF_CYCLES[usize::from(self.mainloop == MainloopKind::SimtVec4)];
        half_cycles * self.cycles(problem, workspace_bytes, multiprocessors) / 2
    }

    /// Returns the kernels for f32 operands as three bfloat16 each, for compute capability 9.0 alone.
    pub fn bf16x6_candidates(kind: GemmKind) -> Vec<Self> {
        let config = |kernel, tile, swaps_ab| Self {
            kernel,
            tile,
            cluster: 1,
            mainloop: MainloopKind::WgmmaBf16x6,
            loads: LoadInstructions { rows: 0, columns: 0 },
            swaps_ab,
        };
        let (kernels, swapped) = match kind {
            GemmKind::Matmul(_) => (&WGMMA_BF16X6_GEMM[kind.index()], None),
            GemmKind::Conv(pass) => {
                (&WGMMA_BF16X6_CONV[kind.index()], (pass == Pass::Weight).then_some(&WGMMA_BF16X6_CONV_SWAPPED[0]))
            }
        };
        let tiles = kernels.iter().zip([TILE_SHAPES[0], TILE_SHAPES[1]]);
        let swapped = swapped.map(|kernel| config(kernel, TILE_SHAPES[1], true));
        tiles.map(|(kernel, tile)| config(kernel, tile, false)).chain(swapped).collect()
    }

    /// Returns the kernels for f32 operands on tensor cores that are faster than one without, in the order of their modelled
    /// time. It includes the split of both operands.
    pub fn bf16x6_faster_than_simt(problem: &GemmProblem, workspace_bytes: usize, multiprocessors: u32) -> Vec<Self> {
        let is_loadable = problem.is_vectorizable
            && problem.shape.k >= MIN_BF16X6_K
            && match problem.kind {
                GemmKind::Matmul(_) => problem.has_tma_tiles(),
                GemmKind::Conv(_) => problem.im2col.is_some(),
            };
        if !is_loadable {
            return vec![];
        }
        let simt = Self::simt(problem, true, workspace_bytes, multiprocessors);
        let simt_cycles = simt.simt_cycles(problem, workspace_bytes, multiprocessors);
        let split_bytes = SPLIT_BYTES * (problem.lens[0] + problem.lens[1]) as u64;
        let split_cycles = 2 * LAUNCH_CYCLES + split_bytes / (DRAM_BYTES_PER_SM_CYCLE * u64::from(multiprocessors));
        let cycles = |config: &Self| split_cycles + config.cycles(problem, workspace_bytes, multiprocessors);
        let mut candidates = Self::bf16x6_candidates(problem.kind);
        candidates.retain(|config| cycles(config) < simt_cycles);
        candidates.sort_by_cached_key(cycles);
        candidates
    }

    /// Returns true if the kernel multiplies the parts of f32 operands.
    pub fn is_bf16x6(&self) -> bool {
        self.mainloop == MainloopKind::WgmmaBf16x6
    }

    /// Returns the kernel for f16 operands of any alignment, on every device. It is the simplest one with tensor cores,
    /// and the reference of self tests.
    pub fn mma_sync_unaligned(kind: GemmKind) -> Self {
        Self {
            kernel: &kind.mma_sync_kernels()[UNALIGNED_TILE],
            tile: TILE_SHAPES[UNALIGNED_TILE],
            cluster: 1,
            mainloop: MainloopKind::MmaSyncUnaligned(TILE_WARPS[UNALIGNED_TILE]),
            loads: load_instructions(kind),
            swaps_ab: false,
        }
    }

    /// Returns the kernels for packed operands of eight bits, whose problem counts k in pairs of bytes, in the order of their
    /// modelled time, down to the first that needs no self-test.
    ///
    /// Tensor cores multiply two pairs of bytes in the time of two halves, so the model is that of halves with pairs.
    pub fn fp8_candidates(
        problem: &GemmProblem, formats: [StoreFormat; 2], workspace_bytes: usize, multiprocessors: u32,
        has_warpgroups: bool,
    ) -> Vec<Self> {
        let [a, b] = format_indices(formats);
        // Both passes of a convolution gather pixels as the forward pass of halves.
        let (kernels, tiles, gather) = match problem.kind {
            GemmKind::Matmul(_) => (&MMA_FP8, FP8_TILES, problem.kind),
            GemmKind::Conv(_) => (&MMA_FP8_CONV, FP8_CONV_TILES, GemmKind::Conv(Pass::Forward)),
        };
        let mma_sync = |i: usize| Self {
            kernel: &kernels[a][b][i],
            tile: tiles[i].0,
            cluster: 1,
            mainloop: MainloopKind::MmaSync(tiles[i].1),
            loads: load_instructions(gather),
            swaps_ab: false,
        };
        let is_matmul = matches!(problem.kind, GemmKind::Matmul(_));
        let warpgroups = is_matmul && has_warpgroups && problem.has_tma_tiles();
        let wgmma = warpgroups.then(|| Self::wgmma_fp8(formats));
        let mut candidates: Vec<Self> = wgmma.into_iter().chain([0, 1].map(mma_sync)).collect();
        candidates.sort_by_cached_key(|config| config.cycles(problem, workspace_bytes, multiprocessors));
        down_to_safe(candidates)
    }

    /// Returns the formats of the operands of a kernel for eight bits by warpgroups; `None` for other kernels.
    pub fn eight_bit_formats(&self) -> Option<[StoreFormat; 2]> {
        let is_own = |formats: &[StoreFormat; 2]| core::ptr::eq(self.kernel, Self::wgmma_fp8(*formats).kernel);
        EIGHT_BIT_FORMATS.into_iter().find(is_own)
    }

    /// Returns the kernel for operands of eight bits by warpgroups, for compute capability 9.0 alone.
    pub fn wgmma_fp8(formats: [StoreFormat; 2]) -> Self {
        let [a, b] = format_indices(formats);
        Self {
            kernel: &WGMMA_FP8[a][b],
            tile: WGMMA_FP8_TILE,
            cluster: 1,
            mainloop: MainloopKind::WgmmaTma,
            loads: LoadInstructions { rows: 0, columns: 0 },
            swaps_ab: false,
        }
    }

    /// Returns the kernels for f16 operands in aligned 8-wide vectors, for every device.
    fn mma_sync_candidates(kind: GemmKind, tensor_cores: TensorCores) -> Vec<Self> {
        let with_tile = |i: usize| Self {
            kernel: &kind.mma_sync_kernels()[i],
            tile: TILE_SHAPES[i],
            cluster: 1,
            mainloop: MainloopKind::MmaSync(TILE_WARPS[i]),
            loads: load_instructions(kind),
            swaps_ab: false,
        };
        // The accumulators of the largest tile do not fit the shared memory of sm_75 on their way to the store.
        let largest = (tensor_cores != TensorCores::M16n8k8).then_some(LARGEST_TILE);
        [0, 1, 2, 3].into_iter().chain(largest).map(with_tile).collect()
    }

    /// Returns the kernel of a pass by halo tiles, for compute capability 9.0 alone; `None` for the gradient of weights.
    fn halo(pass: Pass) -> Option<Self> {
        let kernel = match pass {
            Pass::Forward => &CONV_HALO[0],
            Pass::Data => &CONV_HALO[1],
            Pass::Weight => return None,
        };
        let (tile, loads) =
            (TileShape::new(TILE_SIDE * TILE_SIDE, TILE_RESULTS), LoadInstructions { rows: 0, columns: 0 });
        Some(Self { kernel, tile, cluster: 1, mainloop: MainloopKind::WgmmaHalo, loads, swaps_ab: false })
    }

    /// Returns the kernel that computes a problem by halo tiles, if it can.
    pub fn halo_of(problem: &GemmProblem) -> Option<Self> {
        match problem.kind {
            GemmKind::Conv(pass) => Self::halo(pass).filter(|_| HaloConv::new(problem).is_some()),
            GemmKind::Matmul(_) => None,
        }
    }

    /// Returns the kernels for compute capability 9.0 alone, those that load by TMA first.
    pub fn wgmma_candidates(kind: GemmKind) -> Vec<Self> {
        let i = kind.index();
        let with_tiles = |kernels: &'static [Kernel], tiles: [TileShape; 2], mainloop, swaps_ab| {
            let LoadInstructions { rows, columns } = load_instructions(kind);
            let loads = if swaps_ab {
                LoadInstructions { rows: columns, columns: rows }
            } else {
                LoadInstructions { rows, columns }
            };
            let config = move |(kernel, tile)| Self { kernel, tile, cluster: 1, mainloop, loads, swaps_ab };
            kernels.iter().zip(tiles).map(config)
        };
        let (small_tiles, narrow_tiles) = ([TILE_SHAPES[0], TILE_SHAPES[1]], [TILE_SHAPES[1]; 2]);
        match kind {
            GemmKind::Matmul(_) => with_tiles(&WGMMA_TMA_GEMM[i], WGMMA_TMA_TILE_SHAPES, MainloopKind::WgmmaTma, false)
                .zip(WGMMA_TMA_CLUSTER_BLOCKS)
                .map(|(config, cluster)| Self { cluster, ..config })
                .collect(),
            GemmKind::Conv(pass) => {
                let last = usize::from(pass == Pass::Weight);
                with_tiles(&WGMMA_TMA_CONV[i], small_tiles, MainloopKind::WgmmaTma, false)
                    .chain(with_tiles(&WGMMA_TMA_CONV_SWAPPED[..last], narrow_tiles, MainloopKind::WgmmaTma, true))
                    .chain(Self::halo(pass))
                    .chain(with_tiles(&WGMMA_CONV[i], small_tiles, MainloopKind::WgmmaCpAsync, false))
                    .chain(with_tiles(&WGMMA_CONV_SWAPPED[..last], narrow_tiles, MainloopKind::WgmmaCpAsync, true))
                    .collect()
            }
        }
    }

    /// Returns the kernels for f16 operands in the order of their modelled time, down to the first that needs no self
    /// test.
    pub fn candidates(
        problem: &GemmProblem, workspace_bytes: usize, multiprocessors: u32, tensor_cores: TensorCores,
    ) -> Vec<Self> {
        if !problem.is_vectorizable {
            return vec![Self::mma_sync_unaligned(problem.kind)];
        }
        // A tensor map needs at least one element.
        let empty = problem.shape.k == 0 || problem.lens[..2].contains(&0);
        let by_tma = !empty
            && match problem.kind {
                GemmKind::Matmul(_) => problem.has_tma_tiles(),
                GemmKind::Conv(_) => problem.im2col.is_some(),
            };
        let arch_specific =
            if tensor_cores == TensorCores::Wgmma { Self::wgmma_candidates(problem.kind) } else { vec![] };
        let computes = |config: &Self| match config.mainloop {
            MainloopKind::WgmmaTma | MainloopKind::WgmmaBf16x6 => by_tma,
            MainloopKind::WgmmaHalo => HaloConv::new(problem).is_some(),
            MainloopKind::WgmmaCpAsync
            | MainloopKind::MmaSync(_)
            | MainloopKind::MmaSyncUnaligned(_)
            | MainloopKind::Simt
            | MainloopKind::SimtVec4 => true,
        };
        let arch_specific = arch_specific.into_iter().filter(computes);
        let mut candidates: Vec<Self> =
            arch_specific.chain(Self::mma_sync_candidates(problem.kind, tensor_cores)).collect();
        // Stable: of two that take as long, the one listed first wins.
        candidates.sort_by_cached_key(|config| config.cycles(problem, workspace_bytes, multiprocessors));
        down_to_safe(candidates)
    }

    /// Returns the problem as the kernel computes it: by TMA in whole boxes of channels.
    pub fn problem(&self, problem: &GemmProblem) -> GemmProblem {
        if self.is_tma() { problem.in_whole_boxes() } else { *problem }
    }

    /// Returns the modelled cycles of a problem.
    fn cycles(&self, problem: &GemmProblem, workspace_bytes: usize, multiprocessors: u32) -> u64 {
        if self.is_halo() {
            return HaloConv::new(problem).map_or(u64::MAX, |conv| halo::cycles(&conv, multiprocessors));
        }
        let constraints = SplitKConstraints::new(&self.problem(problem), workspace_bytes);
        self.split_k(&constraints, multiprocessors).cycles
    }

    /// Returns true if a product is faster with aligned copies of its operands, which have `copied_bytes` bytes, than
    /// with the kernel for operands of any alignment.
    pub fn is_copy_faster(
        [unaligned, aligned]: [&GemmProblem; 2], copied_bytes: u64, workspace_bytes: usize, multiprocessors: u32,
        tensor_cores: TensorCores,
    ) -> bool {
        let now = Self::mma_sync_unaligned(unaligned.kind).cycles(unaligned, workspace_bytes, multiprocessors);
        let candidates = Self::candidates(aligned, workspace_bytes, multiprocessors, tensor_cores);
        // A copy is about as long as its operand, so the bytes are read and written, and there may be two launches.
        let traffic_cycles = 2 * copied_bytes / (DRAM_BYTES_PER_SM_CYCLE * u64::from(multiprocessors));
        let copied = candidates.first().map(|config| config.cycles(aligned, workspace_bytes, multiprocessors));
        copied.is_some_and(|cycles| cycles + 2 * LAUNCH_CYCLES + traffic_cycles < now)
    }

    /// Returns true if the kernel computes a convolution from halo tiles.
    pub fn is_halo(&self) -> bool {
        self.mainloop == MainloopKind::WgmmaHalo
    }

    /// Returns true if the kernel loads tiles of both operands by TMA, in whole boxes of channels.
    pub fn is_tma(&self) -> bool {
        matches!(self.mainloop, MainloopKind::WgmmaTma | MainloopKind::WgmmaBf16x6)
    }

    /// Returns whether separate warps store results (`WARP_SPECIALIZED_EPILOGUE` of wgmma_tma.cu).
    ///
    /// The warps that multiply then go on with the next tile, and they add the parts of long sums in shared memory.
    pub fn has_store_warps(&self) -> bool {
        self.mainloop == MainloopKind::WgmmaTma && self.tile.n <= 128
    }

    /// Returns true if the kernel adds parts of long sums, so that no accumulator of tensor cores has all of them.
    fn adds_partial_sums(&self) -> bool {
        self.has_store_warps() || self.is_bf16x6()
    }

    /// Returns true if the kernel exists for one compute capability only.
    pub fn is_arch_specific(&self) -> bool {
        self.is_tma() || matches!(self.mainloop, MainloopKind::WgmmaHalo | MainloopKind::WgmmaCpAsync)
    }

    /// Returns the number of tiles of a cluster that the results fill.
    fn tile_count(&self, shape: GemmShape, batch: u32) -> u32 {
        let (rows, columns) = if self.swaps_ab { (shape.n, shape.m) } else { (shape.m, shape.n) };
        rows.div_ceil(self.tile.m * self.cluster) * columns.div_ceil(self.tile.n) * batch
    }

    /// Returns the blocks of a launch: one for each tile, or with TMA one persistent block for each multiprocessor.
    pub fn block_count(&self, constraints: &SplitKConstraints, split_k: &SplitK, multiprocessors: u32) -> u32 {
        let tiles = self.tile_count(constraints.shape, constraints.batch) * split_k.splits;
        self.cluster * if self.is_tma() { tiles.min(self.max_resident_tiles(multiprocessors)) } else { tiles }
    }

    /// Returns the number of tiles in a wave.
    fn max_resident_tiles(&self, multiprocessors: u32) -> u32 {
        (multiprocessors / self.cluster).max(1)
    }

    /// Returns the rows and columns that one TMA load brings, each for [`K_TILE`] of k. A cluster shares the columns.
    pub fn tma_tile(&self) -> TileShape {
        TileShape::new(self.tile.m, self.tile.n / self.cluster)
    }

    /// Returns the cycles of a multiprocessor for one tile and [`K_TILE`] of k.
    fn cycles_per_k_tile(&self) -> u64 {
        let TileShape { m, n } = self.tile;
        // Products of parts of the operands, and parts.
        let (products, parts) = if self.is_bf16x6() { (PART_PRODUCTS, OPERAND_PARTS) } else { (1, 1) };
        // Multiplications a cycle, groups that each read their share of both operands, loads for an 8-wide vector.
        let (rate, groups, loads) = match self.mainloop {
            MainloopKind::WgmmaTma | MainloopKind::WgmmaHalo | MainloopKind::WgmmaBf16x6 => {
                (2048, WarpGrid::new(m / 64, 1), 0)
            }
            MainloopKind::WgmmaCpAsync => (2048, WarpGrid::new(m / 64, 1), 1),
            MainloopKind::MmaSync(warps) => (1024, warps, 1),
            MainloopKind::MmaSyncUnaligned(warps) => (1024, warps, 8),
            MainloopKind::Simt | MainloopKind::SimtVec4 => (128, WarpGrid::new(1, 1), 1),
        };
        let tensor_cores = products * m * n * K_TILE / rate;
        let shared_memory = (products * (groups.n * m + groups.m * n) + parts * (m + n)) * K_TILE * 2 / 128;
        let issue = (m * self.loads.rows + n * self.loads.columns) * K_TILE / 8 * loads / 128;
        u64::from(tensor_cores.max(shared_memory).max(issue))
    }

    /// Returns the division into splits with the fewest cycles, of those that are worth a try.
    pub fn split_k(&self, constraints: &SplitKConstraints, multiprocessors: u32) -> SplitK {
        let tiles = self.tile_count(constraints.shape, constraints.batch).max(1);
        let min_accumulations =
            if self.adds_partial_sums() { 1 } else { constraints.shape.k.div_ceil(constraints.max_accumulation_k) };
        let min_splits = constraints.min_splits.max(min_accumulations).max(1);
        let max_splits = constraints.max_splits.max(min_splits);
        let waves = (1..=MAX_WAVES)
            .map(|waves| (waves * self.max_resident_tiles(multiprocessors) / tiles).clamp(min_splits, max_splits));
        let near_minimum = min_splits..=max_splits.min(min_splits + EXTRA_SPLITS);
        let splits_tried =
            near_minimum.chain(waves).map(|splits| self.split_into(splits, constraints, multiprocessors));
        splits_tried
            .min_by_key(|split_k| (split_k.cycles, split_k.splits))
            .unwrap_or_else(|| self.split_into(min_splits, constraints, multiprocessors))
    }

    /// Returns the division into about `splits` splits, and its cycles.
    fn split_into(&self, splits: u32, constraints: &SplitKConstraints, multiprocessors: u32) -> SplitK {
        let k = constraints.shape.k;
        // Whole K tiles, as `max_accumulation_k` is.
        let split_len = k.div_ceil(splits).next_multiple_of(K_TILE).max(K_TILE);
        let splits = k.div_ceil(split_len).max(1);
        let tiles = u64::from(self.tile_count(constraints.shape, constraints.batch)) * u64::from(splits);
        let result_count = u64::from(self.tile.m * self.tile.n);
        let mainloop_cycles = u64::from(split_len / K_TILE) * self.cycles_per_k_tile();
        // Reason 2 above.
        let min_waves = match self.mainloop {
            MainloopKind::MmaSync(warps) | MainloopKind::MmaSyncUnaligned(warps) => 8 / u64::from(warps.m * warps.n),
            MainloopKind::WgmmaTma
            | MainloopKind::WgmmaHalo
            | MainloopKind::WgmmaCpAsync
            | MainloopKind::WgmmaBf16x6
            | MainloopKind::Simt
            | MainloopKind::SimtVec4 => 1,
        };
        let waves = tiles.div_ceil(u64::from(self.max_resident_tiles(multiprocessors)));
        // Each partial sum is written once and read once.
        let partial_bytes = 8 * u64::from(splits) * constraints.result_count() as u64;
        let traffic_cycles = partial_bytes / (DRAM_BYTES_PER_SM_CYCLE * u64::from(multiprocessors));
        let reduction_cycles = if splits == 1 {
            0
        } else {
            LAUNCH_CYCLES + traffic_cycles.max(u64::from(splits.div_ceil(PARTIALS_IN_FLIGHT)) * L2_LATENCY_CYCLES)
        };
        let cycles = if self.has_store_warps() {
            // Reason 5 above.
            let between = (mainloop_cycles + result_count / SMEM_WRITES_PER_CYCLE).max(result_count / STORES_PER_CYCLE);
            BLOCK_OVERHEAD_CYCLES
                + waves.saturating_sub(1) * between
                + mainloop_cycles
                + result_count / STORES_PER_CYCLE
        } else {
            waves.max(min_waves) * mainloop_cycles + waves * (BLOCK_OVERHEAD_CYCLES + result_count / STORES_PER_CYCLE)
        };
        SplitK { splits, split_len, cycles: cycles + reduction_cycles }
    }
}
