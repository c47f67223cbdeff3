//! Packed operands of products in eight bits: bytes in scratch memory, contiguous along k.
//!
//! Memory holds halves under all formats of stores. Packing reads two bytes of each value and writes one, and is exact,
//! because every value is one of its format. Tensor cores take bytes along k only, so an operand that is contiguous along
//! m or n is transposed by the same launch. A store that also wrote the bytes would save it.

use crate::{
    Cuda, Error,
    gemm_problem::GemmProblem,
    kernel_selection::KernelConfig,
    kernels::{PACK_FP8_COLUMNS, PACK_FP8_ROWS},
    workspace::split_k_workspace_bytes,
};
use bytemuck::{Pod, Zeroable};
use gradscale_core::store_format::StoreFormat;

/// Lowest compute capability with tensor cores for eight bits.
const MIN_ARCH: u32 = 89;
/// Values of a packed 16-byte vector.
pub(crate) const VECTOR_VALUES: u32 = 16;
/// Pairs of bytes of a packed vector. Kernels count packed operands in pairs.
pub(crate) const VECTOR_PAIRS: u32 = VECTOR_VALUES / 2;
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
    taps: u32,
    tap_columns: u32,
    tap_row_stride: u32,
    tap_stride: u32,
    unused: u32,
}

/// Operand of a product as it is stored in halves.
#[derive(Clone, Copy)]
pub(crate) struct HalfOperand {
    pub at: u64,
    pub format: StoreFormat,
    /// Halves from row to row (of m or n), from value to value along k, and from matrix to matrix.
    pub strides: [u32; 3],
}

impl HalfOperand {
    /// Returns the operand from a matrix and a row on.
    pub fn starting_at(&self, matrix: u32, row: u32) -> Self {
        let [row_stride, _, matrix_stride] = self.strides.map(u64::from);
        Self { at: self.at + 2 * (u64::from(matrix) * matrix_stride + u64::from(row) * row_stride), ..*self }
    }

    /// Returns the number of different matrices of a batch: one if all products share it.
    pub fn matrix_count(&self, batch: u32) -> u32 {
        if self.strides[2] == 0 { 1 } else { batch }
    }
}

/// Taps of a convolution's weight, each of which has a part of a packed row.
#[derive(Clone, Copy)]
pub(crate) struct Taps {
    pub rows: u32,
    pub columns: u32,
    /// Halves from row to row of taps, and from tap to tap.
    pub strides: [u32; 2],
}

impl Taps {
    /// The one part of the rows of a matrix.
    pub const ONE: Self = Self { rows: 1, columns: 1, strides: [0; 2] };
}

/// Sizes of a packed operand: matrices of `rows` rows, of which each has `k` values for each tap.
#[derive(Clone, Copy)]
pub(crate) struct PackedShape {
    pub matrices: u32,
    pub rows: u32,
    pub k: u32,
    pub taps: Taps,
}

impl PackedShape {
    /// Returns the sizes of matrices without taps.
    pub fn matrices(matrices: u32, rows: u32, k: u32) -> Self {
        Self { matrices, rows, k, taps: Taps::ONE }
    }

    /// Returns the number of elements of the packed operand, in pairs.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if kernels cannot address as many.
    pub fn pairs(&self) -> Result<u32, Error> {
        let vectors = u128::from(self.k.div_ceil(VECTOR_VALUES)) * u128::from(self.taps.rows * self.taps.columns);
        let pairs = u128::from(self.matrices) * u128::from(self.rows) * vectors * u128::from(VECTOR_PAIRS);
        let too_large = |_| Error::OutOfMemory { bytes: u64::try_from(2 * pairs).unwrap_or(u64::MAX) };
        u32::try_from(pairs).map_err(too_large)
    }
}

impl Cuda {
    /// Returns an error if the device has no tensor cores for eight bits.
    pub(crate) fn require_eight_bit_products(&self) -> Result<(), Error> {
        let arch = self.gpu().arch();
        if arch < MIN_ARCH { Err(Error::NoEightBitProducts { arch }) } else { Ok(()) }
    }

    /// Selects the kernel for packed operands: the best of those that the device has and that have passed their self-test
    /// there.
    pub(crate) fn select_fp8_kernel(
        &self, problem: &GemmProblem, formats: [StoreFormat; 2],
    ) -> Result<KernelConfig, Error> {
        let workspace_bytes = split_k_workspace_bytes(self.gpu().memory());
        let multiprocessors = self.gpu().multiprocessors();
        let candidates =
            KernelConfig::fp8_candidates(problem, formats, workspace_bytes, multiprocessors, self.has_warpgroups());
        self.first_safe(problem, &candidates)
    }

    /// Enqueues the packing of an operand to reserved memory.
    pub(crate) fn pack_operand(&self, x: &HalfOperand, to: u64, shape: PackedShape) -> Result<(), Error> {
        let PackedShape { matrices, rows, k, taps } = shape;
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
            taps: taps.rows * taps.columns,
            tap_columns: taps.columns,
            tap_row_stride: taps.strides[0],
            tap_stride: taps.strides[1],
            unused: 0,
        };
        // A matrix with several taps has outputs in its rows, which are not contiguous.
        let (kernel, blocks) = if k_stride == 1 {
            (&PACK_FP8_ROWS, (u64::from(matrices) * u64::from(rows) * u64::from(vectors)).div_ceil(256))
        } else {
            let tiles = u64::from(rows.div_ceil(TRANSPOSED)) * u64::from(k.div_ceil(TRANSPOSED));
            (&PACK_FP8_COLUMNS, u64::from(matrices) * u64::from(params.taps) * tiles)
        };
        let blocks = [self.fill_device(kernel, u32::try_from(blocks).unwrap_or(u32::MAX))?, 1, 1];
        // SAFETY: the operand has these elements, and the caller has reserved the packed matrices.
        unsafe { self.launch(kernel, blocks, &params) }
    }
}
