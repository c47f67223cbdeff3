//! Rows of sums, formed by tiles.

use super::pack::{Matrix, Packed};
use crate::{
    Cpu, Memory,
    arch::{F16Rows, Isa, KSegment, LANES, MicroKernelArgs, balanced_tile_height},
};
use half::f16;

/// Steps of k: a panel of 64 columns takes 64 KiB, one of 16 half the first cache.
pub const KC: usize = 256;
/// Steps of k that are few.
const SMALL_K: usize = F16Rows::MAX_K;
/// Converted elements of a and sums that stay in the first cache together, beside b and what is written.
const L1_BUDGET_ELEMENTS: usize = 4096;
/// Most rows of a task that finishes rows as soon as that.
const MC_TASK_L1: usize = 2880;
/// Columns of a product of few steps that is made so: with more, panels would be read from the second cache for few rows each.
const SMALL_N: usize = 64;
/// Most steps of a panel of b that each of them may meet: it stays in the second cache.
const MAX_K_L2_PANEL: usize = 4096;
/// Most rows of a block, and of one of which not all are worked on together.
const MC_BLOCK: usize = 96;
const MC_BLOCK_L1: usize = 288;
/// Most rows that are worked on together, so that what each panel of b takes from the third cache is little, and the steps of k
/// between two visits to the accumulators: 192 KiB of a.
const BLOCKING: CacheBlocking = CacheBlocking { mc: 192, kc: KC };
/// The same where the accumulators of all columns do not fit the second cache either: less of both from the third. 768 KiB of
/// a, as processors whose tiles are wide have second caches of a MiB and more.
const LARGE_N_BLOCKING: CacheBlocking = CacheBlocking { mc: 384, kc: 2 * KC };
/// Columns of a wide tile, and of a product whose accumulators are that many.
const WIDE_NR: usize = 64;
const LARGE_N: usize = 1024;
/// Blocks of a product that is not large.
pub const TARGET_BLOCKS: usize = 16;

/// Rows of A and depth of K that one task packs and multiplies together.
#[derive(Clone, Copy, Debug)]
struct CacheBlocking {
    mc: usize,
    kc: usize,
}

impl Packed<'_> {
    /// Rows of a and steps of k that are worked on together.
    const fn blocking(&self) -> CacheBlocking {
        if self.nr >= WIDE_NR && self.columns >= LARGE_N { LARGE_N_BLOCKING } else { BLOCKING }
    }

    /// Whether little is done for each result, or for each element of a, so that rows are finished before the next are begun.
    const fn fits_l1_path(&self) -> bool {
        let columns = if self.depth <= SMALL_K { SMALL_N } else { self.nr };
        self.columns <= columns && self.depth <= MAX_K_L2_PANEL
    }

    /// Rows of a block, of so many in all.
    pub fn mc(&self, isa: Isa, m: usize) -> usize {
        let most = if self.fits_l1_path() { MC_BLOCK_L1 } else { MC_BLOCK };
        m.div_ceil(TARGET_BLOCKS).next_multiple_of(isa.tile_rows(isa.tile_columns())).min(most)
    }

    /// Most rows of a task.
    pub const fn rows_per_task(&self) -> usize {
        if self.fits_l1_path() { MC_TASK_L1 } else { self.blocking().mc }
    }

    /// How many rows of a block are finished before the next are begun; if `None`, all of a task.
    pub fn rows_per_subblock(&self, isa: Isa, a: Matrix<'_>, block: usize) -> Option<usize> {
        self.fits_l1_path().then(|| {
            let height = isa.tile_rows(self.nr);
            let lda = if self.converts_in_kernel(isa, a) { 0 } else { self.leading_dim(a) };
            let most = (L1_BUDGET_ELEMENTS / (lda + self.columns)).max(height);
            balanced_tile_height(block, most).next_multiple_of(height)
        })
    }

    /// Whether rows of a are converted as one: short ones that lie side by side.
    fn rows_contiguous(&self, a: Matrix<'_>) -> bool {
        a.strides == [self.depth, 1] && self.depth <= SMALL_K
    }

    /// Whether kernels convert short rows of a themselves.
    fn converts_in_kernel(&self, isa: Isa, a: Matrix<'_>) -> bool {
        matches!(a.data, Memory::F16(_)) && self.rows_contiguous(a) && isa.has_f16_row_kernels(self.columns)
    }

    /// So many halves of a from row `first` on, as far as there are so many, if they lie side by side.
    fn contiguous_halves<'a>(&self, a: Matrix<'a>, first: usize, rows: usize) -> &'a [f16] {
        match a.data {
            Memory::F16(data) if a.strides == [self.depth, 1] => {
                let data = data.get(a.start + first * self.depth..).unwrap_or(&[]);
                &data[..data.len().min(rows * self.depth)]
            }
            Memory::F16(_) | Memory::F32(_) | Memory::U8(_) | Memory::U32(_) => &[],
        }
    }

    /// Elements from one converted row of a to the next; others than short ones shall not lie a power of two apart.
    fn leading_dim(&self, a: Matrix<'_>) -> usize {
        if self.rows_contiguous(a) { self.depth } else { self.blocking().kc.min(self.depth) + LANES }
    }

    /// How many elements so many rows of a take that are worked on together.
    pub fn packed_a_len(&self, isa: Isa, a: Matrix<'_>, rows: usize) -> usize {
        if self.converts_in_kernel(isa, a) {
            isa.tile_rows(self.columns) * self.depth
        } else {
            rows * self.leading_dim(a)
        }
    }
}

impl Cpu {
    /// Rows `first..` of a product, whatever was in their sums and in `packed`, which has [`Packed::room`] for these rows of a.
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
        // Read in the order in which it is stored.
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
