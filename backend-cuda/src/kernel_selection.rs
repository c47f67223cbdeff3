//! Which kernel makes a product, and in how many splits its sums are cut: what a small model of the device says takes the
//! fewest clocks.
//!
//! The model. Blocks go over the multiprocessors evenly, so a device with M of them is done after ⌈tiles · splits / M⌉
//! rounds, however many blocks one of them holds: those that it holds share its tensor cores. 2048³ in tiles of 128 × 256
//! is 128 tiles: one round on 132 multiprocessors, 97 % of it used, where tiles of 128 × 128 take two. What a tile takes
//! in a round is the length of its sums times the slowest of three: the tensor cores, the shared memory (what copies write
//! there and what tensor cores read, 128 bytes a clock), and the instructions of copies that threads ask for (128 a
//! clock), most of which find the address: convolutions divide for it, gradients of weights twice for eight elements of x. Then come the results, each some instructions: while tensor cores wait, or, where a group of warps does nothing
//! else, beside the next tile. Partial sums are written and read once more by one launch more.
//!
//! Only ratios matter. They are those of an H100's multiprocessor as its manual has it. What one took beside such a model is
//! in docs/gpu.md; ways were not compared with each other there.

use crate::{
    gemm_problem::{GemmKind, GemmProblem},
    kernels::{
        Kernel, MAX_ACCUMULATION_K, TILE_SHAPES, TILE_WARPS, WGMMA_CONV, WGMMA_CONV_SWAPPED, WGMMA_TMA_CLUSTER_BLOCKS,
        WGMMA_TMA_CONV, WGMMA_TMA_CONV_SWAPPED, WGMMA_TMA_GEMM, WGMMA_TMA_TILE_SHAPES,
    },
};
use gradscale_core::ops::Pass;

#[cfg(test)]
mod tests;

/// Who multiplies, and who brings operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MainloopKind {
    /// Warpgroups; TMA.
    WgmmaTma,
    /// Warpgroups; threads, eight halves at a time.
    WgmmaCpAsync,
    /// So many warps along each side; threads, eight halves at a time.
    MmaSync([u32; 2]),
    /// As before, but one element at a time.
    MmaSyncUnaligned([u32; 2]),
    /// Threads, without tensor cores.
    Simt,
}

/// How a product runs: the kernel, and the results of one of its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelConfig {
    pub kernel: &'static Kernel,
    /// Rows and columns of a block's results.
    pub tile: [u32; 2],
    /// Blocks of a cluster, whose results stand below each other; they share the columns' operand.
    pub cluster: u32,
    mainloop: MainloopKind,
    /// Instructions of a thread that brings eight elements, of rows' operand and of columns'.
    copy_instructions: [u32; 2],
    /// Whether a tile's rows are columns of the result (`operand_swap.cuh`).
    pub swaps_ab: bool,
}

/// How sums are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitK {
    pub splits: u32,
    /// Length of a split, a multiple of 64; the last may be shorter.
    pub split_len: u32,
    cycles: u64,
}

/// What a product asks for, beside its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitKConstraints {
    pub mnk: [u32; 3],
    pub batch: u32,
    /// Longest sum of one accumulator.
    pub max_accumulation_k: u32,
    /// Splits that must be, and splits for which there is room.
    pub min_splits: u32,
    pub max_splits: u32,
}

/// Results along each side of the plain kernel's block.
const SIMT_TILE: [u32; 2] = [64, 64];
/// Shortest split of a sum worth a block.
const MIN_SPLIT_K: u32 = 256;
/// Of k in one stage of a kernel.
const K_TILE: u32 = 64;
/// Rounds that are tried, and splits more than need be: beyond that they are even anyway.
const MAX_WAVES: u32 = 4;
const EXTRA_SPLITS: u32 = 8;

