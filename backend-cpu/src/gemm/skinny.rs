//! Products with few rows and many columns (skinny GEMM; gemv for m = 1): a step of a recurrent network, or the weight
//! gradient of a small layer.
//!
//! Packing B would cost as much as the product itself, because each packed element is used for few rows. So B is not
//! packed as a whole. Strips of columns are converted where they are used, KC rows at a time, and threads share the
//! strips. If B is stored by columns, both operands exchange their roles, and B is still read in order. Every sum takes
//! its terms in the order of k on both ways, so the bits are those of the general path.

use super::{
    blocking,
    pack::{Matrix, PACK_ROWS_PER_TASK, Packed, pack_rows},
    sizes,
};
use crate::{
    Cpu,
    arch::{KSegment, LANES, MicroKernelArgs},
    epilogue::{Epilogue, OutputSlice},
    stats_accumulator::StatsAccumulator,
    threading::Cost,
    workspace::Workspace,
};
use gradscale_core::ops::GemmShape;

/// Upper limit on M for the path of skinny products: each converted element of B is used at most this often, so its
/// conversion still counts.
const SKINNY_MAX_M: usize = 64;
/// Number of columns of the narrowest strip: a multiple of the tile width of every instruction set.
const NC_MIN: usize = 64;
/// Number of columns of the widest strip, and of steps of k that are converted for it at a time. Rows of 1024 halves
/// are read page by page; the converted panel takes 256 KiB of L2.
const NC_MAX: usize = 1024;
const KC: usize = 64;
/// Number of rows that one task of the epilogue stores.
const ROWS_PER_EPILOGUE: usize = 8;

/// Returns true if a product with `rows` rows and `columns` columns counts as skinny: at least two strips of columns,
/// and at least four columns for each row.
pub const fn is_skinny(rows: usize, columns: usize) -> bool {
    rows <= SKINNY_MAX_M && columns >= 4 * rows && columns >= 2 * NC_MIN
}

/// Matrix A, converted to f32 as a whole: row-major, or column-major where it is stored so.
struct ConvertedA<'a> {
    data: Workspace<'a>,
    /// Numbers of elements from row to row, and from step to step of k.
    strides: [usize; 2],
}

