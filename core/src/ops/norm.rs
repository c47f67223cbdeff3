//! Normalisations: batch, layer, group and RMS.

use super::{ShapeError, elements};

/// Elements over which a normalisation computes mean and variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormOver {
    /// Batch normalisation: one group for each channel, over n, h, w.
    Batch,
    /// Group normalisation: this number of channel groups for each image, over h, w and the group's channels. One group
    /// is layer normalisation.
    Group(u32),
}

/// Descriptor of `y = (x − mean) / √(var + eps) · scale[c] + shift[c]` over x `[n, h, w, c]`, computed in f32.
///
/// `saved` is f32 `[2, groups]`: means, then biased variances. Without centering (RMS) the means are 0, and the
/// variances are mean squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    x: [u32; 4],
    over: NormOver,
    center: bool,
    given: bool,
    eps: f32,
}

impl Norm {
    /// Creates the descriptor of a normalisation of x over the elements that `over` names, with statistics of x itself.
    ///
    /// # Errors
    /// [`ShapeError::Groups`], [`ShapeError::TooLarge`], [`ShapeError::Empty`] for groups of no elements, or
    /// [`ShapeError::Value`] for an `eps` that is not positive.
    pub fn new(x: [u32; 4], over: NormOver, eps: f32) -> Result<Self, ShapeError> {
        elements(&x)?;
        let norm = Self { x, over, center: true, given: false, eps };
        if let NormOver::Group(groups) = over {
            if groups == 0 || x[3] % groups != 0 {
                return Err(ShapeError::Groups);
            }
            elements(&[x[0], groups])?;
        }
        if norm.groups() != 0 && norm.size() == 0 {
            return Err(ShapeError::Empty);
        }
        if eps > 0.0 && eps.is_finite() { Ok(norm) } else { Err(ShapeError::Value(eps)) }
    }

    /// Creates the descriptor of a layer normalisation of `[rows, width]`.
    ///
    /// # Errors
    /// See [`Norm::new`].
    pub fn layer(rows: u32, width: u32, eps: f32) -> Result<Self, ShapeError> {
        Self::new([rows, 1, 1, width], NormOver::Group(1), eps)
    }

    /// Creates the descriptor of a root-mean-square normalisation of `[rows, width]`, which subtracts no mean.
    ///
    /// # Errors
    /// See [`Norm::new`].
    pub fn rms(rows: u32, width: u32, eps: f32) -> Result<Self, ShapeError> {
        Ok(Self { center: false, ..Self::layer(rows, width, eps)? })
    }

    /// Makes the normalisation use the statistics in `saved` instead of those of x, for evaluation.
    #[must_use]
    pub const fn given(self) -> Self {
        Self { given: true, ..self }
    }

    /// Returns the shape of the normalisation's input x and result y.
    #[must_use]
    pub const fn x(&self) -> [u32; 4] {
        self.x
    }

    /// Returns the elements over which the normalisation computes its statistics.
    #[must_use]
    pub const fn over(&self) -> NormOver {
        self.over
    }

    /// Returns true if the normalisation subtracts the mean.
    #[must_use]
    pub const fn is_centered(&self) -> bool {
        self.center
    }

    /// Returns true if `saved` provides the statistics of the normalisation, so that none are computed.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        self.given
    }

    /// Returns ε of the normalisation, which is added to the variance.
    #[must_use]
    pub const fn eps(&self) -> f32 {
        self.eps
    }

    /// Returns the number of groups, each with its own mean and variance.
    #[must_use]
    pub const fn groups(&self) -> u32 {
        match self.over {
            NormOver::Batch => self.x[3],
            NormOver::Group(groups) => self.x[0] * groups,
        }
    }

    /// Returns the number of elements of one normalisation group.
    #[must_use]
    pub const fn size(&self) -> u32 {
        match self.over {
            NormOver::Batch => self.x[0] * self.x[1] * self.x[2],
            NormOver::Group(groups) => self.x[1] * self.x[2] * (self.x[3] / groups),
        }
    }

    /// Returns the normalisation group of element `i` of x.
    #[must_use]
    pub const fn group_of(&self, i: u32) -> u32 {
        let channel = i % self.x[3];
        match self.over {
            NormOver::Batch => channel,
            NormOver::Group(groups) => {
                let image = i / (self.x[1] * self.x[2] * self.x[3]);
                image * groups + channel / (self.x[3] / groups)
            }
        }
    }
}
