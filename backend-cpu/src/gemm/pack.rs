//! The second operand in panels.

use crate::{
    Cpu, Memory,
    arch::{Isa, LANES},
    threading::Cost,
    workspace::Workspace,
};
use core::ops::Range;

/// A matrix inside a buffer.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub data: &'a Memory,
    pub start: usize,
    /// Elements between rows and between columns.
    pub steps: [usize; 2],
}

impl Matrix<'_> {
    /// The transposed one.
    pub const fn turned(self) -> Self {
        Self { steps: [self.steps[1], self.steps[0]], ..self }
    }

    /// Whether it is stored column by column.
    pub const fn by_columns(self) -> bool {
        self.steps[0] == 1 && self.steps[1] != 1
    }

    /// Copies columns `from..from + out.len()` of a row, as f32.
    pub fn row(&self, isa: Isa, row: usize, from: usize, out: &mut [f32]) {
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

/// b in panels: for as many columns as a tile has (or all, if they are fewer), k rows of them.
pub struct Packed<'a> {
    data: Workspace<'a>,
    /// Rows and columns.
    pub depth: usize,
    pub columns: usize,
    /// Columns of a panel.
    pub width: usize,
}

/// Rows that one thread packs at a time.
pub const PACKED_ROWS: usize = 64;
/// Columns that are read together where b is stored by them: a divisor of [`LANES`], and so of a panel's.
const TURNED: usize = 8;

impl<'a> Packed<'a> {
    /// Matrices of `rows` rows each, one below the other.
    pub fn new(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize) -> Self {
        Self::of(cpu, matrices, rows, columns, Cost::elements(matrices.len() * rows * columns))
    }

    /// The same on the caller's thread, which others may wait for.
    #[cfg(target_arch = "x86_64")]
    pub fn alone(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize) -> Self {
        Self::of(cpu, matrices, rows, columns, Cost::elements(0))
    }

    fn of(cpu: &'a Cpu, matrices: &[Matrix<'_>], rows: usize, columns: usize, cost: Cost) -> Self {
        let width = columns.next_multiple_of(LANES).min(cpu.isa().tile_columns());
        let depth = matrices.len() * rows;
        let mut data = cpu.workspace(columns.next_multiple_of(width.max(1)) * depth);
        cpu.par_chunks_mut(cost, &mut data, PACKED_ROWS * width, |i, mut out| {
            let mut row = i * PACKED_ROWS;
            // Cut where a panel or a matrix ends.
            while !out.is_empty() {
                let (panel, k) = (row / depth, row % depth);
                let count = (out.len() / width).min(rows - k % rows);
                let (here, rest) = out.split_at_mut(count * width);
                let valid = panel * width..columns.min((panel + 1) * width);
                pack(cpu, matrices[k / rows], k % rows, valid, width, here);
                (row, out) = (row + count, rest);
            }
        });
        Self { data, depth, columns, width }
    }
}

/// Packs rows of b from `k` on, some columns of them, `width` with zeros.
pub fn pack(cpu: &Cpu, b: Matrix<'_>, k: usize, columns: Range<usize>, width: usize, out: &mut [f32]) {
    if b.steps[1] == 1 {
        if let Memory::F16(data) = b.data
            && cpu.isa().loads_f16_directly()
        {
            let first = b.start + k * b.steps[0] + columns.start;
            return cpu.isa().pack_panel_rows(&data[first..], b.steps[0], columns.len(), width, out);
        }
        for (k, out) in (k..).zip(out.chunks_exact_mut(width)) {
            let (valid, padding) = out.split_at_mut(columns.len());
            b.row(cpu.isa(), k, columns.start, valid);
            padding.fill(0.0);
        }
        return;
    }
    // Stored by columns: read some of those in order, and write what they have side by side at once.
    let mut some = [[0f32; PACKED_ROWS]; TURNED];
    let rows = out.len() / width;
    for first in (0..width).step_by(TURNED) {
        for (c, column) in some.iter_mut().enumerate() {
            let (column, from) = (&mut column[..rows], columns.start + first + c);
            if from < columns.end {
                b.turned().row(cpu.isa(), from, k, column);
            } else {
                column.fill(0.0);
            }
        }
        for (k, out) in out.chunks_exact_mut(width).enumerate() {
            out[first..first + TURNED].copy_from_slice(&some.each_ref().map(|column| column[k]));
        }
    }
}

impl Packed<'_> {
    /// Rows `k..` of the panel of columns `from..`, a multiple of a panel's.
    pub fn panel(&self, k: usize, from: usize) -> &[f32] {
        &self.data[(from / self.width * self.depth + k) * self.width..]
    }

    /// Elements from one row of a panel to the next.
    pub const fn step(&self) -> usize {
        self.width
    }
}
