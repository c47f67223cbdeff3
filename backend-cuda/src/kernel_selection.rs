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
    gemm_problem::{Kind, Plan},
    kernels::{
        Kernel, LONGEST, TILES, WARPS, WGMMA, WGMMA_TMA, WGMMA_TMA_CLUSTERS, WGMMA_TMA_CONVOLUTIONS, WGMMA_TMA_TILES,
        WGMMA_TMA_WEIGHT_T, WGMMA_WEIGHT_T,
    },
};
use gradscale_core::ops::Pass;

#[cfg(test)]
mod tests;

/// Who multiplies, and who brings operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// Warpgroups; TMA.
    Tma,
    /// Warpgroups; threads, eight halves at a time.
    Warpgroups,
    /// So many warps along each side; threads, eight halves at a time.
    Warps([u32; 2]),
    /// As before, but one element at a time.
    Elements([u32; 2]),
    /// Threads, without tensor cores.
    Threads,
}

/// How a product runs: the kernel, and the results of one of its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub kernel: &'static Kernel,
    /// Rows and columns of a block's results.
    pub tile: [u32; 2],
    /// Blocks of a cluster, whose results stand below each other; they share the columns' operand.
    pub cluster: u32,
    means: Means,
    /// Instructions of a thread that brings eight elements, of rows' operand and of columns'.
    copies: [u32; 2],
    /// Whether a tile's rows are columns of the result (`operand_swap.cuh`).
    pub transposed: bool,
}

/// How sums are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub splits: u32,
    /// Length of a split, a multiple of 64; the last may be shorter.
    pub depth: u32,
    clocks: u64,
}

/// What a product asks for, beside its operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub mnk: [u32; 3],
    pub batch: u32,
    /// Longest sum of one accumulator.
    pub longest: u32,
    /// Splits that must be, and splits for which there is room.
    pub least: u32,
    pub most: u32,
}

/// Results along each side of the plain kernel's block.
const PLAIN_TILE: [u32; 2] = [64, 64];
/// Shortest split of a sum worth a block.
const SHORTEST: u32 = 256;
/// Of k in one stage of a kernel.
const DEPTH: u32 = 64;
/// Rounds that are tried, and splits more than need be: beyond that they are even anyway.
const ROUNDS: u32 = 4;
const FEW: u32 = 8;

/// Clocks from a block's begin until its tensor cores work, and from its last product until it ends.
const START: u64 = 1500;
/// Results that a multiprocessor stores in a clock, and sums that it takes into shared memory: 128 bytes.
const RESULTS: u64 = 8;
const LEFT: u64 = 32;
/// Clocks of a launch, and bytes from memory for each multiprocessor in a clock.
const LAUNCH: u64 = 4000;
const BYTES: u64 = 16;
/// Parts that a thread of split_k_reduce.cu has under way (`PARTS` there), and the clocks until L2 has answered: about what is
/// published of an H100, not measured here.
const PARTS: u32 = 8;
const ANSWER: u64 = 300;

/// Instructions of a thread that brings eight elements of a and of b, address and copy. As sass.py counts them in machine
/// code (`copies of` in sass.csv), solved for both operands of the three tiles of each pass: a division is about 28, of
/// which an element of x takes two, of dy four in the data pass, of weights there one.
const fn copy_instructions(kind: Kind) -> [u32; 2] {
    match kind {
        Kind::Matrices(_) => [17, 17],
        Kind::Convolution(Pass::Forward) => [78, 12],
        Kind::Convolution(Pass::Data) => [106, 56],
        Kind::Convolution(Pass::Weight) => [22, 78],
    }
}

impl Demand {
    /// Of a product, of which no more splits are taken than `room` bytes hold partial sums of. What is stored, and how, has
    /// no say, nor has free memory: sums have the same bits with every store, and in every run on a device.
    pub fn of(plan: &Plan, room: usize) -> Self {
        let [m, n, k] = plan.mnk;
        // Columns that are not kept are left out where splits are added.
        let least = if plan.kept < n { 2 } else { 1 };
        // Gradients of weights stay in f32. What is no such gradient becomes a half as a rule, whose own rounding is 2^-11
        // of it, beside which what twice as many terms drift (2^-14) is little.
        let longest = match plan.kind {
            Kind::Matrices([true, _]) | Kind::Convolution(Pass::Weight) => LONGEST,
            Kind::Matrices([false, _]) | Kind::Convolution(Pass::Forward | Pass::Data) => 2 * LONGEST,
        };
        let demand = Self { mnk: [m, n, k], batch: plan.batch, longest, least, most: 1 };
        let parts = room / (4 * demand.results()).max(1);
        Self { most: u32::try_from(parts).unwrap_or(u32::MAX).min(k.div_ceil(SHORTEST)), ..demand }
    }

