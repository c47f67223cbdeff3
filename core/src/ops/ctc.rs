//! Connectionist temporal classification (Graves, Fernández, Gomez, Schmidhuber 2006).

use super::{ShapeError, elements};

/// Descriptor of the CTC loss: the negative log-likelihood of a target sequence that is shorter than the sequence of
/// frames, over all alignments of the two.
///
/// Logits are `[batch, frames, classes]`, and the softmax is taken over the classes; one class is the blank. An
/// alignment assigns a class to each frame. It produces a target by merging repeated classes and then removing blanks.
/// The loss of a sequence is −ln of the sum, over all alignments that produce its target, of the product of their
/// probabilities.
///
/// Targets are U32 `[batch, letters]`, their lengths and those of the inputs U32 `[batch]`. Values after the end of
/// either are not read. An empty target is produced by blanks alone.
///
/// **Impossible.** A target has no alignment if there are fewer frames than letters and blanks between equal ones, or
/// if every alignment has probability 0. Its loss is ∞. [`Ctc::new`] returns loss 0 and gradient 0 for it, as PyTorch
/// does with `zero_infinity=True`. [`Ctc::with_zero_infinity`] with `false` returns loss ∞, gradient NaN at the frames
/// of the sequence and gradient 0 after them, which is PyTorch's default. Losses above 10^29 count as ∞.
///
/// **Invalid.** Loss and gradient of a sequence are NaN in three cases: a letter is the blank or not a class, a length
/// exceeds the tensor, or a logit of its frames is NaN.
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
    /// Limit of log-probabilities in a CTC loss; lower ones count as probability zero.
    pub const LOG_ZERO_LIMIT: f32 = -1e29;

    /// Creates the descriptor of a CTC loss for these shapes, with loss 0 and gradient 0 for an impossible target.
    ///
    /// # Errors
    /// [`ShapeError::Empty`] if the blank is not a class, [`ShapeError::TooLarge`].
    pub fn new(logits: [u32; 3], letters: u32, blank: u32) -> Result<Self, ShapeError> {
        let [batch, frames, classes] = logits;
        if blank >= classes {
            return Err(ShapeError::Empty);
        }
        elements(&logits)?;
        elements(&[batch, letters])?;
        let p = Self { logits, letters, blank, zero_infinity: true };
        // Sizes of the two tables that devices allocate.
        let states = letters.checked_mul(2).and_then(|twice| twice.checked_add(1)).ok_or(ShapeError::TooLarge)?;
        elements(&[2, batch, frames, states])?;
        Ok(p)
    }

    /// Sets the result of an impossible target: loss 0 and gradient 0 (`true`), or loss ∞ and gradient NaN (`false`).
    #[must_use]
    pub const fn with_zero_infinity(self, zero_infinity: bool) -> Self {
        Self { zero_infinity, ..self }
    }

    /// Returns true if an impossible target has loss 0 and gradient 0, instead of loss ∞ and gradient NaN.
    #[must_use]
    pub const fn zero_infinity(&self) -> bool {
        self.zero_infinity
    }

    /// Returns the shape of the CTC loss's logits: batch, frames, classes.
    #[must_use]
    pub const fn logits(&self) -> [u32; 3] {
        self.logits
    }

    /// Returns the maximum number of letters of a CTC target.
    #[must_use]
    pub const fn letters(&self) -> u32 {
        self.letters
    }

    /// Returns the blank class of the CTC loss, which produces no letter.
    #[must_use]
    pub const fn blank(&self) -> u32 {
        self.blank
    }

    /// Returns the number of states of a CTC alignment for a target of `letters` letters: a blank, a letter, a blank,
    /// …, a blank.
    #[must_use]
    pub const fn states(letters: u32) -> u32 {
        2 * letters + 1
    }

    /// Returns true if the class can be a letter of a target: it is a class and not the blank.
    #[must_use]
    pub const fn is_letter(&self, class: u32) -> bool {
        class < self.logits[2] && class != self.blank
    }

    /// Returns true if the logits and targets have at least this number of frames and letters.
    #[must_use]
    pub const fn holds(&self, frames: u32, letters: u32) -> bool {
        frames <= self.logits[1] && letters <= self.letters
    }

    /// Returns the minimum number of frames for a target: one for each letter, and one between two that are equal.
    pub fn least_frames(target: &[u32]) -> usize {
        target.len() + target.windows(2).filter(|two| two.first() == two.last()).count()
    }
}
