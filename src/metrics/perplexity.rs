//! How many tokens a language model wavers between.

/// e to the mean cross-entropy (in nats) of all tokens: 1 for a model that is certain and right, the number of tokens there
/// are for one that knows nothing.
///
/// ```
/// use gradscale::metrics::Perplexity;
/// let mut perplexity = Perplexity::default();
/// // Mean losses of batches of unlike numbers of tokens.
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
    /// Adds the mean cross-entropy of so many tokens. That of a step is its outcome's loss, if the loss is the mean.
    pub fn add(&mut self, mean: impl Into<f64>, tokens: u64) {
        if tokens > 0 {
            self.nats += mean.into() * tokens as f64;
            self.tokens += tokens;
        }
    }

    /// Mean cross-entropy in nats; NaN of no tokens.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.nats / self.tokens as f64
    }

    /// e to [`Perplexity::mean`]; NaN of no tokens.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.mean().exp()
    }

    /// [`Perplexity::mean`] in bits.
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
