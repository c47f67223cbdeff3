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
/// **Impossible.** A target for which no alignment is left (fewer frames than letters and blanks between equal ones, or
/// every alignment with a probability of 0) has loss 0 and gradient 0, PyTorch's `zero_infinity=True`: its true loss ∞ is
/// no mistake of the network's, and no scale of a gradient could bring it back. Losses above 10^29 count as that.
///
/// **Invalid.** A letter that is the blank or no class, and a length beyond the tensor, make loss and gradient of the
/// sequence NaN, and so does NaN among the logits of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ctc {
    logits: [u32; 3],
    letters: u32,
    blank: u32,
}

impl Ctc {
    /// The logarithm of what never happens: finite, for devices without ∞.
    pub const NEVER: f32 = -1e30;
    /// What is below this was never.
    pub const HARDLY: f32 = -1e29;

    /// # Errors
    /// [`ShapeError::Empty`] where the blank is no class, [`ShapeError::TooLarge`].
    pub fn new(logits: [u32; 3], letters: u32, blank: u32) -> Result<Self, ShapeError> {
        let [batch, frames, classes] = logits;
        if blank >= classes {
            return Err(ShapeError::Empty);
        }
        elements(&logits)?;
        elements(&[batch, letters])?;
        let p = Self { logits, letters, blank };
        // Both tables of devices.
        let states = letters.checked_mul(2).and_then(|twice| twice.checked_add(1)).ok_or(ShapeError::TooLarge)?;
        elements(&[2, batch, frames, states])?;
        Ok(p)
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
