//! Rows of sums, formed by tiles.

use super::pack::{Matrix, Packed};
use crate::{
    Cpu, Memory,
    arch::{F16Rows, Isa, KSegment, LANES, MicroKernelArgs, balanced_tile_height},
};
use half::f16;

/// Steps of k: a panel of 64 columns takes 64 KiB, one of 16 half the first cache.
pub const DEPTH: usize = 256;
/// Steps of k that are few.
const SHORT: usize = F16Rows::MAX_K;
/// Converted elements of a and sums that stay in the first cache together, beside b and what is written.
const NEAR: usize = 4096;
/// Most rows of a task that finishes rows as soon as that.
const NEAR_ROWS: usize = 2880;
/// Columns of a product of few steps that is made so: with more, panels would be read from the second cache for few rows each.
const FEW_COLUMNS: usize = 64;
/// Most steps of a panel of b that each of them may meet: it stays in the second cache.
const LONG: usize = 4096;
/// Most rows of a block, and of one of which not all are worked on together.
const ROWS: usize = 96;
const ROWS_OF_NEAR: usize = 288;
/// Most rows that are worked on together, so that what each panel of b takes from the third cache is little, and the steps of k
/// between two visits to the accumulators: 192 KiB of a.
const BLOCKING: [usize; 2] = [192, DEPTH];
/// The same where the accumulators of all columns do not fit the second cache either: less of both from the third. 768 KiB of
/// a, as processors whose tiles are wide have second caches of a MiB and more.
const LARGE_BLOCKING: [usize; 2] = [384, 2 * DEPTH];
/// Columns of a wide tile, and of a product whose accumulators are that many.
const WIDE_TILE: usize = 64;
const MANY_COLUMNS: usize = 1024;
/// Blocks of a product that is not large.
pub const BLOCKS: usize = 16;

impl Packed<'_> {
    /// Rows of a and steps of k that are worked on together.
    const fn blocking(&self) -> [usize; 2] {
        if self.width >= WIDE_TILE && self.columns >= MANY_COLUMNS { LARGE_BLOCKING } else { BLOCKING }
    }

    /// Whether little is done for each result, or for each element of a, so that rows are finished before the next are begun.
    const fn near(&self) -> bool {
        let columns = if self.depth <= SHORT { FEW_COLUMNS } else { self.width };
        self.columns <= columns && self.depth <= LONG
    }

    /// Rows of a block, of so many in all.
    pub fn rows_of_block(&self, isa: Isa, m: usize) -> usize {
        let most = if self.near() { ROWS_OF_NEAR } else { ROWS };
        m.div_ceil(BLOCKS).next_multiple_of(isa.tile_rows(isa.tile_columns())).min(most)
    }

    /// Most rows of a task.
    pub const fn rows_of_task(&self) -> usize {
        if self.near() { NEAR_ROWS } else { self.blocking()[0] }
    }

    /// How many rows of a block are finished before the next are begun; if `None`, all of a task.
    pub fn rows_at_once(&self, isa: Isa, a: Matrix<'_>, block: usize) -> Option<usize> {
        self.near().then(|| {
            let height = isa.tile_rows(self.width);
            let lead = if self.converts(isa, a) { 0 } else { self.lead(a) };
            let most = (NEAR / (lead + self.columns)).max(height);
            balanced_tile_height(block, most).next_multiple_of(height)
        })
    }

    /// Whether rows of a are converted as one: short ones that lie side by side.
    fn side_by_side(&self, a: Matrix<'_>) -> bool {
        a.steps == [self.depth, 1] && self.depth <= SHORT
    }

    /// Whether kernels convert short rows of a themselves.
    fn converts(&self, isa: Isa, a: Matrix<'_>) -> bool {
        matches!(a.data, Memory::F16(_)) && self.side_by_side(a) && isa.has_f16_row_kernels(self.columns)
    }

    /// So many halves of a from row `first` on, as far as there are so many, if they lie side by side.
    fn halves<'a>(&self, a: Matrix<'a>, first: usize, rows: usize) -> &'a [f16] {
        match a.data {
            Memory::F16(data) if a.steps == [self.depth, 1] => {
                let data = data.get(a.start + first * self.depth..).unwrap_or(&[]);
                &data[..data.len().min(rows * self.depth)]
            }
            Memory::F16(_) | Memory::F32(_) | Memory::U8(_) | Memory::U32(_) => &[],
        }
    }

    /// Elements from one converted row of a to the next; others than short ones shall not lie a power of two apart.
    fn lead(&self, a: Matrix<'_>) -> usize {
        if self.side_by_side(a) { self.depth } else { self.blocking()[1].min(self.depth) + LANES }
    }

    /// How many elements so many rows of a take that are worked on together.
    pub fn room(&self, isa: Isa, a: Matrix<'_>, rows: usize) -> usize {
        if self.converts(isa, a) { isa.tile_rows(self.columns) * self.depth } else { rows * self.lead(a) }
    }
}

impl Cpu {
    /// Rows `first..` of a product, whatever was in their sums and in `packed`, which has [`Packed::room`] for these rows of a.
    pub(super) fn block(&self, a: Matrix<'_>, first: usize, b: &Packed<'_>, packed: &mut [f32], sums: &mut [f32]) {
        let rows = sums.len() / b.columns;
        if b.depth == 0 {
            return sums.fill(0.0);
        }
        if b.converts(self.isa(), a) {
            let (a, step) = (b.halves(a, first, rows), b.step());
            let run = [KSegment { a: 0, b: 0, depth: b.depth }];
            let rows = F16Rows { a, b: b.panel(0, 0), b_k_stride: step, run, columns: b.columns };
            if self.isa().multiply_f16_rows(&rows, sums, packed) {
                return;
            }
        }
        let ([_, most], a_lead) = (b.blocking(), b.lead(a));
        // Read in the order in which it is stored.
        let by_columns = a.by_columns();
        for start in (0..b.depth).step_by(most) {
            let depth = most.min(b.depth - start);
            if by_columns {
                for (k, out) in packed.chunks_exact_mut(rows).take(depth).enumerate() {
                    a.turned().row(self.isa(), start + k, first, out);
                }
            } else if b.side_by_side(a) {
                a.row(self.isa(), first, 0, &mut packed[..rows * a_lead]);
            } else {
                for (r, out) in packed.chunks_exact_mut(a_lead).take(rows).enumerate() {
                    a.row(self.isa(), first + r, start, &mut out[..depth]);
                }
            }
            let prefetch = if b.near() && depth == b.depth { b.halves(a, first + rows, rows) } else { &[] };
            let (a_row_stride, a_k_stride) = if by_columns { (1, rows) } else { (a_lead, 1) };
            for from in (0..b.columns).step_by(b.width) {
                let tiles = MicroKernelArgs {
                    a: packed,
                    a_row_stride,
                    a_k_stride,
                    b: b.panel(start, from),
                    b_k_stride: b.step(),
                    k_segments: &[KSegment { a: 0, b: 0, depth }],
                    rows,
                    columns: b.width.min(b.columns - from),
                    overwrite: start == 0,
                    prefetch: if from == 0 { prefetch } else { &[] },
                };
                self.isa().accumulate_tile(&tiles, &mut sums[from..], b.columns);
            }
        }
    }
}
