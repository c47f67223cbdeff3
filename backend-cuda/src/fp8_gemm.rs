//! Products of operands of eight bits: both are packed from halves to bytes (`fp8_operands.rs`), and multiplied by tensor
//! cores that read bytes.
//!
//! Sums of up to [`PROMOTION_K`](crate::kernels::PROMOTION_K) products have about 14 significant bits, longer ones are added
//! in f32. A result differs from the exact sum by at most a 60th of the sum of the magnitudes of its products. The bound is
//! that of the emulation, where each product of 128 loses up to 2^-13 of the largest sum. Random operands are within 2^-10.
//!
//! An operand with the rows of the result is packed in bands of at most [`Cuda::max_copy_bytes`], as in
//! `operand_copies.rs`.

use crate::{
    Cuda, Error,
    fp8_operands::{HalfOperand, PackedShape, VECTOR_PAIRS, VECTOR_VALUES},
    gemm::Operands,
    gemm_problem::{GemmKind, GemmProblem, OperandStrides, ResultPlacement},
    kernel_selection::KernelConfig,
    memory::Memory,
};
use gradscale_core::{
    backend::Store,
    ops::{Gemm, GemmShape},
};

/// Rows of which a band has a multiple: those of the largest tile.
const BAND_ROWS: u32 = 128;
impl Cuda {
    /// Computes a product of matrices whose halves are all values of formats of eight bits; `by` chooses the kernel.
    ///
    /// # Errors
    /// [`Error::NoEightBitProducts`] on a device without such products, [`Error::OutOfMemory`], and the driver's.
    pub(crate) fn run_fp8_gemm(
        &self, p: &Gemm, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>, by: Option<KernelConfig>,
    ) -> Result<(), Error> {
        self.require_eight_bit_products()?;
        let (problem, GemmShape { m, n, k }, batch) = (GemmProblem::gemm(p), p.shape(), p.batch());
        if m == 0 || n == 0 || k == 0 || batch == 0 {
            return self.launch_problem(&problem, x, bias, y, None);
        }
        let OperandStrides { a: a_strides, b: [b_k, b_n, b_matrix] } = problem.strides;
        let strides = [a_strides, [b_n, b_k, b_matrix]];
        let [a, b] = [0, 1].map(|i| HalfOperand { at: x.at[i], format: p.formats()[i], strides: strides[i] });
        let vectors = k.div_ceil(VECTOR_VALUES);
        let [row_bytes, max_bytes] = [16 * u64::from(vectors), self.max_copy_bytes()];
        let [a_bytes, b_bytes] = [m, n].map(|rows| u64::from(rows) * row_bytes);
        // Whole matrices if one fits, otherwise rows of one matrix.
        let matrices = (max_bytes / (a_bytes + b_bytes)).clamp(1, u64::from(batch));
        let matrices = u32::try_from(matrices).unwrap_or(batch);
        let band_rows = if a_bytes <= max_bytes {
            m
        } else {
            let fitting = u32::try_from(max_bytes / row_bytes).unwrap_or(m) / BAND_ROWS * BAND_ROWS;
            fitting.clamp(BAND_ROWS, m.next_multiple_of(BAND_ROWS)).min(m)
        };
        let a_pairs = PackedShape::matrices(a.matrix_count(matrices), band_rows, k).pairs()?;
        let b_pairs = PackedShape::matrices(b.matrix_count(matrices), n, k).pairs()?;
        let band = |matrices: u32, rows: u32, start: u32| {
            let row_pairs = vectors * VECTOR_PAIRS;
            let stride = |operand: &HalfOperand, rows: u32| if operand.strides[2] == 0 { 0 } else { rows * row_pairs };
            GemmProblem {
                kind: GemmKind::Matmul([false, true]),
                shape: GemmShape { m: rows, n, k: row_pairs },
                batch: matrices,
                is_vectorizable: true,
                strides: OperandStrides { a: [row_pairs, 1, stride(&a, rows)], b: [1, row_pairs, stride(&b, n)] },
                placement: ResultPlacement { start, ..problem.placement },
                ..problem
            }
        };
        // Before operands are packed, because a self-test needs the same scratch memory.
        let config = match by {
            Some(config) => config,
            None => self.select_fp8_kernel(&band(matrices, band_rows, 0), p.formats())?,
        };
        let a_packed = self.copies_workspace(2 * (u64::from(a_pairs) + u64::from(b_pairs)))?;
        let b_packed = a_packed + 2 * u64::from(a_pairs);
        for matrix in (0..batch).step_by(matrices as usize) {
            let matrices = matrices.min(batch - matrix);
            let b_shape = PackedShape::matrices(b.matrix_count(matrices), n, k);
            self.pack_operand(&b.starting_at(matrix, 0), b_packed, b_shape)?;
            for row in (0..m).step_by(band_rows as usize) {
                let rows = band_rows.min(m - row);
                let a_shape = PackedShape::matrices(a.matrix_count(matrices), rows, k);
                self.pack_operand(&a.starting_at(matrix, row), a_packed, a_shape)?;
                let band = band(matrices, rows, matrix * problem.y_stride + row * problem.ldy);
                let packed = Operands { at: [a_packed, b_packed], types: x.types, parts: None };
                self.launch_problem(&band, &packed, bias, y, Some(config))?;
            }
        }
        Ok(())
    }
}
