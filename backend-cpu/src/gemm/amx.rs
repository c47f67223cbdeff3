//! Products of halves on the matrix unit.
//!
//! Both operands are packed as pairs of bf16: b once, in panels of two tiles' columns, a block by block. A block whose
//! halves are not all finite is left to the other kernels.

use super::{GemmShape, Matrix};
use crate::{
    Cpu, Memory,
    arch::amx::{Amx, K_BLOCK, KSegment, SourceLines, TILE_DIM, TileGemm, as_bf16, as_bf16_mut},
    threading::Cost,
    workspace::Workspace,
};
use half::f16;

/// Steps of k between two visits to the accumulators: a panel of b takes 64 KiB.
const KC: usize = 512;
/// Rows of the largest tiles, and most rows of a block.
pub const MR: usize = 2 * TILE_DIM;
pub const MC: usize = 4 * MR;
/// Columns of a panel.
const NR: usize = 2 * TILE_DIM;
/// Elements between packed rows: upper and lower parts, and a cache line, so that rows do not take each other's place.
const LDA: usize = 2 * KC + K_BLOCK;
/// Blocks of a panel that one thread packs at a time.
const PACK_BLOCKS_PER_TASK: usize = 4;

/// Products of a row below which packing it costs more than tiles save. A row of 16 steps by 11 columns took 20 ns on a
/// Xeon with AMX (8.8 GMAC/s of one thread), nearly all of it packing; AVX-512 takes as long for some 1400 products.
const MIN_MACS_PER_ROW: usize = 2048;

/// Whether tiles are filled well enough by a product of so many rows, steps and columns, and packing pays.
pub fn is_worthwhile(GemmShape { m, n, k }: GemmShape) -> bool {
    k * n >= MIN_MACS_PER_ROW && m.next_multiple_of(TILE_DIM) * k.next_multiple_of(K_BLOCK) <= 2 * m * k
}

/// A matrix of halves inside a buffer.
#[derive(Clone, Copy)]
pub struct F16Matrix<'a> {
    data: &'a [f16],
    /// Elements between rows and between columns, one of which is 1.
    strides: [usize; 2],
}

/// b in panels: for every 32 steps of k upper and lower parts of all columns.
pub struct Bf16Panels<'a> {
    data: Workspace<'a>,
    /// Steps, and columns of the matrix and of a panel.
    depth: usize,
    columns: usize,
    nr: usize,
}

impl<'a> F16Matrix<'a> {
    /// A matrix, if it is one of halves whose rows or columns lie in order.
    pub fn from_matrix(matrix: Matrix<'a>) -> Option<Self> {
        match matrix.data {
            Memory::F16(data) if matrix.strides.contains(&1) => {
                Some(Self { data: &data[matrix.start..], strides: matrix.strides })
            }
            Memory::F16(_) | Memory::F32(_) | Memory::U8(_) | Memory::U32(_) => None,
        }
    }

    /// So many rows and columns from a place on, as lines: of rows, or of what is packed as rows where `transposed`.
    fn lines(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2], transposed: bool) -> SourceLines<'a> {
        let data = &self.data[row * self.strides[0] + column * self.strides[1]..];
        if self.strides[1] == 1 {
            SourceLines { data, step: self.strides[0], count: rows, len: columns, is_k_major: transposed }
        } else {
            SourceLines { data, step: self.strides[1], count: columns, len: rows, is_k_major: !transposed }
        }
    }
}

impl F16Matrix<'_> {
    /// Packs rows and columns from a place on as first operand: row by row, `LDA` elements apart, upper parts first. False
    /// if something is not finite.
    fn pack_a(&self, amx: Amx, [row, column]: [usize; 2], [rows, columns]: [usize; 2], out: &mut [u16]) -> bool {
        if self.strides[1] == 1 {
            return (0..rows).zip(out.chunks_exact_mut(LDA)).all(|(r, out)| {
                let x = &self.data[(row + r) * self.strides[0] + column..][..columns];
                amx.split_to_bf16(x, K_BLOCK, KC, out)
            });
        }
        (0..rows).step_by(TILE_DIM).zip(out.chunks_exact_mut(TILE_DIM * LDA)).all(|(r, out)| {
            (0..columns).step_by(K_BLOCK).all(|k| {
                let lines =
                    self.lines([row + r, column + k], [TILE_DIM.min(rows - r), K_BLOCK.min(columns - k)], false);
                amx.pack_a_tile(&lines, LDA, KC, &mut out[k..])
            })
        })
    }
}

impl<'a> Bf16Panels<'a> {
    /// A matrix, if all of it is finite.
    pub fn new(cpu: &'a Cpu, amx: Amx, b: F16Matrix<'_>, depth: usize, columns: usize) -> Option<Self> {
        let nr = if columns <= TILE_DIM { TILE_DIM } else { NR };
        let (blocks, block) = (depth.div_ceil(K_BLOCK), nr * K_BLOCK);
        let mut data = cpu.workspace(columns.div_ceil(nr) * blocks * block);
        let cost = Cost::elements(data.len());
        let finite = cpu.par_chunks_mut(cost, &mut data, PACK_BLOCKS_PER_TASK * block, |i, out| {
            let pack = |(i, out): (usize, &mut [f32])| {
                let (from, k) = (i / blocks * nr, i % blocks * K_BLOCK);
                let out = as_bf16_mut(out);
                (from..columns.min(from + nr)).step_by(TILE_DIM).all(|column| {
                    let size = [K_BLOCK.min(depth - k), TILE_DIM.min(columns - column)];
                    let (lines, at) = (b.lines([k, column], size, true), 2 * (column - from));
                    amx.pack_b_tile(&lines, 2 * nr, block, &mut out[at..])
                })
            };
            (i * PACK_BLOCKS_PER_TASK..).zip(out.chunks_exact_mut(block)).all(pack)
        });
        finite.into_iter().all(|finite| finite).then_some(Self { data, depth, columns, nr })
    }
}

impl Bf16Panels<'_> {
    /// Rows and columns.
    pub const fn size(&self) -> [usize; 2] {
        [self.depth, self.columns]
    }
}

impl Cpu {
    /// Rows `first..` of a product, whatever was in their sums: false if a is not finite there.
    pub(super) fn multiply_block_amx(
        &self, amx: Amx, a: F16Matrix<'_>, first: usize, b: &Bf16Panels<'_>, sums: &mut [f32],
    ) -> bool {
        let rows = sums.len() / b.columns;
        let block = b.nr * K_BLOCK;
        let mut packed = self.workspace(rows.next_multiple_of(TILE_DIM) * LDA / 2);
        for start in (0..b.depth).step_by(KC) {
            let depth = KC.min(b.depth - start);
            if !a.pack_a(amx, [first, start], [rows, depth], as_bf16_mut(&mut packed)) {
                return false;
            }
            let blocks = depth.div_ceil(K_BLOCK);
            for from in (0..b.columns).step_by(b.nr) {
                let panel = from / b.nr * b.depth.div_ceil(K_BLOCK) + start / K_BLOCK;
                let product = TileGemm {
                    a: as_bf16(&packed),
                    a_low: KC,
                    a_row: LDA,
                    a_step: K_BLOCK,
                    b: as_bf16(&b.data),
                    b_low: block,
                    b_row: 2 * b.nr,
                    b_step: 2 * block,
                    k_segments: &[KSegment { a: 0, b: panel * 2 * block, blocks }],
                    rows,
                    columns: b.nr.min(b.columns - from),
                };
                amx.multiply(&product, start != 0, &mut sums[from..], b.columns);
            }
        }
        true
    }
}
