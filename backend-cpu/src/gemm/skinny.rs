//! Products with few rows and many columns: a step of a recurrent network, the gradient of a small layer's weights.
//!
//! Here packing b costs as much as the product, so it is not packed as a whole: strips of columns are converted where
//! they are used, some steps at a time, and threads share strips. Where the columns of b lie in memory as rows, the
//! roles of both operands are exchanged, and b is read in order. A sum takes its terms in the order of k either way.

use super::{
    blocking::DEPTH,
    pack::{Matrix, PACKED_ROWS, Packed, pack},
};
use crate::{
    Cpu,
    arch::{KSegment, LANES, MicroKernelArgs},
    epilogue::{Epilogue, Part},
    stats_accumulator::Seen,
    threading::Cost,
    workspace::Workspace,
};

/// Most rows that are few.
const ROWS: usize = 64;
/// Columns of the narrowest strip: a whole number of every instruction set's tiles.
const STRIP: usize = 64;
/// Columns of the widest strip whose rows are read, so that memory is read in order and page by page, and steps of k that are
/// converted for it: 256 KiB of a panel.
const WIDEST: usize = 1024;
const STEPS: usize = 64;
/// Rows that are finished together.
const FINISHED: usize = 8;

/// Whether a product of so many rows and columns is made here.
pub const fn few(rows: usize, columns: usize) -> bool {
    rows <= ROWS && columns >= 4 * rows && columns >= 2 * STRIP
}

/// a in f32, all of it: rows, or columns one behind the other where it is stored so.
struct Rows<'a> {
    data: Workspace<'a>,
    /// Elements between rows, and between steps of k.
    steps: [usize; 2],
}

impl Cpu {
    /// A product, as rows of statistics.
    pub(super) fn few_rows(
        &self, [a, b]: [Matrix<'_>; 2], [m, n, k]: [usize; 3], bias: Option<&[f32]>, ldy: usize, epilogue: &Epilogue,
        y: Part<'_>,
    ) -> Vec<Seen> {
        let cost = Cost::macs(m * n * k);
        // Strip by strip, each with all rows of its columns.
        let mut sums = self.workspace(m * n);
        let strip = if b.by_columns() {
            let a = Packed::new(self, &[a.turned()], k, m);
            self.par_chunks_mut(cost, &mut sums, STRIP * m, |i, sums| {
                self.strip_of_columns(&a, b, [i * STRIP, k, m], sums)
            });
            STRIP
        } else {
            let (a, strip) = (self.widened(a, [m, k]), self.strip_of(n, cost));
            self.par_chunks_mut(cost, &mut sums, strip * m, |i, sums| self.strip(&a, b, [i * strip, k, m], sums));
            strip
        };
        y.each(self, Cost::elements(m * n), FINISHED * ldy, |i, mut y| {
            let (mut row, mut block) = (epilogue.row(), self.workspace(n));
            for r in 0..FINISHED.min(m - i * FINISHED) {
                for (from, block) in (0..n).step_by(strip).zip(block.chunks_mut(strip)) {
                    let start = from * m + (i * FINISHED + r) * block.len();
                    block.copy_from_slice(&sums[start..start + block.len()]);
                }
                if let Some(bias) = bias {
                    block.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
                }
                epilogue.finish(&mut block, y.range(r * ldy..r * ldy + n), &mut row);
            }
            row
        })
    }

    /// Columns of strips of which every thread has as many.
    fn strip_of(&self, n: usize, cost: Cost) -> usize {
        let threads = if self.is_serial(cost) { 1 } else { self.thread_pool().count() };
        let strips = n.div_ceil(WIDEST).next_multiple_of(threads).min(n.div_ceil(STRIP));
        n.div_ceil(strips).next_multiple_of(LANES)
    }

    fn widened(&self, a: Matrix<'_>, [m, k]: [usize; 2]) -> Rows<'_> {
        let (mut data, cost, isa) = (self.workspace(m * k), Cost::elements(m * k), self.isa());
        if a.by_columns() {
            self.par_chunks_mut(cost, &mut data, PACKED_ROWS * m, |i, out| {
                for (k, out) in (i * PACKED_ROWS..).zip(out.chunks_exact_mut(m)) {
                    a.turned().row(isa, k, 0, out);
                }
            });
        } else {
            self.par_chunks_mut(cost, &mut data, k, |r, out| a.row(isa, r, 0, out));
        }
        Rows { data, steps: if a.by_columns() { [1, m] } else { [k, 1] } }
    }

    /// A strip of columns from one on; rows of b are read in order.
    fn strip(&self, a: &Rows<'_>, b: Matrix<'_>, [first, k, m]: [usize; 3], sums: &mut [f32]) {
        let columns = sums.len() / m;
        let width = self.isa().tile_columns();
        // Rows of a panel shall not lie a power of two apart.
        let lead = columns.next_multiple_of(LANES) + LANES;
        let mut panel = self.workspace(STEPS.min(k) * lead);
        if k == 0 {
            sums.fill(0.0);
        }
        for start in (0..k).step_by(STEPS) {
            let depth = STEPS.min(k - start);
            let panel = &mut panel[..depth * lead];
            for (at, rows) in (start..).step_by(PACKED_ROWS).zip(panel.chunks_mut(PACKED_ROWS * lead)) {
                pack(self, b, at, first..first + columns, lead, rows);
            }
            for from in (0..columns).step_by(width) {
                let tiles = MicroKernelArgs {
                    a: &a.data[start * a.steps[1]..],
                    a_row_stride: a.steps[0],
                    a_k_stride: a.steps[1],
                    b: &panel[from..],
                    b_k_stride: lead,
                    k_segments: &[KSegment { a: 0, b: 0, depth }],
                    rows: m,
                    columns: width.min(columns - from),
                    overwrite: start == 0,
                    prefetch: &[],
                };
                self.isa().accumulate_tile(&tiles, &mut sums[from..], columns);
            }
        }
    }

    /// The same where columns of b are read in order: they are the rows of tiles, and a has the columns.
    fn strip_of_columns(&self, a: &Packed<'_>, b: Matrix<'_>, [first, k, m]: [usize; 3], sums: &mut [f32]) {
        let columns = sums.len() / m;
        let mut turned = if k == 0 { self.zeroed_workspace(sums.len()) } else { self.workspace(sums.len()) };
        // Rows of a tile shall not lie a power of two apart.
        let a_row_stride = DEPTH.min(k) + LANES;
        let mut rows = self.workspace(columns * a_row_stride);
        for start in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - start);
            for (column, row) in (first..).zip(rows.chunks_exact_mut(a_row_stride)) {
                b.turned().row(self.isa(), column, start, &mut row[..depth]);
            }
            for from in (0..m).step_by(a.step()) {
                let tiles = MicroKernelArgs {
                    a: &rows,
                    a_row_stride,
                    a_k_stride: 1,
                    b: a.panel(start, from),
                    b_k_stride: a.step(),
                    k_segments: &[KSegment { a: 0, b: 0, depth }],
                    rows: columns,
                    columns: a.step().min(m - from),
                    overwrite: start == 0,
                    prefetch: &[],
                };
                self.isa().accumulate_tile(&tiles, &mut turned[from..], m);
            }
        }
        for (r, row) in sums.chunks_exact_mut(columns).enumerate() {
            row.iter_mut().zip(turned[r..].iter().step_by(m)).for_each(|(sum, turned)| *sum = *turned);
        }
    }
}
