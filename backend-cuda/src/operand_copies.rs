//! Copies of f16 operands in scratch memory, so that kernels for aligned operands take products of any size.
//!
//! Rows of any length are copied to rows of whole 16-byte vectors, with zeros at their end. For example, the scores of
//! attention over 65 tokens are copied to rows of 72. The kernel for unaligned operands takes 12 instructions for each
//! element of a matrix, and about 100 for one of a convolution; a copy is made at the speed of memory.
//!
//! Copies take at most [`Cuda::max_copy_bytes`] of the operand that has the rows of the result. A larger one is copied in
//! bands, and each band is a product of its own. For example, the gradient of the logits of 16 384 tokens and 50 257
//! words is 1.6 GB. Bands divide rows, never a sum. A band also stays in L2 until it is multiplied.

use crate::{
    Cuda, Error,
    gemm::Operands,
    gemm_problem::{GemmProblem, ResultPlacement},
    kernel_selection::KernelConfig,
    kernels::PAD,
    memory::Memory,
    workspace::{WorkspaceKind, split_k_workspace_bytes},
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::Store,
    ops::{Gemm, GemmShape},
};

/// Copy of rows of halves to rows of whole vectors: `PadParams` of `pad.cu`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct RowCopy {
    from: u64,
    pub to: u64,
    /// Rows of the copy: outer, middle, inner.
    counts: [u32; 3],
    /// Halves of the operand from one such row to the next.
    strides: [u32; 3],
    /// Halves of a row of the operand.
    row_len: u32,
    /// 16-byte vectors of a row of the copy.
    row_vec8s: u32,
    /// Outer rows that the operand has.
    pub outer_rows: u32,
    unused: u32,
}

impl RowCopy {
    /// Describes a copy of rows of `row_len` halves; counts and strides are outer, middle, inner.
    pub fn new(from: u64, to: u64, counts: [u32; 3], strides: [u32; 3], row_len: u32) -> Self {
        let (row_vec8s, outer_rows) = (row_len.div_ceil(8), counts[0]);
        Self { from, to, counts, strides, row_len, row_vec8s, outer_rows, unused: 0 }
    }

    /// Returns the number of rows of the copy.
    fn rows(&self) -> u64 {
        self.counts.into_iter().map(u64::from).product()
    }

    /// Returns the bytes of the copy.
    pub fn bytes(&self) -> u64 {
        16 * u64::from(self.row_vec8s) * self.rows()
    }
}

/// Elements to whose multiples rows are padded.
pub(crate) const VEC8: u32 = 8;
/// Rows of which a band has a multiple: those of the largest tile.
const BAND_ROWS: u32 = 128;

/// Rows of one operand of a matrix product, as they are stored.
#[derive(Clone, Copy)]
struct OperandRows {
    /// Elements from matrix to matrix and from row to row.
    strides: [u32; 2],
    /// True if rows are along m of a or n of b, and k is contiguous.
    is_k_contiguous: bool,
    is_aligned: bool,
}

impl OperandRows {
    /// Describes both operands of a product.
    fn of_gemm(p: &Gemm) -> [Self; 2] {
        let (GemmShape { m, n, k }, [ta, tb], lead, strides) = (p.shape(), p.transposed(), p.lead(), p.strides());
        let rows = |is_k_contiguous, row_len: u32, lead: u32, stride: u32| Self {
            strides: [stride, lead],
            is_k_contiguous,
            is_aligned: [row_len, lead, stride].into_iter().all(|size| size.is_multiple_of(VEC8)),
        };
        [rows(!ta, if ta { m } else { k }, lead[0], strides[0]), rows(tb, if tb { k } else { n }, lead[1], strides[1])]
    }

    /// Returns the number of rows and their length, of `side` elements of m or n.
    fn size(&self, side: u32, k: u32) -> [u32; 2] {
        if self.is_k_contiguous { [side, k] } else { [k, side] }
    }

    /// Returns the bytes of the copy of one matrix, 0 if it needs none.
    fn copy_bytes(&self, side: u32, k: u32) -> u64 {
        let [rows, row_len] = self.size(side, k);
        if self.is_aligned { 0 } else { 2 * u64::from(rows) * u64::from(row_len.next_multiple_of(VEC8)) }
    }

    /// Returns the strides of a product's operand (side, k, matrix) after a copy of `side` elements of m or n.
    fn copied_strides(&self, side: u32, k: u32) -> [u32; 3] {
        let [rows, row_len] = self.size(side, k);
        let [stride, lead] = self.strides;
        let [stride, lead] = if self.is_aligned {
            [stride, lead]
        } else {
            let lead = row_len.next_multiple_of(VEC8);
            // One matrix for all products stays one.
            [if stride == 0 { 0 } else { rows * lead }, lead]
        };
        if self.is_k_contiguous { [lead, 1, stride] } else { [1, lead, stride] }
    }

    /// Returns the address of matrix `matrix` from `side` of m or n on.
    fn address(&self, at: u64, matrix: u32, side: u32) -> u64 {
        let [stride, lead] = self.strides.map(u64::from);
        let step = if self.is_k_contiguous { lead } else { 1 };
        at + 2 * (u64::from(matrix) * stride + u64::from(side) * step)
    }

