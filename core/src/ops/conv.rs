//! Two-dimensional convolutions and their gradients.

use super::{ShapeError, elements};
use crate::{model::terms::ConvShape, store_format::StoreFormat};

/// One of the three products of a convolution: forward, data gradient, weight gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Forward pass of a convolution: (x, w) → y.
    Forward,
    /// Data gradient of a convolution: (dy, w) → dx; it is also the forward pass of a transposed convolution.
    Data,
    /// Weight gradient of a convolution: (x, dy) → dw.
    Weight,
}

impl Pass {
    /// All three passes of a convolution.
    pub const ALL: [Self; 3] = [Self::Forward, Self::Data, Self::Weight];
}

crate::codes!(Pass {
    Self::Forward => 0 "PASS_FORWARD",
    Self::Data => 1 "PASS_DATA",
    Self::Weight => 2 "PASS_WEIGHT",
});

/// Descriptor of a two-dimensional convolution. x `[n, h, w, c]`, w `[o, kh, kw, c/groups]`, y `[n, oh, ow, o]`, bias
/// `[o]`; products and sums in f32.
///
/// `y[n, p, q, o] = Σ w[o, i, j, k] · x[n, p·s + i·d − pad, q·s + j·d − pad, group·c/groups + k]`, zeros outside x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conv2d {
    x: [u32; 4],
    out_channels: u32,
    kernel: [u32; 2],
    stride: [u32; 2],
    pad: [u32; 2],
    dilation: [u32; 2],
    groups: u32,
    out: [u32; 2],
    /// Formats of which all values of a pass's operands are.
    formats: [StoreFormat; 2],
}

/// Values of eight bits that a device loads at a time, 16 bytes. All of them must be channels of one tap and group.
const EIGHT_BIT_VECTOR: u32 = 16;

impl Conv2d {
    /// Creates the descriptor of a convolution with stride 1, no padding, no dilation and one group.
    ///
    /// # Errors
    /// [`ShapeError`] if the kernel does not fit the image, or a tensor is too large.
    pub fn new(x: [u32; 4], out_channels: u32, kernel: [u32; 2]) -> Result<Self, ShapeError> {
        Self::padded(x, out_channels, kernel, [0; 2])
    }

    /// Creates the descriptor of a convolution with padding. [`Conv2d::new`] rejects a kernel that fits the image only
    /// with padding, for example 3×3 on the last images of a network, which are 2×2.
    ///
    /// # Errors
    /// See [`Conv2d::new`].
    pub fn padded(x: [u32; 4], out_channels: u32, kernel: [u32; 2], pad: [u32; 2]) -> Result<Self, ShapeError> {
        let formats = [StoreFormat::Fp16; 2];
        let [stride, dilation] = [[1; 2]; 2];
        Self { x, out_channels, kernel, stride, pad, dilation, groups: 1, out: [0; 2], formats }.check()
    }

    /// Sets the padding of the convolution: the number of zeros on each side of height and width.
    ///
    /// # Errors
    /// See [`Conv2d::new`].
    pub fn pad(self, pad: [u32; 2]) -> Result<Self, ShapeError> {
        Self { pad, ..self }.check()
    }

    /// Sets the strides of the convolution along height and width.
    ///
    /// # Errors
    /// [`ShapeError::Stride`] for 0, otherwise see [`Conv2d::new`].
    pub fn stride(self, stride: [u32; 2]) -> Result<Self, ShapeError> {
        Self { stride, ..self }.check()
    }

    /// Sets the dilations: the distances of adjacent taps along height and width.
    ///
    /// # Errors
    /// [`ShapeError::Stride`] for 0, otherwise see [`Conv2d::new`].
    pub fn dilation(self, dilation: [u32; 2]) -> Result<Self, ShapeError> {
        Self { dilation, ..self }.check()
    }

    /// Sets the number of groups into which the convolution's input and output channels are divided. Each output group
    /// reads one input group only.
    ///
    /// # Errors
    /// [`ShapeError::Groups`] unless it divides both numbers of channels.
    pub fn groups(self, groups: u32) -> Result<Self, ShapeError> {
        Self { groups, ..self }.check()
    }

    /// Sets the padding of the convolution to (kernel − 1)/2 of an odd kernel, so that at stride 1 the output has the
    /// size of the input.
    ///
    /// # Errors
    /// See [`Conv2d::new`].
    pub fn same(self) -> Result<Self, ShapeError> {
        self.pad([0, 1].map(|i| (self.kernel[i] - 1) / 2 * self.dilation[i]))
    }

