//! Products of operands of eight bits: both are packed from halves to bytes in scratch memory, contiguous along k, and
//! multiplied by tensor cores that read bytes.
//!
//! Memory holds halves under all formats of stores. Packing reads two bytes of each value and writes one, and is exact,
//! because every value is one of its format. Tensor cores take bytes along k only, so an operand that is contiguous along
//! m or n is transposed by the same launch. A store that also wrote the bytes would save it.
//!
//! Sums of up to [`PROMOTION_K`](crate::kernels::PROMOTION_K) products have about 14 significant bits, longer ones are added
//! in f32. A result differs from the exact sum by at most a 60th of the sum of the magnitudes of its products. The bound is
//! that of the emulation, where each product of 128 loses up to 2^-13 of the largest sum. Random operands are within 2^-10.
//!
//! An operand with the rows of the result is packed in bands of at most [`Cuda::max_copy_bytes`], as in
//! `operand_copies.rs`.

use crate::{
    Cuda, Error,
    gemm::Operands,
    gemm_problem::{GemmKind, GemmProblem, OperandStrides, ResultPlacement},
    kernel_selection::KernelConfig,
    kernels::{PACK_FP8_COLUMNS, PACK_FP8_ROWS},
    memory::Memory,
    workspace::split_k_workspace_bytes,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::{
    backend::Store,
    ops::{Gemm, GemmShape},
    store_format::StoreFormat,
};

/// Lowest compute capability with tensor cores for eight bits.
const MIN_ARCH: u32 = 89;
/// Values of a packed 16-byte vector.
const VECTOR_VALUES: u32 = 16;
/// Pairs of bytes of a packed vector. Kernels count packed operands in pairs.
const VECTOR_PAIRS: u32 = VECTOR_VALUES / 2;
/// Rows of which a band has a multiple: those of the largest tile.
const BAND_ROWS: u32 = 128;
/// Rows, and values of each, that a block of `pack_columns` transposes at a time (`TRANSPOSED` of pack_fp8.cu).
const TRANSPOSED: u32 = 64;

/// Parameters of the packing kernels: `PackParams` of `pack_fp8.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PackParams {
    from: u64,
    to: u64,
    rows: u32,
    k: u32,
    matrices: u32,
    row_stride: u32,
    k_stride: u32,
    matrix_stride: u32,
    vectors: u32,
    is_e4m3: u32,
    vectorized: u32,
    unused: u32,
}

/// Operand of a product as it is stored in halves.
#[derive(Clone, Copy)]
struct HalfOperand {
    at: u64,
    format: StoreFormat,
    /// Halves from row to row (of m or n), from value to value along k, and from matrix to matrix.
    strides: [u32; 3],
}

impl HalfOperand {
    /// Returns the operand from a matrix and a row on.
    fn starting_at(&self, matrix: u32, row: u32) -> Self {
        let [row_stride, _, matrix_stride] = self.strides.map(u64::from);
        Self { at: self.at + 2 * (u64::from(matrix) * matrix_stride + u64::from(row) * row_stride), ..*self }
    }

    /// Returns the number of different matrices of a batch: one if all products share it.
    fn matrix_count(&self, batch: u32) -> u32 {
        if self.strides[2] == 0 { 1 } else { batch }
    }
}

/// Returns the number of elements of packed matrices, in pairs.
///
/// # Errors
/// [`Error::OutOfMemory`] if kernels cannot address as many.
fn packed_pairs(rows: u32, vectors: u32, matrices: u32) -> Result<u32, Error> {
    let pairs = u128::from(rows) * u128::from(vectors) * u128::from(VECTOR_PAIRS) * u128::from(matrices);
    let too_large = |_| Error::OutOfMemory { bytes: u64::try_from(2 * pairs).unwrap_or(u64::MAX) };
    u32::try_from(pairs).map_err(too_large)
}

impl Cuda {
    /// Computes a product of matrices whose halves are all values of formats of eight bits; `by` chooses the kernel.
    ///
    /// # Errors
    /// [`Error::NoEightBitProducts`] on a device without such products, [`Error::OutOfMemory`], and the driver's.
    pub(crate) fn run_fp8_gemm(
        &self, p: &Gemm, x: &Operands, bias: Option<&Memory>, y: &Store<'_, Self>, by: Option<KernelConfig>,
    ) -> Result<(), Error> {
        let arch = self.gpu().arch();
        if arch < MIN_ARCH {
            return Err(Error::NoEightBitProducts { arch });
        }
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
        let a_pairs = packed_pairs(band_rows, vectors, a.matrix_count(matrices))?;
        let b_pairs = packed_pairs(n, vectors, b.matrix_count(matrices))?;
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
            self.pack(&b.starting_at(matrix, 0), b_packed, [b.matrix_count(matrices), n, k])?;
            for row in (0..m).step_by(band_rows as usize) {
                let rows = band_rows.min(m - row);
                self.pack(&a.starting_at(matrix, row), a_packed, [a.matrix_count(matrices), rows, k])?;
                let band = band(matrices, rows, matrix * problem.y_stride + row * problem.ldy);
                let packed = Operands { at: [a_packed, b_packed], types: x.types };
                self.launch_problem(&band, &packed, bias, y, Some(config))?;
            }
        }
        Ok(())
    }

    /// Selects the kernel for packed operands: the best of those that the device has and that have passed their self-test
    /// there.
    fn select_fp8_kernel(&self, problem: &GemmProblem, formats: [StoreFormat; 2]) -> Result<KernelConfig, Error> {
        let workspace_bytes = split_k_workspace_bytes(self.gpu().memory());
        let multiprocessors = self.gpu().multiprocessors();
        let candidates =
            KernelConfig::fp8_candidates(problem, formats, workspace_bytes, multiprocessors, self.has_warpgroups());
        self.first_safe(problem, &candidates)
    }

    /// Enqueues the packing of an operand: matrices of `rows` rows of `k` values.
    fn pack(&self, x: &HalfOperand, to: u64, [matrices, rows, k]: [u32; 3]) -> Result<(), Error> {
        let [row_stride, k_stride, matrix_stride] = x.strides;
        let vectors = k.div_ceil(VECTOR_VALUES);
        let is_aligned =
            x.at.is_multiple_of(16) && [row_stride, matrix_stride].iter().all(|size| size.is_multiple_of(8));
        let params = PackParams {
            from: x.at,
            to,
            rows,
            k,
            matrices,
            row_stride,
            k_stride,
            matrix_stride,
            vectors,
            is_e4m3: u32::from(x.format == StoreFormat::E4m3),
            vectorized: u32::from(is_aligned),
            unused: 0,
        };
        let (kernel, blocks) = if k_stride == 1 {
            (&PACK_FP8_ROWS, (u64::from(matrices) * u64::from(rows) * u64::from(vectors)).div_ceil(256))
        } else {
            let tiles = u64::from(rows.div_ceil(TRANSPOSED)) * u64::from(k.div_ceil(TRANSPOSED));
            (&PACK_FP8_COLUMNS, u64::from(matrices) * tiles)
        };
        let blocks = [self.fill_device(kernel, u32::try_from(blocks).unwrap_or(u32::MAX))?, 1, 1];
        // SAFETY: the operand has these elements, and the caller has reserved the packed matrices.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