    /// How many results there are.
    pub fn results(&self) -> usize {
        self.mnk[0] as usize * self.mnk[1] as usize * self.batch as usize
    }
}

impl Choice {
    /// Numbers of any type.
    pub fn plain(kernel: &'static Kernel) -> Self {
        Self { kernel, tile: PLAIN_TILE, cluster: 1, means: Means::Threads, copies: [24; 2], transposed: false }
    }

    /// Halves of any alignment, on every device: the simplest way by tensor cores.
    pub fn any(kind: Kind) -> Self {
        let means = Means::Elements(WARPS[4]);
        let copies = copy_instructions(kind);
        Self { kernel: &kind.tensor()[4], tile: TILES[4], cluster: 1, means, copies, transposed: false }
    }

    /// Halves in aligned eights, on every device.
    fn warps(kind: Kind) -> [Self; 4] {
        let of = |i: usize| Self {
            kernel: &kind.tensor()[i],
            tile: TILES[i],
            cluster: 1,
            means: Means::Warps(WARPS[i]),
            copies: copy_instructions(kind),
            transposed: false,
        };
        [0, 1, 2, 3].map(of)
    }

    /// The ways for one architecture: by warpgroups, with operands by TMA before those that threads bring.
    pub fn warpgroups(kind: Kind) -> Vec<Self> {
        let i = kind.index();
        let of = |kernels: &'static [Kernel], tiles: [[u32; 2]; 2], means, transposed| {
            let [a, b] = copy_instructions(kind);
            let copies = if transposed { [b, a] } else { [a, b] };
            let way = move |(kernel, tile)| Self { kernel, tile, cluster: 1, means, copies, transposed };
            kernels.iter().zip(tiles).map(way)
        };
        let (small, narrow) = ([TILES[0], TILES[1]], [TILES[1]; 2]);
        match kind {
            Kind::Matrices(_) => of(&WGMMA_TMA[i], WGMMA_TMA_TILES, Means::Tma, false)
                .zip(WGMMA_TMA_CLUSTERS)
                .map(|(way, cluster)| Self { cluster, ..way })
                .collect(),
            Kind::Convolution(pass) => {
                let last = usize::from(pass == Pass::Weight);
                of(&WGMMA_TMA_CONVOLUTIONS[i], small, Means::Tma, false)
                    .chain(of(&WGMMA_TMA_WEIGHT_T[..last], narrow, Means::Tma, true))
                    .chain(of(&WGMMA[i], small, Means::Warpgroups, false))
                    .chain(of(&WGMMA_WEIGHT_T[..last], narrow, Means::Warpgroups, true))
                    .collect()
            }
        }
    }

    /// All ways for halves whose product `plan` is on a device, the best first. Those for one architecture have to be
    /// proven; the last needs no proof.
    pub fn ways(plan: &Plan, demand: &Demand, multiprocessors: u32, warpgroups: bool) -> Vec<Self> {
        if !plan.aligned {
            return vec![Self::any(plan.kind)];
        }
        // TMA knows no tensors without elements.
        let empty = demand.mnk[2] == 0 || plan.lens[..2].contains(&0);
        let by_tma = !empty
            && match plan.kind {
                Kind::Matrices(_) => plan.has_tma_tiles(),
                Kind::Convolution(_) => plan.im2col.is_some(),
            };
        let own = if warpgroups { Self::warpgroups(plan.kind) } else { vec![] };
        let own = own.into_iter().filter(|way| by_tma || way.means != Means::Tma);
        let mut ways: Vec<Self> = own.chain(Self::warps(plan.kind)).collect();
        // Stable: of two that take as long the one that was named first is taken.
        ways.sort_by_cached_key(|way| way.cut(demand, multiprocessors).clocks);
        let safe = ways.iter().position(|way| !way.is_own()).unwrap_or(0);
        ways.truncate(safe + 1);
        ways
    }

    /// Whether operands come by TMA.
    pub fn is_tma(&self) -> bool {
        self.means == Means::Tma
    }

    /// Whether threads that do nothing else store, so that those that multiply go on with the next tile; these also add
    /// parts of long sums themselves (`APART` of wgmma_tma.cu).
    pub fn stores_apart(&self) -> bool {
        self.is_tma() && self.tile[1] <= 128
    }

    /// Whether one architecture alone has it.
    pub fn is_own(&self) -> bool {
        matches!(self.means, Means::Tma | Means::Warpgroups)
    }

    /// How many tiles of a cluster so many results fill.
    fn tiles(&self, [mut m, mut n, _]: [u32; 3], batch: u32) -> u32 {
        if self.transposed {
            (m, n) = (n, m);
        }
        m.div_ceil(self.tile[0] * self.cluster) * n.div_ceil(self.tile[1]) * batch
    }

    /// Blocks of a launch: one for each tile, or with TMA one for each multiprocessor, which goes from tile to tile.
    pub fn blocks(&self, demand: &Demand, cut: &Cut, multiprocessors: u32) -> u32 {
        let tiles = self.tiles(demand.mnk, demand.batch) * cut.splits;
        self.cluster * if self.is_tma() { tiles.min(self.places(multiprocessors)) } else { tiles }
    }

    /// Tiles that a device works on at once.
    fn places(&self, multiprocessors: u32) -> u32 {
        (multiprocessors / self.cluster).max(1)
    }

    /// Sides of what TMA brings of each operand at a time, beside 64 of k.
    pub fn tma_tile(&self) -> [u32; 2] {
        [self.tile[0], self.tile[1] / self.cluster]
    }

    /// Clocks of a multiprocessor for a tile and 64 of k.
    fn stage(&self) -> u64 {
        let [m, n] = self.tile;
        // Products a clock, groups along each side that read their share, copies for eight elements.
        let (rate, [along_m, along_n], copies) = match self.means {
            Means::Tma => (2048, [m / 64, 1], 0),
            Means::Warpgroups => (2048, [m / 64, 1], 1),
            Means::Warps(warps) => (1024, warps, 1),
            Means::Elements(warps) => (1024, warps, 8),
            Means::Threads => (128, [1, 1], 1),
        };
        let products = m * n * DEPTH / rate;
        let shared = (along_n * m + along_m * n + m + n) * DEPTH * 2 / 128;
        let instructions = (m * self.copies[0] + n * self.copies[1]) * DEPTH / 8 * copies / 128;
        u64::from(products.max(shared).max(instructions))
    }

    /// The cut of fewest clocks among those of few splits and those that fill one, two … rounds.
    pub fn cut(&self, demand: &Demand, multiprocessors: u32) -> Cut {
        let tiles = self.tiles(demand.mnk, demand.batch).max(1);
        let in_one = if self.stores_apart() { 1 } else { demand.mnk[2].div_ceil(demand.longest) };
        let least = demand.least.max(in_one).max(1);
        let most = demand.most.max(least);
        let rounds = (1..=ROUNDS).map(|rounds| (rounds * self.places(multiprocessors) / tiles).clamp(least, most));
        let few = least..=most.min(least + FEW);
        let cuts = few.chain(rounds).map(|splits| self.cut_in(splits, demand, multiprocessors));
        cuts.min_by_key(|cut| (cut.clocks, cut.splits)).unwrap_or_else(|| self.cut_in(least, demand, multiprocessors))
    }

    /// Sums cut in about so many splits.
    fn cut_in(&self, splits: u32, demand: &Demand, multiprocessors: u32) -> Cut {
        let k = demand.mnk[2];
        // Whole stages of the kernels: a multiple of 64, as is the longest.
        let depth = k.div_ceil(splits).next_multiple_of(DEPTH).max(DEPTH);
        let splits = k.div_ceil(depth).max(1);
        let tiles = u64::from(self.tiles(demand.mnk, demand.batch)) * u64::from(splits);
        let results = u64::from(self.tile[0] * self.tile[1]);
        let sum = u64::from(depth / DEPTH) * self.stage();
        // Blocks that leave the tensor cores waiting alone: two warps keep one of the four busy.
        let together = match self.means {
            Means::Warps([m, n]) | Means::Elements([m, n]) => 8 / u64::from(m * n),
            Means::Tma | Means::Warpgroups | Means::Threads => 1,
        };
        let rounds = tiles.div_ceil(u64::from(self.places(multiprocessors)));
        // Parts are written and read.
        let bytes = 8 * u64::from(splits) * demand.results() as u64;
        let moved = bytes / (BYTES * u64::from(multiprocessors));
        let again = if splits == 1 { 0 } else { LAUNCH + moved.max(u64::from(splits.div_ceil(PARTS)) * ANSWER) };
        let clocks = if self.stores_apart() {
            // What is stored of a tile takes no time but that of the last, unless storing takes longer than multiplying.
            let between = (sum + results / LEFT).max(results / RESULTS);
            START + rounds.saturating_sub(1) * between + sum + results / RESULTS
        } else {
            rounds.max(together) * sum + rounds * (START + results / RESULTS)
        };
        Cut { splits, depth, clocks: clocks + again }
    }
}