    /// Declares that all values of the two operands of a pass are of these formats, as [`super::Gemm::operand_formats`]
    /// does for a matrix product: of x and w, or of dy and w.
    ///
    /// ```
    /// use gradscale_core::{ops::{Conv2d, Pass}, store_format::StoreFormat};
    /// let conv = Conv2d::new([1, 8, 8, 16], 24, [3, 3])?.operand_formats([StoreFormat::E4m3; 2]);
    /// assert!(conv.has_eight_bit_operands(Pass::Forward));
    /// // A sum over 24 channels of dy.
    /// assert!(!conv.has_eight_bit_operands(Pass::Data));
    /// # Ok::<(), gradscale_core::ops::ShapeError>(())
    /// ```
    #[must_use]
    pub const fn operand_formats(self, formats: [StoreFormat; 2]) -> Self {
        Self { formats, ..self }
    }

    /// Returns the formats of which all values of a pass's operands are; FP16 unless they are declared.
    #[must_use]
    pub const fn formats(&self) -> [StoreFormat; 2] {
        self.formats
    }

    /// Returns true if a device may multiply the operands of a pass in units for eight bits: both have formats of eight
    /// bits, and the channels of a group that are summed are a multiple of 16. The weight gradient is a sum over pixels,
    /// which no operand has contiguous, so it is a product of halves.
    #[must_use]
    pub const fn has_eight_bit_operands(&self, pass: Pass) -> bool {
        let summed = match pass {
            Pass::Forward => self.x[3] / self.groups,
            Pass::Data => self.out_channels / self.groups,
            Pass::Weight => return false,
        };
        summed % EIGHT_BIT_VECTOR == 0 && !matches!(self.formats, [StoreFormat::Fp16, _] | [_, StoreFormat::Fp16])
    }

    /// Returns the shape of the convolution's input x.
    #[must_use]
    pub const fn x(&self) -> [u32; 4] {
        self.x
    }

    /// Returns the shape of the convolution's weights w.
    #[must_use]
    pub const fn w(&self) -> [u32; 4] {
        [self.out_channels, self.kernel[0], self.kernel[1], self.x[3] / self.groups]
    }

    /// Returns the shape of the convolution's result y.
    #[must_use]
    pub const fn y(&self) -> [u32; 4] {
        [self.x[0], self.out[0], self.out[1], self.out_channels]
    }

    /// Returns the strides of the convolution along height and width.
    #[must_use]
    pub const fn strides(&self) -> [u32; 2] {
        self.stride
    }

    /// Returns the padding of the convolution: the number of zeros on each side of height and width.
    #[must_use]
    pub const fn padding(&self) -> [u32; 2] {
        self.pad
    }

    /// Returns the dilations of the convolution: the distances of adjacent taps.
    #[must_use]
    pub const fn dilations(&self) -> [u32; 2] {
        self.dilation
    }

    /// Returns the number of channel groups of the convolution.
    #[must_use]
    pub const fn group_count(&self) -> u32 {
        self.groups
    }

    /// Returns the sizes from which Theorem 1 computes its number of products.
    #[must_use]
    pub const fn terms_shape(&self) -> ConvShape {
        ConvShape {
            out_channels: self.out_channels,
            kernel: self.kernel,
            stride: self.stride,
            dilation: self.dilation,
            groups: self.groups,
        }
    }

    /// Returns the index in x along axis 0 (rows) or 1 (columns) that output `p` reads with tap `i`; `None` in the
    /// padding.
    #[inline]
    #[must_use]
    pub fn place(&self, axis: usize, p: u32, i: u32) -> Option<u32> {
        let at = u64::from(p) * u64::from(self.stride[axis]) + u64::from(i) * u64::from(self.dilation[axis]);
        let at = at.checked_sub(u64::from(self.pad[axis]))?;
        u32::try_from(at).ok().filter(|&at| at < self.x[1 + axis])
    }

    fn check(mut self) -> Result<Self, ShapeError> {
        if self.stride.contains(&0) || self.dilation.contains(&0) {
            return Err(ShapeError::Stride);
        }
        let divides = |channels: u32| channels % self.groups == 0;
        if self.groups == 0 || !divides(self.x[3]) || !divides(self.out_channels) {
            return Err(ShapeError::Groups);
        }
        for axis in [0, 1] {
            let padded = u64::from(self.x[1 + axis]) + 2 * u64::from(self.pad[axis]);
            let reach = u64::from(self.kernel[axis]).checked_sub(1).ok_or(ShapeError::Window)?;
            let free = padded.checked_sub(reach * u64::from(self.dilation[axis]) + 1).ok_or(ShapeError::Window)?;
            let out = free / u64::from(self.stride[axis]) + 1;
            self.out[axis] = u32::try_from(out).map_err(|_| ShapeError::TooLarge)?;
        }
        for shape in [self.x, self.w(), self.y()] {
            elements(&shape)?;
        }
        Ok(self)
    }
}