    /// Returns the copy of `matrices` matrices of `side` elements of m or n.
    fn copy(&self, from: u64, to: u64, matrices: u32, side: u32, k: u32) -> RowCopy {
        let [rows, row_len] = self.size(side, k);
        let [stride, lead] = self.strides;
        let matrices = if stride == 0 { 1 } else { matrices };
        RowCopy::new(from, to, [matrices, 1, rows], [stride, 0, lead], row_len)
    }
}

/// Describes the product of aligned copies of operands, or of the operands that need none, for a band of rows.
fn copied_gemm(problem: &GemmProblem, rows: &[OperandRows; 2], m: u32, batch: u32) -> GemmProblem {
    let GemmShape { n, k, .. } = problem.shape;
    let [b_n, b_k, b_matrix] = rows[1].copied_strides(n, k);
    let mut band = GemmProblem { shape: GemmShape { m, n, k }, batch, is_vectorizable: true, ..*problem };
    band.strides.a = rows[0].copied_strides(m, k);
    band.strides.b = [b_k, b_n, b_matrix];
    band
}

impl Cuda {
    /// Enqueues a copy. The operand has its rows, and the caller has reserved its destination.
    pub(crate) fn copy_rows(&self, copy: &RowCopy) -> Result<(), Error> {
        let blocks = u32::try_from((copy.bytes() / 16).div_ceil(256)).unwrap_or(u32::MAX);
        let blocks = [self.fill_device(&PAD, blocks)?, 1, 1];
        // SAFETY: the operand has these rows, and the caller has reserved the copy.
        unsafe { self.launch(&PAD, blocks, copy) }
    }

    /// Returns the address of scratch memory for copies.
    pub(crate) fn copies_workspace(&self, bytes: u64) -> Result<u64, Error> {
        self.workspace_address(WorkspaceKind::PaddedOperands, usize::try_from(bytes).unwrap_or(usize::MAX))
    }

    /// Returns true if a product is faster with copies of operands in `copied_bytes` bytes.
    pub(crate) fn is_copy_faster(&self, problems: [&GemmProblem; 2], copied_bytes: u64) -> bool {
        let workspace_bytes = split_k_workspace_bytes(self.gpu().memory());
        let multiprocessors = self.gpu().multiprocessors();
        KernelConfig::is_copy_faster(problems, copied_bytes, workspace_bytes, multiprocessors, self.tensor_cores())
    }

    /// Returns true if a product of matrices of halves that are not aligned is faster with copies.
    pub(crate) fn is_copied_gemm_faster(&self, p: &Gemm) -> bool {
        if p.shape().m == 0 || p.shape().n == 0 || p.shape().k == 0 || p.batch() == 0 {
            return false;
        }
        let (problem, rows) = (GemmProblem::gemm(p), OperandRows::of_gemm(p));
        let GemmShape { m, n, k } = p.shape();
        let bytes = u64::from(p.batch()) * (rows[0].copy_bytes(m, k) + rows[1].copy_bytes(n, k));
        self.is_copy_faster([&problem, &copied_gemm(&problem, &rows, m, p.batch())], bytes)
    }

    /// Computes a product of matrices of halves from aligned copies of those that are not.
    pub(crate) fn run_copied_gemm(
        &self, p: &Gemm, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>,
    ) -> Result<(), Error> {
        let (problem, rows) = (GemmProblem::gemm(p), OperandRows::of_gemm(p));
        let (GemmShape { m, n, k }, batch) = (p.shape(), p.batch());
        let [a_bytes, b_bytes] = [rows[0].copy_bytes(m, k), rows[1].copy_bytes(n, k)];
        // Whole matrices if one fits, otherwise rows of one matrix.
        let max_bytes = self.max_copy_bytes();
        let matrices = (max_bytes / (a_bytes + b_bytes).max(1)).clamp(1, u64::from(batch.max(1)));
        let matrices = u32::try_from(matrices).unwrap_or(batch);
        let band_rows = if a_bytes <= max_bytes {
            m
        } else {
            let row_bytes = a_bytes.div_ceil(u64::from(m));
            let fitting = u32::try_from(max_bytes / row_bytes).unwrap_or(m) / BAND_ROWS * BAND_ROWS;
            fitting.clamp(BAND_ROWS, m.next_multiple_of(BAND_ROWS))
        };
        let a_bytes = rows[0].copy_bytes(band_rows.min(m), k) * u64::from(matrices);
        let a_copy = self.copies_workspace(a_bytes + b_bytes * u64::from(matrices))?;
        let b_copy = a_copy + a_bytes;
        for matrix in (0..batch).step_by(matrices as usize) {
            let matrices = matrices.min(batch - matrix);
            let mut b = rows[1].address(x.at[1], matrix, 0);
            if !rows[1].is_aligned {
                self.copy_rows(&rows[1].copy(b, b_copy, matrices, n, k))?;
                b = b_copy;
            }
            for row in (0..m).step_by(band_rows as usize) {
                let m = band_rows.min(m - row);
                let mut a = rows[0].address(x.at[0], matrix, row);
                if !rows[0].is_aligned {
                    self.copy_rows(&rows[0].copy(a, a_copy, matrices, m, k))?;
                    a = a_copy;
                }
                let band = copied_gemm(&problem, &rows, m, matrices);
                let start = matrix * problem.y_stride + row * problem.ldy;
                let band = GemmProblem { placement: ResultPlacement { start, ..band.placement }, ..band };
                self.launch_problem(&band, &Operands { at: [a, b], types: x.types, parts: None }, bias, y, None)?;
            }
        }
        Ok(())
    }
}
