//! Matrix products.
//!
//! b is converted and packed once, into panels of 64 columns; every block of rows of the result packs its rows of a,
//! forms its sums in an f32 scratch, step by step of `DEPTH`, and finishes them from there. A sum takes its terms in
//! the order of k, whatever the blocks.

use crate::{
    Cpu, Memory,
    arch::{Isa, TILE_COLUMNS, Tile, tile_rows},
    backend::Scratch,
    epilogue::{Epilogue, Part, destination, merge},
};
use gradscale_core::{backend::Store, descriptor::Gemm, stats::Stats};

/// Steps of k between two visits to the accumulators: 64 columns of b in 128 KiB.
const DEPTH: usize = 512;
/// Most rows of a block.
const ROWS: usize = 96;

/// A matrix inside a buffer.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub data: &'a Memory,
    pub start: usize,
    /// Elements between rows and between columns.
    pub steps: [usize; 2],
}

impl Matrix<'_> {
    /// Copies columns `from..from + out.len()` of a row, as f32.
    fn row(&self, isa: Isa, row: usize, from: usize, out: &mut [f32]) {
        let first = self.start + row * self.steps[0] + from * self.steps[1];
        if self.steps[1] == 1 {
            crate::elementwise::load(isa, self.data, first, out);
        } else {
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.data.get(first + i * self.steps[1]);
            }
        }
    }
}

/// b in panels: for each 64 columns (or all, if they are fewer), k rows of them.
pub struct Packed<'a> {
    data: Scratch<'a>,
    depth: usize,
    columns: usize,
    /// Columns of a panel.
    width: usize,
}

impl<'a> Packed<'a> {
    pub fn new(cpu: &'a Cpu, b: Matrix<'_>, depth: usize, columns: usize) -> Self {
        let width = columns.next_multiple_of(16).min(TILE_COLUMNS);
        let mut data = cpu.scratch(columns.next_multiple_of(width.max(1)) * depth);
        let pack = |panel: usize, out: &mut [f32]| {
            let from = panel * width;
            let live = width.min(columns - from);
            if b.steps[1] == 1 {
                for (k, out) in out.chunks_exact_mut(width).enumerate() {
                    b.row(cpu.isa(), k, from, &mut out[..live]);
                }
            } else {
                // Stored by columns: read those in order.
                let flipped = Matrix { steps: [b.steps[1], b.steps[0]], ..b };
                let mut column = cpu.scratch(depth);
                for c in 0..live {
                    flipped.row(cpu.isa(), from + c, 0, &mut column);
                    for (k, &v) in column.iter().enumerate() {
                        out[k * width + c] = v;
                    }
                }
            }
        };
        cpu.run(|| {
            Part::F32(&mut data).each(depth * width, |panel, part| {
                if let Part::F32(out) = part {
                    pack(panel, out);
                }
            })
        });
        Self { data, depth, columns, width }
    }
}

impl Packed<'_> {
    /// Rows `k..` of the panel of columns `from..`, a multiple of [`TILE_COLUMNS`].
    pub fn panel(&self, k: usize, from: usize) -> &[f32] {
        &self.data[(from / TILE_COLUMNS * self.depth + k) * self.width..]
    }

    /// Elements from one row of a panel to the next.
    pub const fn step(&self) -> usize {
        self.width
    }
}

impl Cpu {
    pub(crate) fn run_gemm(&self, p: &Gemm, a: &Memory, b: &Memory, bias: Option<&Memory>, y: Store<'_, Self>) {
        let [m, n, k] = p.mnk().map(|size| size as usize);
        let [lda, ldb, ldy] = p.lead().map(|lead| lead as usize);
        let [stride_a, stride_b, stride_y] = p.strides().map(|stride| stride as usize);
        let [ta, tb] = p.transposed();
        let steps = |transposed: bool, lead: usize| if transposed { [1, lead] } else { [lead, 1] };
        let epilogue = Epilogue::of(&y, self.isa());
        let Store { y, table, to, .. } = y;
        let mut rows = Vec::new();
        let bias = bias.map(|bias| (0..n).map(|j| bias.get(j)).collect::<Vec<f32>>());
        let mut shared: Option<Packed<'_>> = None;
        for z in 0..p.batch() as usize {
            if m == 0 || n == 0 {
                continue;
            }
            // With a stride of 0 all products use one b.
            if stride_b != 0 || shared.is_none() {
                let matrix = Matrix { data: b, start: z * stride_b, steps: steps(tb, ldb) };
                shared = Some(Packed::new(self, matrix, k, n));
            }
            let Some(b) = &shared else { continue };
            let a = Matrix { data: a, start: z * stride_a, steps: steps(ta, lda) };
            let end = z * stride_y + (m - 1) * ldy + n;
            let mut all = destination(y, end);
            let block = m.div_ceil(16).next_multiple_of(tile_rows(TILE_COLUMNS)).min(ROWS);
            let seen = self.run(|| {
                all.range(z * stride_y..end).each(block * ldy, |i, part| {
                    self.block(a, i * block, block.min(m - i * block), b, bias.as_deref(), ldy, &epilogue, part)
                })
            });
            rows.extend(seen);
        }
        merge(&epilogue, &rows, |row| table.merge(to, row));
    }

    /// Rows `first..first + rows` of a product.
    #[expect(clippy::too_many_arguments, reason = "what a block of a product depends on")]
    fn block(
        &self, a: Matrix<'_>, first: usize, rows: usize, b: &Packed<'_>, bias: Option<&[f32]>, ldy: usize,
        epilogue: &Epilogue, mut y: Part<'_>,
    ) -> Stats {
        let mut sums = self.scratch(rows * b.columns);
        let mut packed = self.scratch(rows * DEPTH.min(b.depth));
        for start in (0..b.depth).step_by(DEPTH) {
            let depth = DEPTH.min(b.depth - start);
            for (r, out) in packed.chunks_exact_mut(depth).take(rows).enumerate() {
                a.row(self.isa(), first + r, start, out);
            }
            for from in (0..b.columns).step_by(TILE_COLUMNS) {
                let columns = TILE_COLUMNS.min(b.columns - from);
                let panel = b.panel(start, from);
                let height = tile_rows(columns);
                for r in (0..rows).step_by(height) {
                    let tile = Tile {
                        a: &packed[r * depth..],
                        a_row: depth,
                        a_step: 1,
                        b: panel,
                        b_step: b.step(),
                        depth,
                        rows: height.min(rows - r),
                        columns,
                    };
                    self.isa().tile(&tile, &mut sums[r * b.columns + from..], b.columns);
                }
            }
        }
        let mut row = epilogue.row();
        for (r, sums) in sums.chunks_exact_mut(b.columns).enumerate() {
            if let Some(bias) = bias {
                sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
            }
            epilogue.finish(sums, y.range(r * ldy..r * ldy + b.columns), &mut row);
        }
        row
    }
}
