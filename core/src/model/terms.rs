//! N of Theorem 1: the number of products whose sum is one element of a data gradient.

use core::fmt;

/// Numbers of products that are summed in an element of a data gradient: typical and worst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Mean number of products over the elements that have any: N of Theorem 1, for the standard deviation.
    pub typical: f64,
    /// Maximum number of products for one element: N of the overflow bound N · max|∇Y| · max|W|.
    pub worst: f64,
}

/// Shape of a convolution as far as the number of products depends on it: weights `[out, kh, kw, in/groups]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Number of output channels of the convolution.
    pub out_channels: u32,
    /// Height and width of the convolution's kernel.
    pub kernel: [u32; 2],
    /// Strides of the convolution along height and width.
    pub stride: [u32; 2],
    /// Dilations of the convolution along height and width.
    pub dilation: [u32; 2],
    /// Number of channel groups of the convolution, a divisor of the output channels.
    pub groups: u32,
}

impl Terms {
    /// Computes the terms of a linear layer or GEMM, where each input feature is multiplied with all output features.
    #[must_use]
    pub fn linear(out_features: u32) -> Self {
        let n = f64::from(out_features);
        Self { typical: n, worst: n }
    }

    /// Computes the terms of a convolution. Along an axis with kernel k, stride s and dilation d, adjacent taps read
    /// input positions d apart, and adjacent outputs read positions s apart. So only every s/gcd(s, d)-th tap reads a
    /// given position. That is k / min(k, s/gcd(s, d)) taps on average over the positions that are read, and at most ⌈k
    /// / (s/gcd(s, d))⌉.
    ///
    /// ```
    /// use gradscale_core::model::terms::{ConvShape, Terms};
    /// let conv = ConvShape { out_channels: 64, kernel: [3, 3], stride: [2, 2], dilation: [1, 1], groups: 1 };
    /// let n = Terms::conv(conv)?;
    /// assert_eq!((n.typical, n.worst), (64.0 * 2.25, 64.0 * 4.0));
    /// # Ok::<(), gradscale_core::model::terms::TermsError>(())
    /// ```
    ///
    /// # Errors
    /// [`TermsError`] for a zero size, or groups that do not divide the channels.
    pub fn conv(shape: ConvShape) -> Result<Self, TermsError> {
        let mut terms = Self::linear(shape.channels()?);
        for ((k, s), d) in shape.kernel.into_iter().zip(shape.stride).zip(shape.dilation) {
            // Neither is 0, as `channels` has checked.
            let step = s.checked_div(gcd(s, d)).unwrap_or(1).max(1);
            terms.typical *= f64::from(k) / f64::from(k.min(step));
            terms.worst *= f64::from(k.div_ceil(step));
        }
        Ok(terms)
    }

    /// Computes the terms of a transposed convolution, whose data gradient is an ordinary convolution: every element
    /// has all taps.
    ///
    /// # Errors
    /// See [`Terms::conv`].
    pub fn conv_transpose(shape: ConvShape) -> Result<Self, TermsError> {
        let n = f64::from(shape.channels()?) * f64::from(shape.kernel[0]) * f64::from(shape.kernel[1]);
        Ok(Self { typical: n, worst: n })
    }

    /// Computes the terms as the authors' code does: all taps of all output channels, whatever stride, dilation and
    /// groups.
    #[must_use]
    pub fn authors(shape: ConvShape) -> Self {
        let n = f64::from(shape.out_channels) * f64::from(shape.kernel[0]) * f64::from(shape.kernel[1]);
        Self { typical: n, worst: n }
    }
}

impl ConvShape {
    /// Checks the convolution's shape, and returns the number of output channels of one group.
    fn channels(self) -> Result<u32, TermsError> {
        if self.kernel.contains(&0) || self.stride.contains(&0) || self.dilation.contains(&0) {
            return Err(TermsError::Zero);
        }
        if self.groups == 0 || self.out_channels % self.groups != 0 {
            return Err(TermsError::Groups { channels: self.out_channels, groups: self.groups });
        }
        Ok(self.out_channels / self.groups)
    }
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Reason why a shape is not a valid convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TermsError {
    /// A kernel size, stride or dilation of the convolution is 0.
    Zero,
    /// The number of groups is 0 or does not divide the output channels.
    Groups {
        /// Number of output channels of the rejected shape.
        channels: u32,
        /// Number of groups of the rejected shape.
        groups: u32,
    },
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("kernel size, stride and dilation must be positive"),
            Self::Groups { channels, groups } => write!(f, "{groups} groups do not divide {channels} channels"),
        }
    }
}

crate::sentence!(TermsError);

impl core::error::Error for TermsError {}