impl Cpu {
    /// Computes and stores a product. Returns the statistics of its tasks in order.
    pub(super) fn gemm_skinny(
        &self, [a, b]: [Matrix<'_>; 2], shape: GemmShape, bias: Option<&[f32]>, ldy: usize, epilogue: &Epilogue,
        y: OutputSlice<'_>,
    ) -> Vec<StatsAccumulator> {
        let [m, n, k] = sizes(shape);
        let cost = Cost::macs(m * n * k);
        // Sums are stored strip by strip, each with all rows of its columns.
        let mut sums = self.workspace(m * n);
        let strip = if b.is_column_major() {
            let a = Packed::new(self, &[a.transposed()], k, m);
            self.par_chunks_mut(cost, &mut sums, NC_MIN * m, |i, sums| {
                self.multiply_strip_column_major(&a, b, [i * NC_MIN, k, m], sums)
            });
            NC_MIN
        } else {
            let (a, strip) = (self.convert_a(a, [m, k]), self.nc(n, cost));
            self.par_chunks_mut(cost, &mut sums, strip * m, |i, sums| {
                self.multiply_strip(&a, b, [i * strip, k, m], sums)
            });
            strip
        };
        y.par_chunks(self, Cost::elements(m * n), ROWS_PER_EPILOGUE * ldy, |i, mut y| {
            let (mut row, mut block) = (epilogue.new_accumulator(), self.workspace(n));
            for r in 0..ROWS_PER_EPILOGUE.min(m - i * ROWS_PER_EPILOGUE) {
                for (from, block) in (0..n).step_by(strip).zip(block.chunks_mut(strip)) {
                    let start = from * m + (i * ROWS_PER_EPILOGUE + r) * block.len();
                    block.copy_from_slice(&sums[start..start + block.len()]);
                }
                if let Some(bias) = bias {
                    block.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
                }
                epilogue.finish_block(&mut block, y.range(r * ldy..r * ldy + n), &mut row);
            }
            row
        })
    }

    /// Returns the columns of a strip, so that every thread has equally many strips.
    fn nc(&self, n: usize, cost: Cost) -> usize {
        let threads = if self.is_serial(cost) { 1 } else { self.thread_pool().count() };
        let strips = n.div_ceil(NC_MAX).next_multiple_of(threads).min(n.div_ceil(NC_MIN));
        n.div_ceil(strips).next_multiple_of(LANES)
    }

    /// Converts the matrix A, `[m, k]`, to f32.
    fn convert_a(&self, a: Matrix<'_>, [m, k]: [usize; 2]) -> ConvertedA<'_> {
        let (mut data, cost, isa) = (self.workspace(m * k), Cost::elements(m * k), self.isa());
        if a.is_column_major() {
            self.par_chunks_mut(cost, &mut data, PACK_ROWS_PER_TASK * m, |i, out| {
                for (k, out) in (i * PACK_ROWS_PER_TASK..).zip(out.chunks_exact_mut(m)) {
                    a.transposed().copy_row(isa, k, 0, out);
                }
            });
        } else {
            self.par_chunks_mut(cost, &mut data, k, |r, out| a.copy_row(isa, r, 0, out));
        }
        ConvertedA { data, strides: if a.is_column_major() { [1, m] } else { [k, 1] } }
    }

    /// Computes the columns of a strip from `first` on; rows of B are read in order.
    fn multiply_strip(&self, a: &ConvertedA<'_>, b: Matrix<'_>, [first, k, m]: [usize; 3], sums: &mut [f32]) {
        let columns = sums.len() / m;
        let nr = self.isa().tile_columns();
        // Rows of the panel are not a power of two apart, because they would share sets of L1.
        let leading_dim = columns.next_multiple_of(LANES) + LANES;
        let mut panel = self.workspace(KC.min(k) * leading_dim);
        if k == 0 {
            sums.fill(0.0);
        }
        for start in (0..k).step_by(KC) {
            let depth = KC.min(k - start);
            let panel = &mut panel[..depth * leading_dim];
            for (at, rows) in
                (start..).step_by(PACK_ROWS_PER_TASK).zip(panel.chunks_mut(PACK_ROWS_PER_TASK * leading_dim))
            {
                pack_rows(self, b, at, first..first + columns, leading_dim, rows);
            }
            for from in (0..columns).step_by(nr) {
                let tiles = MicroKernelArgs {
                    a: &a.data[start * a.strides[1]..],
                    a_row_stride: a.strides[0],
                    a_k_stride: a.strides[1],
                    b: &panel[from..],
                    b_k_stride: leading_dim,
                    k_segments: &[KSegment { a: 0, b: 0, depth }],
                    rows: m,
                    columns: nr.min(columns - from),
                    overwrite: start == 0,
                    prefetch: &[],
                };
                self.isa().accumulate_tile(&tiles, &mut sums[from..], columns);
            }
        }
    }

    /// Multiplies a strip like `multiply_strip`, for B stored by columns: columns of B are the rows of tiles, and A
    /// provides their columns.
    fn multiply_strip_column_major(&self, a: &Packed<'_>, b: Matrix<'_>, [first, k, m]: [usize; 3], sums: &mut [f32]) {
        let columns = sums.len() / m;
        let mut transposed = if k == 0 { self.zeroed_workspace(sums.len()) } else { self.workspace(sums.len()) };
        // Rows of a tile are not a power of two apart, because they would share sets of L1.
        let a_row_stride = blocking::KC.min(k) + LANES;
        let mut rows = self.workspace(columns * a_row_stride);
        for start in (0..k).step_by(blocking::KC) {
            let depth = blocking::KC.min(k - start);
            for (column, row) in (first..).zip(rows.chunks_exact_mut(a_row_stride)) {
                b.transposed().copy_row(self.isa(), column, start, &mut row[..depth]);
            }
            for from in (0..m).step_by(a.row_stride()) {
                let tiles = MicroKernelArgs {
                    a: &rows,
                    a_row_stride,
                    a_k_stride: 1,
                    b: a.panel(start, from),
                    b_k_stride: a.row_stride(),
                    k_segments: &[KSegment { a: 0, b: 0, depth }],
                    rows: columns,
                    columns: a.row_stride().min(m - from),
                    overwrite: start == 0,
                    prefetch: &[],
                };
                self.isa().accumulate_tile(&tiles, &mut transposed[from..], m);
            }
        }
        for (r, row) in sums.chunks_exact_mut(columns).enumerate() {
            row.iter_mut().zip(transposed[r..].iter().step_by(m)).for_each(|(sum, transposed)| *sum = *transposed);
        }
    }
}
