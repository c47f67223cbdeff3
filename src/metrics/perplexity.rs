//! Perplexity of a language model.

/// Perplexity: e to the mean cross-entropy (in nats) of all tokens. It is 1 for a model that is certain and correct,
/// and the size of the vocabulary for a uniform prediction.
///
/// ```
/// use gradscale::metrics::Perplexity;
/// let mut perplexity = Perplexity::default();
/// // Mean losses of batches with different numbers of tokens.
/// perplexity.add(2f64.ln(), 300);
/// perplexity.add(8f64.ln(), 100);
/// assert!((perplexity.value() - 2f64.powf(1.5)).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Perplexity {
    nats: f64,
    tokens: u64,
}

impl Perplexity {
    /// Adds the mean cross-entropy of `tokens` tokens, for example the loss in a step's outcome if that is the mean.
    pub fn add(&mut self, mean: impl Into<f64>, tokens: u64) {
        if tokens > 0 {
            self.nats += mean.into() * tokens as f64;
            self.tokens += tokens;
        }
    }

    /// Returns the mean cross-entropy in nats; NaN without tokens.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// Returns the perplexity, e to [`Perplexity::mean`]; NaN without tokens.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.mean().exp()
    }

    /// Returns the mean cross-entropy in bits instead of nats: see [`Perplexity::mean`].
    #[must_use]
    pub fn bits(&self) -> f64 {
        self.mean() / std::f64::consts::LN_2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut perplexity = Perplexity::default();
        assert!(perplexity.value().is_nan());
        perplexity.add(f64::NAN, 0);
        // Ten tokens at 1/4 each, thirty at 1/16: the mean is 3.5 bits.
        perplexity.add(4f64.ln(), 10);
        perplexity.add(16f64.ln(), 30);
        assert!((perplexity.bits() - 3.5).abs() < 1e-12);
        assert!((perplexity.value() - 2f64.powf(3.5)).abs() < 1e-11);
        perplexity.add(f32::NAN, 1);
        assert!(perplexity.value().is_nan(), "a loss that is no number is not hidden");
    }
}
