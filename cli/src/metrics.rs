//! Scores of predicted classes.

pub use gradscale::metrics::{Confusion, ErrorRate, TopK};
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
    /// Of images that were made; nothing is right or wrong then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generated: Option<Generated>,
}

/// How images that a network makes are like real ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// Fréchet distance of their features from those of real images.
    #[serde(deserialize_with = "or_nan")]
    pub distance: f64,
    /// The distance of always the mean image.
    pub constant: f64,
    /// Variance of the made images' pixels, as a share of that of the real ones.
    #[serde(deserialize_with = "or_nan")]
    pub variety: f64,
}

impl Generated {
    /// 0 where the images are as far from the real ones as always the mean image is, 1 where nothing tells them apart.
    #[must_use]
    pub fn nearness(self) -> f64 {
        1.0 - self.distance / self.constant
    }
}

impl Metrics {
    /// Of images with one class each.
    #[must_use]
    pub fn of_images(confusion: &Confusion) -> Self {
        let (class_accuracy, global_accuracy) = (confusion.class_accuracy(), confusion.global_accuracy());
        let only = only(confusion);
        Self {
            miou: None,
            class_accuracy,
            global_accuracy,
            top_5: None,
            only,
            towers: None,
            cer: None,
            generated: None,
        }
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
        let (miou, top_5, only, towers, generated) = Default::default();
        Self { miou, class_accuracy: right, global_accuracy: right, top_5, only, towers, cer, generated }
    }

    /// Of images that were made.
    #[must_use]
    pub fn of_made(generated: Generated) -> Self {
        let (miou, top_5, only, towers, cer) = Default::default();
        let (class_accuracy, global_accuracy) = (f64::NAN, f64::NAN);
        Self { miou, class_accuracy, global_accuracy, top_5, only, towers, cer, generated: Some(generated) }
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
