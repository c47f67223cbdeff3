//! Products of halves on the matrix unit.
//!
//! Both operands are packed as pairs of bf16: b once, in panels of two tiles' columns, a block by block. A block whose
//! halves are not all finite is left to the other kernels.

use super::Matrix;
use crate::{
    Cpu, Memory,
    arch::amx::{Amx, DEPTH, Lines, Product, Run, SIDE, words, words_mut},
    threading::Cost,
    workspace::Workspace,
};
use half::f16;

/// Steps of k between two visits to the accumulators: a panel of b takes 64 KiB.
const STEPS: usize = 512;
/// Rows of the largest tiles, and most rows of a block.
pub const HEIGHT: usize = 2 * SIDE;
pub const ROWS: usize = 4 * HEIGHT;
/// Columns of a panel.
const WIDTH: usize = 2 * SIDE;
/// Elements between packed rows: upper and lower parts, and a cache line, so that rows do not take each other's place.
const ROW: usize = 2 * STEPS + DEPTH;
/// Blocks of a panel that one thread packs at a time.
const PACKED: usize = 4;

/// Products of a row below which packing it costs more than tiles save. A row of 16 steps by 11 columns took 20 ns on a
/// Xeon with AMX (8.8 GMAC/s of one thread), nearly all of it packing; AVX-512 takes as long for some 1400 products.
const SHORTEST_ROW: usize = 2048;

/// Whether tiles are filled well enough by a product of so many rows, steps and columns, and packing pays.
pub fn worthwhile([m, k, n]: [usize; 3]) -> bool {
    k * n >= SHORTEST_ROW && m.next_multiple_of(SIDE) * k.next_multiple_of(DEPTH) <= 2 * m * k
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
    data: Workspace<'a>,
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

impl Halves<'_> {
    /// Packs rows and columns from a place on as first operand: row by row, `ROW` elements apart, upper parts first. False
    /// if something is not finite.
    fn pack(&self, amx: Amx, [row, column]: [usize; 2], [rows, columns]: [usize; 2], out: &mut [u16]) -> bool {
        if self.steps[1] == 1 {
            return (0..rows).zip(out.chunks_exact_mut(ROW)).all(|(r, out)| {
                let x = &self.data[(row + r) * self.steps[0] + column..][..columns];
                amx.split(x, DEPTH, STEPS, out)
            });
        }
        (0..rows).step_by(SIDE).zip(out.chunks_exact_mut(SIDE * ROW)).all(|(r, out)| {
            (0..columns).step_by(DEPTH).all(|k| {
                let lines = self.lines([row + r, column + k], [SIDE.min(rows - r), DEPTH.min(columns - k)], false);
                amx.rows(&lines, ROW, STEPS, &mut out[k..])
            })
        })
    }
}

impl<'a> Panels<'a> {
    /// A matrix, if all of it is finite.
    pub fn new(cpu: &'a Cpu, amx: Amx, b: Halves<'_>, depth: usize, columns: usize) -> Option<Self> {
        let width = if columns <= SIDE { SIDE } else { WIDTH };
        let (blocks, block) = (depth.div_ceil(DEPTH), width * DEPTH);
        let mut data = cpu.workspace(columns.div_ceil(width) * blocks * block);
        let cost = Cost::elements(data.len());
        let finite = cpu.par_chunks_mut(cost, &mut data, PACKED * block, |i, out| {
            let pack = |(i, out): (usize, &mut [f32])| {
                let (from, k) = (i / blocks * width, i % blocks * DEPTH);
                let out = words_mut(out);
                (from..columns.min(from + width)).step_by(SIDE).all(|column| {
                    let size = [DEPTH.min(depth - k), SIDE.min(columns - column)];
                    let (lines, at) = (b.lines([k, column], size, true), 2 * (column - from));
                    amx.columns(&lines, 2 * width, block, &mut out[at..])
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
    /// Rows `first..` of a product, whatever was in their sums: false if a is not finite there.
    pub(super) fn sums_by_tiles(
        &self, amx: Amx, a: Halves<'_>, first: usize, b: &Panels<'_>, sums: &mut [f32],
    ) -> bool {
        let rows = sums.len() / b.columns;
        let block = b.width * DEPTH;
        let mut packed = self.workspace(rows.next_multiple_of(SIDE) * ROW / 2);
        for start in (0..b.depth).step_by(STEPS) {
            let depth = STEPS.min(b.depth - start);
            if !a.pack(amx, [first, start], [rows, depth], words_mut(&mut packed)) {
                return false;
            }
            let blocks = depth.div_ceil(DEPTH);
            for from in (0..b.columns).step_by(b.width) {
                let panel = from / b.width * b.depth.div_ceil(DEPTH) + start / DEPTH;
                let product = Product {
                    a: words(&packed),
                    a_low: STEPS,
                    a_row: ROW,
                    a_step: DEPTH,
                    b: words(&b.data),
                    b_low: block,
                    b_row: 2 * b.width,
                    b_step: 2 * block,
                    runs: &[Run { a: 0, b: panel * 2 * block, blocks }],
                    rows,
                    columns: b.width.min(b.columns - from),
                };
                amx.multiply(&product, start != 0, &mut sums[from..], b.columns);
            }
        }
        true
    }
}
