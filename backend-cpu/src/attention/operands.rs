//! Keys and values of one head, as the microkernel reads them.

use super::Left;
use crate::{
    Cpu, Memory,
    arch::{Isa, KSegment, MicroKernelArgs},
    elementwise::load_f32,
    gemm::{Matrix, Packed},
    workspace::Workspace,
};

/// Right side of a product: f32 in panels of a few columns.
pub(super) enum Operand<'a> {
    /// Matrix by rows. Its panels are parts of its rows.
    Rows { data: &'a [f32], columns: usize },
    /// Transposed matrix in contiguous panels.
    Panels(Packed<'a>),
}

impl<'a> Operand<'a> {
    /// Packs the transposed matrix of rows of `width` elements that begin at `start`.
    pub fn transposed(cpu: &'a Cpu, data: &Memory, start: usize, [rows, width]: [usize; 2]) -> Self {
        let matrix = Matrix { data, start, strides: [1, width] };
        Self::Panels(Packed::new_on_this_thread(cpu, &[matrix], width, rows))
    }

    /// Adds the product with the first `depth` rows and `columns` columns to sums, whose rows are `stride` elements apart,
    /// or replaces them by it.
    pub fn multiply(
        &self, isa: Isa, a: Left<'_>, [rows, columns, depth]: [usize; 3], overwrite: bool, sums: &mut [f32],
        stride: usize,
    ) {
        let (panel_columns, b_k_stride) = match self {
            Self::Rows { columns, .. } => (isa.tile_columns(), *columns),
            Self::Panels(panels) => (panels.nr, panels.nr),
        };
        for from in (0..columns).step_by(panel_columns) {
            let b = match self {
                Self::Rows { data, .. } => &data[from..],
                Self::Panels(panels) => panels.panel(0, from),
            };
            let tiles = MicroKernelArgs {
                a: a.data,
                a_row_stride: a.row_stride,
                a_k_stride: a.k_stride,
                b,
                b_k_stride,
                k_segments: &[KSegment { a: 0, b: 0, depth }],
                rows,
                columns: panel_columns.min(columns - from),
                overwrite,
                prefetch: &[],
            };
            isa.accumulate_tile(&tiles, &mut sums[from..], stride);
        }
    }
}

/// Loads rows of a matrix as f32 into a workspace.
pub(super) fn load_rows<'a>(cpu: &'a Cpu, x: &Memory, start: usize, len: usize) -> Workspace<'a> {
    let mut rows = cpu.workspace(len);
    load_f32(cpu.isa(), x, start, &mut rows);
    rows
}
