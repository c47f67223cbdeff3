//! Pooling and unpooling.

use super::{ShapeError, elements};

/// Function of a pooling window: maximum or average.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolOp {
    /// Maximum of the window, or the first NaN. Padding does not count.
    Max,
    /// Average: the sum divided by the window's area, with padding as zeros.
    Average,
}

/// Direction of an operator that moves values by index: gather or scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GatherScatter {
    /// Gather: reads the values at the indexed positions.
    Gather,
    /// Scatter: adds values to the indexed positions.
    Scatter,
}

/// Descriptor of pooling: windows over x `[n, h, w, c]`, result `[n, oh, ow, c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    op: PoolOp,
    x: [u32; 4],
    window: [u32; 2],
    stride: [u32; 2],
    pad: [u32; 2],
    ceil: bool,
    out: [u32; 2],
}

impl Pool {
    /// Creates a pooling with adjacent windows and no padding; incomplete windows at the end are dropped.
    ///
    /// # Errors
    /// [`ShapeError::Window`] for a window that is empty or larger than x, or (max) has more than 256 positions,
    /// because an offset must fit a byte.
    pub fn new(op: PoolOp, x: [u32; 4], window: [u32; 2]) -> Result<Self, ShapeError> {
        Self::padded(op, x, window, [0; 2])
    }

    /// Creates a pooling with adjacent windows and padding on each side. [`Pool::new`] rejects windows that fit x only
    /// with padding.
    ///
    /// # Errors
    /// See [`Pool::new`] and [`Pool::pad`].
    pub fn padded(op: PoolOp, x: [u32; 4], window: [u32; 2], pad: [u32; 2]) -> Result<Self, ShapeError> {
        Self { op, x, window, stride: window, pad, ceil: false, out: [0; 2] }.check()
    }

    /// Sets the strides of the pooling windows.
    ///
    /// # Errors
    /// [`ShapeError::Stride`] for 0.
    pub fn stride(self, stride: [u32; 2]) -> Result<Self, ShapeError> {
        Self { stride, ..self }.check()
    }

    /// Sets the padding of the pooling on each side, at most half a window.
    ///
    /// # Errors
    /// [`ShapeError::Window`] for more than half a window.
    pub fn pad(self, pad: [u32; 2]) -> Result<Self, ShapeError> {
        Self { pad, ..self }.check()
    }

    /// Makes the pooling include incomplete windows at the end: output sizes are rounded up. A window must begin inside
    /// x or its front padding.
    ///
    /// # Errors
    /// See [`Pool::new`].
    pub fn ceil(self) -> Result<Self, ShapeError> {
        Self { ceil: true, ..self }.check()
    }

    /// Returns the pooling function: maximum or average.
    #[must_use]
    pub const fn op(&self) -> PoolOp {
        self.op
    }

    /// Returns the shape of the pooling's input x.
    #[must_use]
    pub const fn x(&self) -> [u32; 4] {
        self.x
    }

    /// Returns the shape of the pooling's result.
    #[must_use]
    pub const fn y(&self) -> [u32; 4] {
        [self.x[0], self.out[0], self.out[1], self.x[3]]
    }

    /// Returns height and width of a pooling window.
    #[must_use]
    pub const fn window(&self) -> [u32; 2] {
        self.window
    }

    /// Returns the strides of the pooling windows.
    #[must_use]
    pub const fn strides(&self) -> [u32; 2] {
        self.stride
    }

    /// Returns the padding of the pooling on each side.
    #[must_use]
    pub const fn padding(&self) -> [u32; 2] {
        self.pad
    }

    /// Returns true if the pooling windows overlap, so that a position of x can be in two.
    #[must_use]
    pub const fn overlaps(&self) -> bool {
        self.stride[0] < self.window[0] || self.stride[1] < self.window[1]
    }

    /// Returns the position in x along axis 0 or 1 of offset `i` in window `p`; `None` outside x.
    #[inline]
    #[must_use]
    pub fn place(&self, axis: usize, p: u32, i: u32) -> Option<u32> {
        let at = u64::from(p) * u64::from(self.stride[axis]) + u64::from(i);
        let at = at.checked_sub(u64::from(self.pad[axis]))?;
        u32::try_from(at).ok().filter(|&at| at < self.x[1 + axis])
    }

    fn check(mut self) -> Result<Self, ShapeError> {
        if self.stride.contains(&0) {
            return Err(ShapeError::Stride);
        }
        if self.op == PoolOp::Max && elements(&self.window)? > 256 {
            return Err(ShapeError::Window);
        }
        for axis in [0, 1] {
            let (size, window) = (u64::from(self.x[1 + axis]), u64::from(self.window[axis]));
            let (stride, pad) = (u64::from(self.stride[axis]), u64::from(self.pad[axis]));
            if window == 0 || 2 * pad > window {
                return Err(ShapeError::Window);
            }
            let free = (size + 2 * pad).checked_sub(window).ok_or(ShapeError::Window)?;
            let mut out = free / stride + 1;
            if self.ceil && free % stride != 0 && out * stride < size + pad {
                out += 1;
            }
            self.out[axis] = u32::try_from(out).map_err(|_| ShapeError::TooLarge)?;
        }
        elements(&self.x)?;
        elements(&self.y())?;
        Ok(self)
    }
}
