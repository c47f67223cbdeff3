//! Strided copies between layouts: permute, slice, concatenate, pad, flip, repeat.

use super::ShapeError;
use heapless::Vec;

/// Maximum number of dimensions of a strided copy.
pub const MAX_DIMS: usize = 6;

/// One dimension of a strided copy: its length, and the strides of source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim {
    /// Number of elements along this dimension of the copy.
    pub len: u32,
    /// Stride in the source x, in elements. A negative stride flips, 0 repeats.
    pub x: i64,
    /// Stride in the destination y, in elements.
    pub y: i64,
}

/// Descriptor of a strided copy: `y[y0 + Σ iⱼ·yⱼ] = x[x0 + Σ iⱼ·xⱼ]` for all 0 ≤ iⱼ < lenⱼ. Other elements of y are
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strided {
    dims: Vec<Dim, MAX_DIMS>,
    start: [u32; 2],
    reach: [u32; 2],
}

impl Strided {
    /// Creates the descriptor of a strided copy along `dims`, outermost first, from element `x0` to element `y0`.
    /// Without dimensions it copies one element.
    ///
    /// # Errors
    /// [`ShapeError::Rank`], [`ShapeError::TooLarge`], or [`ShapeError::Overlap`] in two cases: the copy would read or
    /// write before the start of a buffer, or the strides of y do not nest, so that an element could be written twice.
    pub fn new(dims: &[Dim], x0: u32, y0: u32) -> Result<Self, ShapeError> {
        let dims: Vec<Dim, MAX_DIMS> = Vec::from_slice(dims).map_err(|_| ShapeError::Rank)?;
        let count = dims.iter().try_fold(1u32, |product, dim| product.checked_mul(dim.len));
        if count.is_none() && dims.iter().all(|dim| dim.len != 0) {
            return Err(ShapeError::TooLarge);
        }
        if dims.iter().any(|dim| dim.len == 0) {
            return Ok(Self { dims, start: [x0, y0], reach: [0, 0] });
        }
        let mut nested: Vec<Dim, MAX_DIMS> = dims.iter().copied().filter(|dim| dim.len > 1).collect();
        nested.sort_unstable_by_key(|dim| dim.y.unsigned_abs());
        let mut covered = 0i128;
        for dim in &nested {
            let stride = i128::from(dim.y.unsigned_abs());
            if stride <= covered {
                return Err(ShapeError::Overlap);
            }
            covered += stride * i128::from(dim.len - 1);
        }
        let reach =
            [span(x0, dims.iter().map(|dim| (dim.len, dim.x)))?, span(y0, dims.iter().map(|dim| (dim.len, dim.y)))?];
        Ok(Self { dims, start: [x0, y0], reach })
    }

    /// Returns the dimensions of the strided copy, outermost first.
    #[must_use]
    pub fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// Returns the indices of the first element that the strided copy reads in x and writes in y.
    #[must_use]
    pub const fn start(&self) -> [u32; 2] {
        self.start
    }

    /// Returns the minimum number of elements that x and y must have for the strided copy.
    #[must_use]
    pub const fn reach(&self) -> [u32; 2] {
        self.reach
    }

    /// Returns the number of elements that the strided copy moves from x to y.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.dims.iter().map(|dim| dim.len).product()
    }

    /// Returns the indices in x and y of the `i`th element copied; the last dimension varies fastest.
    #[must_use]
    pub fn indices(&self, i: u32) -> [u32; 2] {
        let (mut rest, mut x, mut y) = (i, i64::from(self.start[0]), i64::from(self.start[1]));
        for dim in self.dims.iter().rev() {
            let step = i64::from(rest % dim.len.max(1));
            rest /= dim.len.max(1);
            x += step * dim.x;
            y += step * dim.y;
        }
        // Fits u32; checked when the copy was created.
        [u32::try_from(x).unwrap_or(u32::MAX), u32::try_from(y).unwrap_or(u32::MAX)]
    }
}

/// Returns one more than the largest index that a strided copy reads or writes in a buffer, if none is negative or too
/// large.
fn span(start: u32, dims: impl Iterator<Item = (u32, i64)>) -> Result<u32, ShapeError> {
    let (mut least, mut most) = (i128::from(start), i128::from(start));
    for (len, stride) in dims {
        let far = i128::from(len - 1) * i128::from(stride);
        least += far.min(0);
        most += far.max(0);
    }
    if least < 0 {
        return Err(ShapeError::Overlap);
    }
    u32::try_from(most + 1).map_err(|_| ShapeError::TooLarge)
}
