//! Scores of predicted classes.

pub use gradscale::metrics::{Confusion, ErrorRate, Perplexity, TopK};
use serde::{Deserialize, Deserializer, Serialize};

/// Scores, as shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Mean intersection over union; only where every pixel has a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miou: Option<f64>,
    /// Mean over classes of the share that is right.
    #[serde(deserialize_with = "or_nan")]
    pub class_accuracy: f64,
    /// Share of all pixels, or images, that is right.
    #[serde(deserialize_with = "or_nan")]
    pub global_accuracy: f64,
    /// Share of images whose class is among the five likeliest; only where there are more classes than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_5: Option<f64>,
    /// The class that was predicted everywhere, if there was no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<u32>,
    /// Of two towers, the share of images that each tells right; the scores above are over the answers of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub towers: Option<[f64; 2]>,
    /// Of texts, the character error rate of the likeliest alignment and of the likeliest text. Then right is a recording
    /// whose likeliest text is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cer: Option<[f64; 2]>,
    /// Of texts, between how many tokens a network wavers. Then right is a token that was the likeliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// The same of the best answer that is always the same: how often training has each token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unigram: Option<f64>,
    /// Bits that a character takes, where tokens are characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<f64>,
}

impl Metrics {
    /// Of images with one class each.
    #[must_use]
    pub fn of_images(confusion: &Confusion) -> Self {
        let (class_accuracy, global_accuracy) = (confusion.class_accuracy(), confusion.global_accuracy());
        let only = only(confusion);
        Self { only, ..Self::of_shares(class_accuracy, global_accuracy) }
    }

    /// Of images that two towers tell. If either of them takes all for one class, that is said of both.
    #[must_use]
    pub fn of_towers(first: &Confusion, second: Confusion) -> Self {
        let towers = Some([first.global_accuracy(), second.global_accuracy()]);
        let only = only(first).or_else(|| only(&second));
        Self { towers, only, ..Self::of_images(&second.and(first)) }
    }

    /// Of texts, by both decoders, of which such a share is all right.
    #[must_use]
    pub fn of_texts(rates: [ErrorRate; 2], right: f64) -> Self {
        let cer = Some(rates.map(|rate| rate.share()));
        Self { cer, ..Self::of_shares(right, right) }
    }

    /// Of tokens, perhaps characters, beside the perplexity of how often each is; such a share of the likeliest is right.
    #[must_use]
    pub fn of_tokens(perplexity: &Perplexity, unigram: f64, characters: bool, right: f64) -> Self {
        let bits = characters.then(|| perplexity.bits());
        let (perplexity, unigram) = (Some(perplexity.value()), Some(unigram));
        Self { perplexity, unigram, bits, ..Self::of_shares(right, right) }
    }

    /// Perplexity, and bits per character, in words.
    #[must_use]
    pub fn wavers(&self) -> Option<String> {
        let perplexity = self.perplexity?;
        // A network that has diverged.
        let large = perplexity >= 1e6;
        let number = if large { format!("{perplexity:.1e}") } else { format!("{perplexity:.2}") };
        let bits = self.bits.map_or(String::new(), |bits| format!(", {bits:.3} bits per character"));
        Some(format!("perplexity {number}{bits}"))
    }

    /// Which share of the bits that a token takes by how often it is was saved.
    #[must_use]
    pub fn saved(&self) -> Option<f64> {
        Some(1.0 - self.perplexity?.ln() / self.unigram?.ln())
    }

    /// Of classes or images that are right, and nothing else.
    #[must_use]
    pub const fn of_shares(class_accuracy: f64, global_accuracy: f64) -> Self {
        Self {
            miou: None,
            class_accuracy,
            global_accuracy,
            top_5: None,
            only: None,
            towers: None,
            cer: None,
            perplexity: None,
            unigram: None,
            bits: None,
        }
    }

    /// Of pixels.
    #[must_use]
    pub fn of_pixels(confusion: &Confusion) -> Self {
        Self { miou: Some(confusion.miou()), ..Self::of_images(confusion) }
    }
}

/// A number that JSON may have none for: `null` is read as NaN.
pub(crate) fn or_nan<'de, D: Deserializer<'de>, T: Deserialize<'de> + From<f32>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_else(|| f32::NAN.into()))
}

/// The class that was predicted everywhere, if there was no other.
fn only(confusion: &Confusion) -> Option<u32> {
    confusion.only().and_then(|class| u32::try_from(class).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_class_everywhere() {
        let mut confusion = Confusion::new(3);
        assert_eq!(Metrics::of_pixels(&confusion).only, None);
        confusion.add(&[0u8, 1, 2, 9], &[2u8, 2, 2, 0], Some(9)).unwrap();
        assert_eq!(Metrics::of_pixels(&confusion).only, Some(2));
        confusion.add(&[0u8], &[1u8], None).unwrap();
        assert_eq!(Metrics::of_pixels(&confusion).only, None);
    }
}
