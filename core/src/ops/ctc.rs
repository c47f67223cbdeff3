//! Connectionist temporal classification (Graves, Fernández, Gomez, Schmidhuber 2006).

use super::{ShapeError, elements};

/// How likely a sequence of frames says a target that is shorter, whatever frame says which letter.
///
/// Logits `[batch, frames, classes]`, of which the softmax over classes is taken; one class is the blank. An alignment
/// names a class for each frame; repeated classes are merged, then blanks dropped: what is left is what it says. The loss
/// of a sequence is −ln of the sum over all alignments that say its target of the product of their probabilities.
///
/// Targets U32 `[batch, letters]`, their lengths and those of the inputs U32 `[batch]`: what stands behind the end of
/// either is not looked at. An empty target is said by blanks alone.
///
/// **Impossible.** A target has no alignment if there are fewer frames than letters and blanks between equal ones, or if
/// every alignment has probability 0. Its loss is ∞. [`Ctc::new`] returns loss 0 and gradient 0 for it, as PyTorch does
/// with `zero_infinity=True`. [`Ctc::with_zero_infinity`] with `false` returns loss ∞, gradient NaN at the frames of the
/// sequence and gradient 0 behind them, which is PyTorch's default. Losses above 10^29 count as ∞.
///
/// **Invalid.** A letter that is the blank or no class, and a length beyond the tensor, make loss and gradient of the
/// sequence NaN, and so does NaN among the logits of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ctc {
    logits: [u32; 3],
    letters: u32,
    blank: u32,
    zero_infinity: bool,
}

impl Ctc {
    /// Logarithm of probability zero. It is finite because some devices have no ∞.
    pub const LOG_ZERO: f32 = -1e30;
    /// Logarithms below this limit count as probability zero.
    pub const LOG_ZERO_LIMIT: f32 = -1e29;

    /// The loss for these shapes, with loss 0 and gradient 0 for an impossible target.
    ///
    /// # Errors
    /// [`ShapeError::Empty`] where the blank is no class, [`ShapeError::TooLarge`].
    pub fn new(logits: [u32; 3], letters: u32, blank: u32) -> Result<Self, ShapeError> {
        let [batch, frames, classes] = logits;
        if blank >= classes {
            return Err(ShapeError::Empty);
        }
        elements(&logits)?;
        elements(&[batch, letters])?;
        let p = Self { logits, letters, blank, zero_infinity: true };
        // Both tables of devices.
        let states = letters.checked_mul(2).and_then(|twice| twice.checked_add(1)).ok_or(ShapeError::TooLarge)?;
        elements(&[2, batch, frames, states])?;
        Ok(p)
    }

    /// The same loss, in which an impossible target has loss 0 and gradient 0 (`true`) or loss ∞ and gradient NaN (`false`).
    #[must_use]
    pub const fn with_zero_infinity(self, zero_infinity: bool) -> Self {
        Self { zero_infinity, ..self }
    }

    /// Whether an impossible target has loss 0 and gradient 0, instead of loss ∞ and gradient NaN.
    #[must_use]
    pub const fn zero_infinity(&self) -> bool {
        self.zero_infinity
    }

    /// batch, frames, classes.
    #[must_use]
    pub const fn logits(&self) -> [u32; 3] {
        self.logits
    }

    /// Room for the letters of a target.
    #[must_use]
    pub const fn letters(&self) -> u32 {
        self.letters
    }

    /// The class that says nothing.
    #[must_use]
    pub const fn blank(&self) -> u32 {
        self.blank
    }

    /// States of an alignment for a target of so many letters: a blank, a letter, a blank, …, a blank.
    #[must_use]
    pub const fn states(letters: u32) -> u32 {
        2 * letters + 1
    }

    /// Whether this may stand in a target.
    #[must_use]
    pub const fn is_letter(&self, class: u32) -> bool {
        class < self.logits[2] && class != self.blank
    }

    /// Whether the tensors have so many frames and letters.
    #[must_use]
    pub const fn holds(&self, frames: u32, letters: u32) -> bool {
        frames <= self.logits[1] && letters <= self.letters
    }

    /// Frames that a target takes at least: one for each letter, and one between two that are equal.
    pub fn least_frames(target: &[u32]) -> usize {
        target.len() + target.windows(2).filter(|two| two.first() == two.last()).count()
    }
}
