//! Matrix products (GEMM).

use super::ShapeError;
use crate::store_format::StoreFormat;

/// Shape of a matrix product: a is m × k, b is k × n, y is m × n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmShape {
    /// Number of rows of a and y.
    pub m: u32,
    /// Number of columns of b and y.
    pub n: u32,
    /// Number of columns of a and rows of b: the terms of each sum.
    pub k: u32,
}

/// Descriptor of `y[m, n] = op(a)·op(b) + bias[n]`, computed `batch` times; products and sums in f32.
///
/// Without [`Gemm::leading`] and [`Gemm::batched`], matrices are dense and the batch has one.
///
/// ```
/// use gradscale_core::ops::Gemm;
/// // The weight gradient of a linear layer: dyᵀ·x, both of 128 rows.
/// let gemm = Gemm::new(64, 32, 128)?.transpose_a()?;
/// assert_eq!(gemm.lens(), [128 * 64, 128 * 32, 64 * 32]);
/// # Ok::<(), gradscale_core::ops::ShapeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    shape: GemmShape,
    trans: [bool; 2],
    /// Leading dimensions of a, b, y: numbers of elements between the starts of stored rows; 0 means dense.
    leading: [u32; 3],
    batch: u32,
    /// Numbers of elements between the starts of matrices of a batch, for a, b, y.
    strides: [u32; 3],
    /// Formats of which all values of a and b are.
    formats: [StoreFormat; 2],
}

impl Gemm {
    /// Creates the descriptor of one product of dense row-major matrices, a `[m, k]`, b `[k, n]`, y `[m, n]`.
    ///
    /// # Errors
    /// [`ShapeError::TooLarge`].
    pub fn new(m: u32, n: u32, k: u32) -> Result<Self, ShapeError> {
        let formats = [StoreFormat::Fp16; 2];
        let shape = GemmShape { m, n, k };
        Self { shape, trans: [false; 2], leading: [0; 3], batch: 1, strides: [0; 3], formats }.check()
    }

    /// Declares that the left matrix a is stored transposed, as `[k, m]`.
    ///
    /// # Errors
    /// See [`Gemm::leading`].
    pub fn transpose_a(self) -> Result<Self, ShapeError> {
        Self { trans: [true, self.trans[1]], ..self }.check()
    }

    /// Declares that the right matrix b is stored transposed, as `[n, k]`.
    ///
    /// # Errors
    /// See [`Gemm::leading`].
    pub fn transpose_b(self) -> Result<Self, ShapeError> {
        Self { trans: [self.trans[0], true], ..self }.check()
    }

    /// Sets the leading dimensions of a, b and y: elements between the starts of stored rows.
    ///
    /// # Errors
    /// [`ShapeError::Stride`] if one is shorter than a row, [`ShapeError::TooLarge`].
    pub fn leading(self, elements: [u32; 3]) -> Result<Self, ShapeError> {
        Self { leading: elements, ..self }.check()
    }

    /// Sets a batch of `batch` products, with strides in elements between the matrices of a, b and y. A stride of 0
    /// uses one a or b for all.
    ///
    /// # Errors
    /// [`ShapeError::Overlap`] if results overlap, [`ShapeError::TooLarge`].
    pub fn batched(self, batch: u32, strides: [u32; 3]) -> Result<Self, ShapeError> {
        Self { batch, strides, ..self }.check()
    }

    /// Declares that all values of a and b are of these formats, so that a device may multiply them in units for eight
    /// bits. Operands are halves in memory all the same, and the exact product is the same. Sums may have fewer bits: a
    /// unit adds up to 128 products with 14 significant bits. Devices without such units multiply halves.
    ///
    /// ```
    /// use gradscale_core::{ops::Gemm, store_format::StoreFormat};
    /// let gemm = Gemm::new(64, 32, 128)?.operand_formats([StoreFormat::E5m2, StoreFormat::E4m3]);
    /// assert!(gemm.has_eight_bit_operands());
    /// assert!(!Gemm::new(64, 32, 128)?.has_eight_bit_operands());
    /// # Ok::<(), gradscale_core::ops::ShapeError>(())
    /// ```
    #[must_use]
    pub const fn operand_formats(self, formats: [StoreFormat; 2]) -> Self {
        Self { formats, ..self }
    }

    /// Returns the formats of which all values of a and b are; FP16 unless they are declared.
    #[must_use]
    pub const fn formats(&self) -> [StoreFormat; 2] {
        self.formats
    }

    /// Returns true if both operands are declared to have formats of eight bits.
    #[must_use]
    pub const fn has_eight_bit_operands(&self) -> bool {
        !matches!(self.formats, [StoreFormat::Fp16, _] | [_, StoreFormat::Fp16])
    }

    /// Returns the shape of the matrix product.
    #[must_use]
    pub const fn shape(&self) -> GemmShape {
        self.shape
    }

    /// Returns true for a and for b if it is stored transposed.
    #[must_use]
    pub const fn transposed(&self) -> [bool; 2] {
        self.trans
    }

    /// Returns the number of matrix products in the batch.
    #[must_use]
    pub const fn batch(&self) -> u32 {
        self.batch
    }

    /// Returns the numbers of elements between the starts of matrices of a batch, for a, b, y.
    #[must_use]
    pub const fn strides(&self) -> [u32; 3] {
        self.strides
    }

    /// Returns the numbers of rows and columns of a, b and y as they are stored.
    #[must_use]
    pub const fn stored(&self) -> [[u32; 2]; 3] {
        let GemmShape { m, n, k } = self.shape;
        [if self.trans[0] { [k, m] } else { [m, k] }, if self.trans[1] { [n, k] } else { [k, n] }, [m, n]]
    }

    /// Returns the leading dimensions (elements from row to row) of a, b and y.
    #[must_use]
    pub const fn lead(&self) -> [u32; 3] {
        let stored = self.stored();
        [
            if self.leading[0] == 0 { stored[0][1] } else { self.leading[0] },
            if self.leading[1] == 0 { stored[1][1] } else { self.leading[1] },
            if self.leading[2] == 0 { stored[2][1] } else { self.leading[2] },
        ]
    }

    /// Returns the minimum number of elements of the buffers of a, b and y.
    #[must_use]
    pub fn lens(&self) -> [u32; 3] {
        // Fits u32; checked when the descriptor was created.
        [0, 1, 2].map(|i| u32::try_from(self.span(i)).unwrap_or(u32::MAX))
    }

    fn span(&self, i: usize) -> u64 {
        let [rows, cols] = self.stored()[i].map(u64::from);
        if rows == 0 || cols == 0 || self.batch == 0 {
            return 0;
        }
        u64::from(self.batch - 1) * u64::from(self.strides[i]) + (rows - 1) * u64::from(self.lead()[i]) + cols
    }

    fn check(self) -> Result<Self, ShapeError> {
        let (stored, lead) = (self.stored(), self.lead());
        if [0, 1, 2].iter().any(|&i| lead[i] < stored[i][1]) {
            return Err(ShapeError::Stride);
        }
        let one = Self { batch: 1, ..self };
        if self.batch > 1 && u64::from(self.strides[2]) < one.span(2) {
            return Err(ShapeError::Overlap);
        }
        if [0, 1, 2].iter().any(|&i| self.span(i) > u64::from(u32::MAX)) {
            return Err(ShapeError::TooLarge);
        }
        Ok(self)
    }
}
