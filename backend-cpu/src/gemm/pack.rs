//! Packing of B into panels.

use crate::{
    Cpu, Memory,
    arch::{Isa, LANES},
    threading::Cost,
    workspace::Workspace,
};
use core::ops::Range;

/// Matrix in a buffer, with any strides between rows and columns.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub data: &'a Memory,
    pub start: usize,
    /// Numbers of elements from one row to the next, and from one column to the next.
    pub strides: [usize; 2],
}

impl Matrix<'_> {
    /// Returns the transposed view of the matrix.
    pub const fn transposed(self) -> Self {
        Self { strides: [self.strides[1], self.strides[0]], ..self }
    }

    /// Returns true if the matrix is stored by columns.
    pub const fn is_column_major(self) -> bool {
        self.strides[0] == 1 && self.strides[1] != 1
    }

    /// Converts part of a row to f32: the columns `from..from + out.len()`.
    pub fn copy_row(&self, isa: Isa, row: usize, from: usize, out: &mut [f32]) {
        let first = self.start + row * self.strides[0] + from * self.strides[1];
        if self.strides[1] == 1 {
            crate::elementwise::load_f32(isa, self.data, first, out);
        } else {
            for (i, out) in out.iter_mut().enumerate() {
                *out = self.data.get(first + i * self.strides[1]);
            }
        }
    }
}

/// B as panels of `nr` columns (of all columns, if they are fewer than a tile has), k rows each.
pub struct Packed<'a> {
    data: Workspace<'a>,
    /// Number of rows (k) and of columns (n) of B.
    pub depth: usize,
    pub columns: usize,
    /// Number of columns of a panel: the width of the microkernel.
    pub nr: usize,
}

/// Number of rows of a panel that one task packs: 16 KiB for a panel of 64 columns.
pub const PACK_ROWS_PER_TASK: usize = 64;
/// Number of columns that are transposed together where B is stored by columns. It divides [`LANES`], and so every
/// panel.
const TRANSPOSE_BLOCK: usize = 8;

impl<'a> Packed<'a> {
    /// Packs matrices of `rows` rows each, one below the other, into panels.
    pub fn new(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize) -> Self {
        Self::with_cost(cpu, matrices, rows, columns, Cost::elements(matrices.len() * rows * columns))
    }

    /// Packs matrices like [`Packed::new`], but on the calling thread, which other threads may be waiting for.
    pub fn new_on_this_thread(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize) -> Self {
        Self::with_cost(cpu, matrices, rows, columns, Cost::elements(0))
    }

    fn with_cost(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize, cost: Cost) -> Self {
        let nr = columns.next_multiple_of(LANES).min(cpu.isa().tile_columns());
        let depth = matrices.len() * rows;
        let mut data = cpu.workspace(columns.next_multiple_of(nr.max(1)) * depth);
        cpu.par_chunks_mut(cost, &mut data, PACK_ROWS_PER_TASK * nr, |i, mut out| {
            let mut row = i * PACK_ROWS_PER_TASK;
            // A task is cut where a panel or a matrix ends.
            while !out.is_empty() {
                let (panel, k) = (row / depth, row % depth);
                let count = (out.len() / nr).min(rows - k % rows);
                let (chunk, rest) = out.split_at_mut(count * nr);
                let valid = panel * nr..columns.min((panel + 1) * nr);
                pack_rows(cpu, matrices[k / rows], k % rows, valid, nr, chunk);
                (row, out) = (row + count, rest);
            }
        });
        Self { data, depth, columns, nr }
    }
}

/// Packs some columns of the rows of B from `k` on into rows of `nr` elements, with zeros after the last column.
pub fn pack_rows(cpu: &Cpu, b: Matrix<'_>, k: usize, columns: Range<usize>, nr: usize, out: &mut [f32]) {
    if b.strides[1] == 1 {
        if let Memory::F16(data) = b.data
            && cpu.isa().loads_f16_directly()
        {
            let first = b.start + k * b.strides[0] + columns.start;
            return cpu.isa().pack_panel_rows(&data[first..], b.strides[0], columns.len(), nr, out);
        }
        for (k, out) in (k..).zip(out.chunks_exact_mut(nr)) {
            let (valid, padding) = out.split_at_mut(columns.len());
            b.copy_row(cpu.isa(), k, columns.start, valid);
            padding.fill(0.0);
        }
        return;
    }
    // B stored by columns: some columns are read in order, and their elements of each row are written together.
    let mut column_block = [[0f32; PACK_ROWS_PER_TASK]; TRANSPOSE_BLOCK];
    let rows = out.len() / nr;
    for first in (0..nr).step_by(TRANSPOSE_BLOCK) {
        for (c, column) in column_block.iter_mut().enumerate() {
            let (column, from) = (&mut column[..rows], columns.start + first + c);
            if from < columns.end {
                b.transposed().copy_row(cpu.isa(), from, k, column);
            } else {
                column.fill(0.0);
            }
        }
        for (k, out) in out.chunks_exact_mut(nr).enumerate() {
            out[first..first + TRANSPOSE_BLOCK].copy_from_slice(&column_block.each_ref().map(|column| column[k]));
        }
    }
}

impl Packed<'_> {
    /// Returns rows `k..` of the panel that begins with column `from`, a multiple of a panel's width.
    pub fn panel(&self, k: usize, from: usize) -> &[f32] {
        &self.data[(from / self.nr * self.depth + k) * self.nr..]
    }

    /// Returns the number of elements from one row of a panel to the next.
    pub const fn row_stride(&self) -> usize {
        self.nr
    }
}