/// Clocks from a block's begin until its tensor cores work, and from its last product until it ends.
const BLOCK_OVERHEAD_CYCLES: u64 = 1500;
/// Results that a multiprocessor stores in a clock, and sums that it takes into shared memory: 128 bytes.
const STORES_PER_CYCLE: u64 = 8;
const SMEM_WRITES_PER_CYCLE: u64 = 32;
/// Clocks of a launch, and bytes from memory for each multiprocessor in a clock.
const LAUNCH_CYCLES: u64 = 4000;
const DRAM_BYTES_PER_SM_CYCLE: u64 = 16;
/// Parts that a thread of split_k_reduce.cu has under way (`PARTIALS_IN_FLIGHT` there), and the clocks until L2 has answered: about what is
/// published of an H100, not measured here.
const PARTIALS_IN_FLIGHT: u32 = 8;
const L2_LATENCY_CYCLES: u64 = 300;

/// Instructions of a thread that brings eight elements of a and of b, address and copy. As sass.py counts them in machine
/// code (`copies of` in sass.csv), solved for both operands of the three tiles of each pass: a division is about 28, of
/// which an element of x takes two, of dy four in the data pass, of weights there one.
const fn copy_instructions(kind: GemmKind) -> [u32; 2] {
    match kind {
        GemmKind::Matmul(_) => [17, 17],
        GemmKind::Conv(Pass::Forward) => [78, 12],
        GemmKind::Conv(Pass::Data) => [106, 56],
        GemmKind::Conv(Pass::Weight) => [22, 78],
    }
}

impl SplitKConstraints {
    /// Of a product, of which no more splits are taken than `room` bytes hold partial sums of. What is stored, and how, has
    /// no say, nor has free memory: sums have the same bits with every store, and in every run on a device.
    pub fn of(problem: &GemmProblem, workspace_bytes: usize) -> Self {
        let [m, n, k] = problem.mnk;
        // Columns that are not kept are left out where splits are added.
        let min_splits = if problem.stored_columns < n { 2 } else { 1 };
        // Gradients of weights stay in f32. What is no such gradient becomes a half as a rule, whose own rounding is 2^-11
        // of it, beside which what twice as many terms drift (2^-14) is little.
        let max_accumulation_k = match problem.kind {
            GemmKind::Matmul([true, _]) | GemmKind::Conv(Pass::Weight) => MAX_ACCUMULATION_K,
            GemmKind::Matmul([false, _]) | GemmKind::Conv(Pass::Forward | Pass::Data) => 2 * MAX_ACCUMULATION_K,
        };
        let constraints = Self { mnk: [m, n, k], batch: problem.batch, max_accumulation_k, min_splits, max_splits: 1 };
        let max_by_workspace = workspace_bytes / (4 * constraints.result_count()).max(1);
        Self {
            max_splits: u32::try_from(max_by_workspace).unwrap_or(u32::MAX).min(k.div_ceil(MIN_SPLIT_K)),
            ..constraints
        }
    }

    /// How many results there are.
    pub fn result_count(&self) -> usize {
        self.mnk[0] as usize * self.mnk[1] as usize * self.batch as usize
    }
}

impl KernelConfig {
    /// Numbers of any type.
    pub fn simt(kernel: &'static Kernel) -> Self {
        Self {
            kernel,
            tile: SIMT_TILE,
            cluster: 1,
            mainloop: MainloopKind::Simt,
            copy_instructions: [24; 2],
            swaps_ab: false,
        }
    }

    /// Halves of any alignment, on every device: the simplest way by tensor cores.
    pub fn mma_sync_unaligned(kind: GemmKind) -> Self {
        let mainloop = MainloopKind::MmaSyncUnaligned(TILE_WARPS[4]);
        let copy_instructions = copy_instructions(kind);
        Self {
            kernel: &kind.mma_sync_kernels()[4],
            tile: TILE_SHAPES[4],
            cluster: 1,
            mainloop,
            copy_instructions,
            swaps_ab: false,
        }
    }

    /// Halves in aligned eights, on every device.
    fn mma_sync_candidates(kind: GemmKind) -> [Self; 4] {
        let of = |i: usize| Self {
            kernel: &kind.mma_sync_kernels()[i],
            tile: TILE_SHAPES[i],
            cluster: 1,
            mainloop: MainloopKind::MmaSync(TILE_WARPS[i]),
            copy_instructions: copy_instructions(kind),
            swaps_ab: false,
        };
        [0, 1, 2, 3].map(of)
    }

