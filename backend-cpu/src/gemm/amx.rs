//! Products of halves on the matrix unit (AMX).
//!
//! Both operands are packed as pairs of bf16: B once, in panels of two tiles' columns, A block by block. A block of A
//! with a value that is not finite is left to the f32 kernels, because infinity and NaN are not sums of two bf16.

use super::{Matrix, sizes};
use crate::{
    Cpu, Memory,
    arch::amx::{Amx, K_BLOCK, KSegment, SourceLines, TILE_DIM, TileGemm, as_bf16, as_bf16_mut},
    threading::Cost,
    workspace::Workspace,
};
use gradscale_core::ops::GemmShape;
use half::f16;

/// Number of steps of k between two visits to the sums: a panel of B, with upper and lower parts, takes 64 KiB.
const KC: usize = 512;
/// Number of rows of the largest register tile, and maximum number of rows of a block.
pub const MR: usize = 2 * TILE_DIM;
pub const MC: usize = 4 * MR;
/// Maximum number of columns of a panel of B.
const NR: usize = 2 * TILE_DIM;
/// Number of elements between packed rows: upper and lower parts, and one cache line more, so that rows do not share
/// sets of L1.
const LDA: usize = 2 * KC + K_BLOCK;
/// Number of blocks of a panel of B that one task packs.
const PACK_BLOCKS_PER_TASK: usize = 4;

/// Number of multiply-accumulates of a row (k · n) below which packing A costs more than AMX saves. Measured on a Xeon
/// with AMX: a row of 16 steps by 11 columns took 20 ns (8.8 GMAC/s on one thread), nearly all of it packing. AVX-512
/// does some 1400 multiply-accumulates in that time.
const MIN_MACS_PER_ROW: usize = 2048;

/// Returns whether AMX is worth its packing: long enough rows, and at most half of each tile empty.
pub fn is_worthwhile(shape: GemmShape) -> bool {
    let [m, n, k] = sizes(shape);
    k * n >= MIN_MACS_PER_ROW && m.next_multiple_of(TILE_DIM) * k.next_multiple_of(K_BLOCK) <= 2 * m * k
}

/// Matrix of halves in a buffer, stored by rows or by columns.
#[derive(Clone, Copy)]
pub struct F16Matrix<'a> {
    data: &'a [f16],
    /// Numbers of elements from row to row and from column to column, one of which is 1.
    strides: [usize; 2],
}

/// B in panels: for every 32 steps of k the upper and the lower parts of all columns.
pub struct Bf16Panels<'a> {
    data: Workspace<'a>,
    /// Number of steps of k, of columns of the matrix, and of columns of a panel.
    depth: usize,
    columns: usize,
    nr: usize,
}

impl<'a> F16Matrix<'a> {
    /// Returns the view of a matrix of halves whose rows or columns are contiguous; `None` for others.
    pub fn from_matrix(matrix: Matrix<'a>) -> Option<Self> {
        match matrix.data {
            Memory::F16(data) if matrix.strides.contains(&1) => {
                Some(Self { data: &data[matrix.start..], strides: matrix.strides })
            }
            Memory::F16(_) | Memory::F32(_) | Memory::U8(_) | Memory::U32(_) => None,
        }
    }

    /// Returns part of the matrix as source lines of a tile. `transposed`: the tile's rows are columns of the matrix.
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
    /// Packs part of the matrix as A: rows `LDA` elements apart, upper parts first. Returns false if a value is not
    /// finite.
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
    /// Packs B as panels of bf16 parts; `None` if a value is not finite.
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
    /// Returns the numbers of rows and columns of B.
    pub const fn size(&self) -> [usize; 2] {
        [self.depth, self.columns]
    }
}

impl Cpu {
    /// Computes rows `first..` of a product and overwrites `sums`. Returns false if A has a value there that is not
    /// finite.
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
