//! Cache blocking of the GEMM (MC, KC, NC of BLIS), and the macrokernel that multiplies one block of rows. KC is 256: a
//! panel of B, KC × NR of f32, then takes 16 KiB, half of L1 (NR = 16), or 64 KiB of L2 (NR = 64). MC is 192: a block of
//! A takes 192 KiB of L2, because with more rows panels of B are read from L3 less often. From n = 1024 on with NR = 64
//! (AVX-512), MC is 384 and KC 512: A takes 768 KiB of an L2 of a MiB, and the sums, which leave L2, are visited half as
//! often. There is no NC: B is packed whole, because packing converts halves, which is then done once for all threads.
//!
//! In pseudo-code, with the names that BLIS uses:
//!
//! ```text
//! pack B                                    k × NR panels of f32, once for all threads
//! for each task of MC rows of C             in parallel
//!     for p in (0..k).step_by(KC)
//!         convert A[MC × KC] to f32         stays in L2
//!         for each panel B[KC × NR]         stays in L1 (NR = 16) or L2 (NR = 64)
//!             for each MR rows
//!                 C[MR × NR] += A[MR × KC] · B[KC × NR]      microkernel, sums in registers
//!     scale, observe, round and store C[MC × n]              epilogue
//! ```
//!
//! The real code differs, for these reasons:
//!
//! 1. B is packed whole, and not KC × NC at a time, because packing also converts halves to f32. All tasks read the
//!    same panels, so that each element is converted once for all threads. The cost is 4 · k · n bytes of workspace.
//!
//! 2. There is no loop over NC. The sums of a task, MC × n of f32, wait in a workspace until the last step of k,
//!    because the epilogue rounds only finished sums. Between two steps of KC they are loaded and stored once. For
//!    example, with n = 512 they are 384 KiB and stay in L2.
//!
//! 3. k is never divided between threads, and a sum takes its terms in the order of k. A microkernel that continues a
//!    sum loads it into the accumulator first. So results have the same bits for every block size and every number of
//!    threads. Split-K, which GPUs use, would not have this property.
//!
//! 4. A task consists of blocks, and a block is the unit of statistics. Σu and its kin are rounded sums, so the rows
//!    that they group must depend on the shape alone. The number of blocks in a task depends on the threads; the rows
//!    of a block do not.
//!
//! 5. With many columns the blocks are larger: MC × KC is 384 × 512 instead of 192 × 256. From n = 1024 on, the sums of
//!    192 rows take 768 KiB and leave L2, so each visit to them reads from L3. Twice KC halves the visits, and twice MC
//!    halves what each panel of B costs. This needs an L2 of a MiB or more, so only processors with tiles 64 columns
//!    wide (AVX-512) do so.
//!
//! 6. If there is a single panel of B, or if k and n are both small, little work is done for each element of A and C.
//!    Then rows are finished a few at a time, while A and C are in L1: see [`Packed::fits_l1_path`]. On this path A is
//!    prefetched by the microkernel, one element of each row a step, because a burst of requests would delay its own
//!    operands.
//!
//! 7. If A has contiguous rows of at most 64 halves, the microkernel converts them itself, one register tile at a time,
//!    and A is not packed as a block. An example is a classifier of pixels: 43,200 pixels of 64 channels, 11 classes.
//!
//! 8. A stored by columns is packed as columns (strides 1 and MC), because it is read in the order in which it is
//!    stored. The microkernel takes any pair of strides.
//!
//! 9. Packed rows of A are KC + 16 elements apart. At a distance of a power of two, rows of one tile would compete for
//!    the same sets of L1.

use super::pack::{Matrix, Packed};
use crate::{
    Cpu, Memory,
    arch::{F16Rows, Isa, KSegment, LANES, MicroKernelArgs, balanced_tile_height},
};
use half::f16;