    /// The ways for one architecture: by warpgroups, with operands by TMA before those that threads bring.
    pub fn wgmma_candidates(kind: GemmKind) -> Vec<Self> {
        let i = kind.index();
        let of = |kernels: &'static [Kernel], tiles: [[u32; 2]; 2], mainloop, swaps_ab| {
            let [a, b] = copy_instructions(kind);
            let copy_instructions = if swaps_ab { [b, a] } else { [a, b] };
            let config = move |(kernel, tile)| Self { kernel, tile, cluster: 1, mainloop, copy_instructions, swaps_ab };
            kernels.iter().zip(tiles).map(config)
        };
        let (small_tiles, narrow_tiles) = ([TILE_SHAPES[0], TILE_SHAPES[1]], [TILE_SHAPES[1]; 2]);
        match kind {
            GemmKind::Matmul(_) => of(&WGMMA_TMA_GEMM[i], WGMMA_TMA_TILE_SHAPES, MainloopKind::WgmmaTma, false)
                .zip(WGMMA_TMA_CLUSTER_BLOCKS)
                .map(|(config, cluster)| Self { cluster, ..config })
                .collect(),
            GemmKind::Conv(pass) => {
                let last = usize::from(pass == Pass::Weight);
                of(&WGMMA_TMA_CONV[i], small_tiles, MainloopKind::WgmmaTma, false)
                    .chain(of(&WGMMA_TMA_CONV_SWAPPED[..last], narrow_tiles, MainloopKind::WgmmaTma, true))
                    .chain(of(&WGMMA_CONV[i], small_tiles, MainloopKind::WgmmaCpAsync, false))
                    .chain(of(&WGMMA_CONV_SWAPPED[..last], narrow_tiles, MainloopKind::WgmmaCpAsync, true))
                    .collect()
            }
        }
    }

    /// All ways for halves whose product `plan` is on a device, the best first. Those for one architecture have to be
    /// proven; the last needs no proof.
    pub fn candidates(
        problem: &GemmProblem, constraints: &SplitKConstraints, multiprocessors: u32, wgmma_candidates: bool,
    ) -> Vec<Self> {
        if !problem.is_vectorizable {
            return vec![Self::mma_sync_unaligned(problem.kind)];
        }
        // TMA knows no tensors without elements.
        let empty = constraints.mnk[2] == 0 || problem.lens[..2].contains(&0);
        let by_tma = !empty
            && match problem.kind {
                GemmKind::Matmul(_) => problem.has_tma_tiles(),
                GemmKind::Conv(_) => problem.im2col.is_some(),
            };
        let arch_specific = if wgmma_candidates { Self::wgmma_candidates(problem.kind) } else { vec![] };
        let arch_specific =
            arch_specific.into_iter().filter(|config| by_tma || config.mainloop != MainloopKind::WgmmaTma);
        let mut candidates: Vec<Self> = arch_specific.chain(Self::mma_sync_candidates(problem.kind)).collect();
        // Stable: of two that take as long the one that was named first is taken.
        candidates.sort_by_cached_key(|config| config.split_k(constraints, multiprocessors).cycles);
        let safe = candidates.iter().position(|config| !config.is_arch_specific()).unwrap_or(0);
        candidates.truncate(safe + 1);
        candidates
    }

    /// Whether operands come by TMA.
    pub fn is_tma(&self) -> bool {
        self.mainloop == MainloopKind::WgmmaTma
    }

    /// Whether threads that do nothing else store, so that those that multiply go on with the next tile; these also add
    /// parts of long sums themselves (`APART` of wgmma_tma.cu).
    pub fn has_store_warps(&self) -> bool {
        self.is_tma() && self.tile[1] <= 128
    }

    /// Whether one architecture alone has it.
    pub fn is_arch_specific(&self) -> bool {
        matches!(self.mainloop, MainloopKind::WgmmaTma | MainloopKind::WgmmaCpAsync)
    }

    /// How many tiles of a cluster so many results fill.
    fn tiles(&self, [mut m, mut n, _]: [u32; 3], batch: u32) -> u32 {
        if self.swaps_ab {
            (m, n) = (n, m);
        }
        m.div_ceil(self.tile[0] * self.cluster) * n.div_ceil(self.tile[1]) * batch
    }

    /// Blocks of a launch: one for each tile, or with TMA one for each multiprocessor, which goes from tile to tile.
    pub fn blocks(&self, constraints: &SplitKConstraints, split_k: &SplitK, multiprocessors: u32) -> u32 {
        let tiles = self.tiles(constraints.mnk, constraints.batch) * split_k.splits;
        self.cluster * if self.is_tma() { tiles.min(self.max_resident_tiles(multiprocessors)) } else { tiles }
    }

    /// Tiles that a device works on at once.
    fn max_resident_tiles(&self, multiprocessors: u32) -> u32 {
        (multiprocessors / self.cluster).max(1)
    }

    /// Sides of what TMA brings of each operand at a time, beside 64 of k.
    pub fn tma_tile(&self) -> [u32; 2] {
        [self.tile[0], self.tile[1] / self.cluster]
    }

    /// Clocks of a multiprocessor for a tile and 64 of k.
    fn cycles_per_k_tile(&self) -> u64 {
        let [m, n] = self.tile;
        // Products a clock, groups along each side that read their share, copies for eight elements.
        let (rate, [along_m, along_n], copy_instructions) = match self.mainloop {
            MainloopKind::WgmmaTma => (2048, [m / 64, 1], 0),
            MainloopKind::WgmmaCpAsync => (2048, [m / 64, 1], 1),
            MainloopKind::MmaSync(mma_sync_candidates) => (1024, mma_sync_candidates, 1),
            MainloopKind::MmaSyncUnaligned(mma_sync_candidates) => (1024, mma_sync_candidates, 8),
            MainloopKind::Simt => (128, [1, 1], 1),
        };
        let products = m * n * K_TILE / rate;
        let shared = (along_n * m + along_m * n + m + n) * K_TILE * 2 / 128;
        let instructions =
            (m * self.copy_instructions[0] + n * self.copy_instructions[1]) * K_TILE / 8 * copy_instructions / 128;
        u64::from(products.max(shared).max(instructions))
    }

    /// The cut of fewest clocks among those of few splits and those that fill one, two … rounds.
    pub fn split_k(&self, constraints: &SplitKConstraints, multiprocessors: u32) -> SplitK {
        let tiles = self.tiles(constraints.mnk, constraints.batch).max(1);
        let min_accumulations =
            if self.has_store_warps() { 1 } else { constraints.mnk[2].div_ceil(constraints.max_accumulation_k) };
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

    /// Sums cut in about so many splits.
    fn split_into(&self, splits: u32, constraints: &SplitKConstraints, multiprocessors: u32) -> SplitK {
        let k = constraints.mnk[2];
        // Whole stages of the kernels: a multiple of 64, as is the longest.
        let split_len = k.div_ceil(splits).next_multiple_of(K_TILE).max(K_TILE);
        let splits = k.div_ceil(split_len).max(1);
        let tiles = u64::from(self.tiles(constraints.mnk, constraints.batch)) * u64::from(splits);
        let result_count = u64::from(self.tile[0] * self.tile[1]);
        let mainloop_cycles = u64::from(split_len / K_TILE) * self.cycles_per_k_tile();
        // Blocks that leave the tensor cores waiting alone: two warps keep one of the four busy.
        let min_waves = match self.mainloop {
            MainloopKind::MmaSync([m, n]) | MainloopKind::MmaSyncUnaligned([m, n]) => 8 / u64::from(m * n),
            MainloopKind::WgmmaTma | MainloopKind::WgmmaCpAsync | MainloopKind::Simt => 1,
        };
        let waves = tiles.div_ceil(u64::from(self.max_resident_tiles(multiprocessors)));
        // Parts are written and read.
        let partial_bytes = 8 * u64::from(splits) * constraints.result_count() as u64;
        let traffic_cycles = partial_bytes / (DRAM_BYTES_PER_SM_CYCLE * u64::from(multiprocessors));
        let reduction_cycles = if splits == 1 {
            0
        } else {
            LAUNCH_CYCLES + traffic_cycles.max(u64::from(splits.div_ceil(PARTIALS_IN_FLIGHT)) * L2_LATENCY_CYCLES)
        };
        let cycles = if self.has_store_warps() {
            // What is stored of a tile takes no time but that of the last, unless storing takes longer than multiplying.
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
