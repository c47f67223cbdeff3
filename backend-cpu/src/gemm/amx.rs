//! Products of halves on the matrix unit.
//!
//! Both operands are packed as pairs of bf16: b once, in panels of two tiles' columns, a block by block. A block whose
//! halves are not all finite is left to the other kernels.

use super::Matrix;
use crate::{
    Cpu, Memory,
    arch::amx::{Amx, DEPTH, Lines, Product, Run, SIDE, words, words_mut},
    parallel::Cost,
    scratch::Scratch,
};
use half::f16;

/// Steps of k between two visits to the accumulators: a panel of b takes 64 KiB.
const STEPS: usize = 512;
/// Columns of a panel.
const WIDTH: usize = 2 * SIDE;
/// Blocks of a panel that one thread packs at a time.
const PACKED: usize = 4;

/// Whether tiles are filled well enough by a product of so many rows and steps.
pub fn worthwhile([m, k]: [usize; 2]) -> bool {
    m.next_multiple_of(SIDE) * k.next_multiple_of(DEPTH) <= 2 * m * k
}

/// A matrix of halves inside a buffer.
#[derive(Clone, Copy)]
pub struct Halves<'a> {
    data: &'a [f16],
    /// Elements between rows and between columns, one of which is 1.
    steps: [usize; 2],
}

/// b in panels: for every 32 steps of k upper and lower parts of all columns.
pub struct Panels<'a> {
    data: Scratch<'a>,
    /// Steps, and columns of the matrix and of a panel.
    depth: usize,
    columns: usize,
    width: usize,
}

impl<'a> Halves<'a> {
    /// A matrix, if it is one of halves whose rows or columns lie in order.
    pub fn of(matrix: Matrix<'a>) -> Option<Self> {
        match matrix.data {
            Memory::F16(data) if matrix.steps.contains(&1) => {
                Some(Self { data: &data[matrix.start..], steps: matrix.steps })
            }
            Memory::F16(_) | Memory::F32(_) | Memory::U8(_) | Memory::U32(_) => None,
        }
    }

    /// So many rows and columns from a place on, as lines: of rows, or of what is packed as rows where `turned`.
    fn lines(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2], turned: bool) -> Lines<'a> {
        let data = &self.data[row * self.steps[0] + column * self.steps[1]..];
        if self.steps[1] == 1 {
            Lines { data, step: self.steps[0], count: rows, len: columns, steps: turned }
        } else {
            Lines { data, step: self.steps[1], count: columns, len: rows, steps: !turned }
        }
    }
}

impl<'a> Panels<'a> {
    /// A matrix, if all of it is finite.
    pub fn new(cpu: &'a Cpu, amx: Amx, b: Halves<'_>, depth: usize, columns: usize) -> Option<Self> {
        let width = if columns <= SIDE { SIDE } else { WIDTH };
        let (blocks, block) = (depth.div_ceil(DEPTH), width * DEPTH);
        let mut data = cpu.scratch(columns.div_ceil(width) * blocks * block);
        let cost = Cost::elements(data.len());
        let finite = cpu.pieces_of(cost, &mut data, PACKED * block, |i, out| {
            let pack = |(i, out): (usize, &mut [f32])| {
                let (from, k) = (i / blocks * width, i % blocks * DEPTH);
                let (high, low) = words_mut(out).split_at_mut(block);
                (from..columns.min(from + width)).step_by(SIDE).all(|column| {
                    let size = [DEPTH.min(depth - k), SIDE.min(columns - column)];
                    let (lines, at) = (b.lines([k, column], size, true), 2 * (column - from));
                    amx.columns(&lines, width, &mut high[at..], &mut low[at..])
                })
            };
            (i * PACKED..).zip(out.chunks_exact_mut(block)).all(pack)
        });
        finite.into_iter().all(|finite| finite).then_some(Self { data, depth, columns, width })
    }
}

impl Panels<'_> {
    /// Rows and columns.
    pub const fn size(&self) -> [usize; 2] {
        [self.depth, self.columns]
    }
}

impl Cpu {
    /// Sums of rows `first..` of a product: false if a is not finite there.
    pub(super) fn sums_by_tiles(&self, amx: Amx, a: Halves<'_>, first: usize, b: &Panels<'_>, sums: &mut [f32]) -> bool {
        let rows = sums.len() / b.columns;
        let padded = rows.next_multiple_of(SIDE);
        let (tile, block) = (padded * DEPTH, b.width * DEPTH);
        let mut packed = self.scratch(padded * STEPS.min(b.depth.next_multiple_of(DEPTH)));
        for start in (0..b.depth).step_by(STEPS) {
            let depth = STEPS.min(b.depth - start);
            let mut finite = true;
            for (k, out) in (0..depth).step_by(DEPTH).zip(words_mut(&mut packed).chunks_exact_mut(2 * tile)) {
                let (high, low) = out.split_at_mut(tile);
                for r in (0..rows).step_by(SIDE) {
                    let size = [SIDE.min(rows - r), DEPTH.min(depth - k)];
                    let lines = a.lines([first + r, start + k], size, false);
                    finite &= amx.rows(&lines, &mut high[r * DEPTH..], &mut low[r * DEPTH..]);
                }
            }
            if !finite {
                return false;
            }
            let blocks = depth.div_ceil(DEPTH);
            for from in (0..b.columns).step_by(b.width) {
                let panel = from / b.width * b.depth.div_ceil(DEPTH) + start / DEPTH;
                let product = Product {
                    a: words(&packed),
                    a_low: tile,
                    a_row: DEPTH,
                    a_step: 2 * tile,
                    b: words(&b.data),
                    b_low: block,
                    b_row: 2 * b.width,
                    b_step: 2 * block,
                    runs: &[Run { a: 0, b: panel * 2 * block, blocks }],
                    rows,
                    columns: b.width.min(b.columns - from),
                };
                amx.multiply(&product, &mut sums[from..], b.columns);
            }
        }
        true
    }
}