/// Number of steps of k between two visits to the sums. A panel of B of 64 columns takes 64 KiB (L2); one of 16 takes
/// 16 KiB, half of an L1 of 32 KiB.
pub const KC: usize = 256;
/// K at or below which rows of A are converted inside the microkernel, or packed as one contiguous run.
const SMALL_K: usize = F16Rows::MAX_K;
/// Number of elements of converted A and of sums that stay in L1 together: 16 KiB of 32, because B and the stored
/// result need the other half.
const L1_BUDGET_ELEMENTS: usize = 4096;
/// Maximum number of rows of a task on the L1 path: ten blocks of [`MC_BLOCK_L1`] rows.
const MC_TASK_L1: usize = 2880;
/// Maximum N of the L1 path for a small K. With more columns, panels of B would be read from L2 for few rows each.
const SMALL_N: usize = 64;
/// Maximum K of the L1 path. Every few rows read the whole panel again, so it has to stay in L2: 4096 × 16 columns are
/// 256 KiB.
const MAX_K_L2_PANEL: usize = 4096;
/// Maximum number of rows of a block in general, and on the L1 path, where blocks are cut further. Both are multiples
/// of the tile heights 6, 12 and 24.
const MC_BLOCK: usize = 96;
const MC_BLOCK_L1: usize = 288;
/// Cache block sizes of GEMM in general: A takes 192 KiB of L2. More rows for each panel of B reduce the reads from L3.
const BLOCKING: CacheBlocking = CacheBlocking { mc: 192, kc: KC };
/// Cache block sizes of GEMM for large N, whose sums leave L2: half as many visits to sums and panels. A takes 768 KiB,
/// which fits an L2 of a MiB or more, as processors with wide tiles have.
const LARGE_N_BLOCKING: CacheBlocking = CacheBlocking { mc: 384, kc: 2 * KC };
/// Tile width and N from which [`LARGE_N_BLOCKING`] applies: see reason 5 above.
const WIDE_NR: usize = 64;
const LARGE_N: usize = 1024;
/// Number of blocks aimed at, so that up to 16 threads share a product that is not large.
pub const TARGET_BLOCKS: usize = 16;

/// Cache block sizes of a GEMM: the rows of A and the depth of K that one task packs and multiplies together.
#[derive(Clone, Copy, Debug)]
struct CacheBlocking {
    mc: usize,
    kc: usize,
}

impl Packed<'_> {
    /// Returns the cache block sizes for the columns of this packed B.
    const fn blocking(&self) -> CacheBlocking {
        if self.nr >= WIDE_NR && self.columns >= LARGE_N { LARGE_N_BLOCKING } else { BLOCKING }
    }

    /// Returns whether little work is done for each element of A or C, so that rows are finished while they are in L1.
    const fn fits_l1_path(&self) -> bool {
        let columns = if self.depth <= SMALL_K { SMALL_N } else { self.nr };
        self.columns <= columns && self.depth <= MAX_K_L2_PANEL
    }

    /// Returns the rows of a block of a product with `m` rows. They depend on shape and instruction set, not on threads.
    pub fn mc(&self, isa: Isa, m: usize) -> usize {
        let most = if self.fits_l1_path() { MC_BLOCK_L1 } else { MC_BLOCK };
        m.div_ceil(TARGET_BLOCKS).next_multiple_of(isa.tile_rows(isa.tile_columns())).min(most)
    }

    /// Returns the maximum number of rows of a task.
    pub const fn rows_per_task(&self) -> usize {
        if self.fits_l1_path() { MC_TASK_L1 } else { self.blocking().mc }
    }

    /// Returns how many rows of a block are finished before the next ones begin. `None`: all rows of a task together.
    pub fn rows_per_subblock(&self, isa: Isa, a: Matrix<'_>, block: usize) -> Option<usize> {
        self.fits_l1_path().then(|| {
            let height = isa.tile_rows(self.nr);
            let lda = if self.converts_in_kernel(isa, a) { 0 } else { self.leading_dim(a) };
            let most = (L1_BUDGET_ELEMENTS / (lda + self.columns)).max(height);
            balanced_tile_height(block, most).next_multiple_of(height)
        })
    }

    /// Returns whether A has short contiguous rows, which are converted as one run.
    fn rows_contiguous(&self, a: Matrix<'_>) -> bool {
        a.strides == [self.depth, 1] && self.depth <= SMALL_K
    }

    /// Returns true if the microkernel converts rows of A itself.
    fn converts_in_kernel(&self, isa: Isa, a: Matrix<'_>) -> bool {
        matches!(a.data, Memory::F16(_)) && self.rows_contiguous(a) && isa.has_f16_row_kernels(self.columns)
    }

    /// Returns up to `rows` contiguous rows of halves of A from row `first` on; empty if A is stored otherwise.
    fn contiguous_halves<'a>(&self, a: Matrix<'a>, first: usize, rows: usize) -> &'a [f16] {
        match a.data {
            Memory::F16(data) if a.strides == [self.depth, 1] => {
                let data = data.get(a.start + first * self.depth..).unwrap_or(&[]);
                &data[..data.len().min(rows * self.depth)]
            }
            Memory::F16(_) | Memory::F32(_) | Memory::U8(_) | Memory::U32(_) => &[],
        }
    }

    /// Returns the elements from one packed row of A to the next. Except for short rows they are not a power of two,
    /// because such rows would share sets of L1.
    fn leading_dim(&self, a: Matrix<'_>) -> usize {
        if self.rows_contiguous(a) { self.depth } else { self.blocking().kc.min(self.depth) + LANES }
    }

    /// Returns the number of elements of the workspace for `rows` packed rows of A.
    pub fn packed_a_len(&self, isa: Isa, a: Matrix<'_>, rows: usize) -> usize {
        if self.converts_in_kernel(isa, a) {
            isa.tile_rows(self.columns) * self.depth
        } else {
            rows * self.leading_dim(a)
        }
    }
}

