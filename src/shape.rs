//! Shapes with four sizes: n, h, w, c.

use std::fmt;

/// Sizes of a tensor in NHWC order; c varies fastest. Missing sizes are 1 in the middle: `[n, c]` is `[n, 1, 1, c]`,
/// `[n]` is `[n, 1, 1, 1]`.
///
/// ```
/// use gradscale::Shape;
/// assert_eq!(Shape::from([12, 3]), Shape::from([12, 1, 1, 3]));
/// assert_eq!(Shape::from([2, 90, 120, 3]).to_string(), "2×90×120×3");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape([usize; 4]);

impl Shape {
    /// Shape of a scalar: all sizes are 1.
    pub const SCALAR: Self = Self([1; 4]);

    /// Returns the sizes n, h, w, c of the shape.
    #[must_use]
    pub const fn sizes(self) -> [usize; 4] {
        self.0
    }

    /// Returns the number of elements of the shape; saturates.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty shape is nothing special")]
    pub fn len(self) -> usize {
        self.0.iter().fold(1, |product, &size| product.saturating_mul(size))
    }

    /// Returns the number of channels, the last size of the shape.
    #[must_use]
    pub const fn channels(self) -> usize {
        self.0[3]
    }

    /// Returns the number of rows if all axes but the last are flattened: the number of elements of one channel.
    #[must_use]
    pub fn rows(self) -> usize {
        self.0[..3].iter().fold(1, |product, &size| product.saturating_mul(size))
    }
}

impl From<[usize; 1]> for Shape {
    fn from([n]: [usize; 1]) -> Self {
        Self([n, 1, 1, 1])
    }
}

impl From<[usize; 2]> for Shape {
    fn from([n, c]: [usize; 2]) -> Self {
        Self([n, 1, 1, c])
    }
}

impl From<[usize; 3]> for Shape {
    fn from([n, w, c]: [usize; 3]) -> Self {
        Self([n, 1, w, c])
    }
}

impl From<[usize; 4]> for Shape {
    fn from(sizes: [usize; 4]) -> Self {
        Self(sizes)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [n, h, w, c] = self.0;
        match (h, w) {
            (1, 1) => write!(f, "{n}×{c}"),
            _ => write!(f, "{n}×{h}×{w}×{c}"),
        }
    }
}