impl Cpu {
    /// Computes rows `first..` of a product and overwrites `sums`. `packed` has the length [`Packed::packed_a_len`].
    pub(super) fn multiply_block(
        &self, a: Matrix<'_>, first: usize, b: &Packed<'_>, packed: &mut [f32], sums: &mut [f32],
    ) {
        let rows = sums.len() / b.columns;
        if b.depth == 0 {
            return sums.fill(0.0);
        }
        if b.converts_in_kernel(self.isa(), a) {
            let (a, b_k_stride) = (b.contiguous_halves(a, first, rows), b.row_stride());
            let run = [KSegment { a: 0, b: 0, depth: b.depth }];
            let rows = F16Rows { a, b: b.panel(0, 0), b_k_stride, run, columns: b.columns };
            if self.isa().multiply_f16_rows(&rows, sums, packed) {
                return;
            }
        }
        let (CacheBlocking { kc, .. }, lda) = (b.blocking(), b.leading_dim(a));
        // A stored by columns is read in the order in which it is stored.
        let is_column_major = a.is_column_major();
        for start in (0..b.depth).step_by(kc) {
            let depth = kc.min(b.depth - start);
            if is_column_major {
                for (k, out) in packed.chunks_exact_mut(rows).take(depth).enumerate() {
                    a.transposed().copy_row(self.isa(), start + k, first, out);
                }
            } else if b.rows_contiguous(a) {
                a.copy_row(self.isa(), first, 0, &mut packed[..rows * lda]);
            } else {
                for (r, out) in packed.chunks_exact_mut(lda).take(rows).enumerate() {
                    a.copy_row(self.isa(), first + r, start, &mut out[..depth]);
                }
            }
            let prefetch =
                if b.fits_l1_path() && depth == b.depth { b.contiguous_halves(a, first + rows, rows) } else { &[] };
            let (a_row_stride, a_k_stride) = if is_column_major { (1, rows) } else { (lda, 1) };
            for from in (0..b.columns).step_by(b.nr) {
                let tiles = MicroKernelArgs {
                    a: packed,
                    a_row_stride,
                    a_k_stride,
                    b: b.panel(start, from),
                    b_k_stride: b.row_stride(),
                    k_segments: &[KSegment { a: 0, b: 0, depth }],
                    rows,
                    columns: b.nr.min(b.columns - from),
                    overwrite: start == 0,
                    prefetch: if from == 0 { prefetch } else { &[] },
                };
                self.isa().accumulate_tile(&tiles, &mut sums[from..], b.columns);
            }
        }
    }
}
