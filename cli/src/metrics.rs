//! Scores of predicted classes.

pub use gradscale::metrics::{AveragePrecision, Confusion, ErrorRate, TopK};
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
    /// Of boxes, the mean average precision at an overlap of 0.5: over eleven recalls (PASCAL VOC 2007), and the area (since
    /// 2010). Then right is the former.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<[f64; 2]>,
    /// Of boxes of up to 20 classes, the area of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_map: Option<PerClass>,
    /// Of boxes, how many were found, whatever they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
}

/// A share for each class; none of a class that is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Vec<Option<f32>>", try_from = "Vec<Option<f32>>")]
pub struct PerClass {
    count: usize,
    /// −1 for none.
    shares: [f32; Self::MOST],
}

impl PerClass {
    /// As many classes as there may be.
    pub const MOST: usize = 20;

    /// Of these shares; none of too many.
    #[must_use]
    pub fn new(all: &[Option<f64>]) -> Option<Self> {
        let mut shares = [-1.0; Self::MOST];
        for (kept, share) in shares.get_mut(..all.len())?.iter_mut().zip(all) {
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let share = share.map_or(-1.0, |share| share as f32);
            *kept = share;
        }
        Some(Self { count: all.len(), shares })
    }

    /// That of each class.
    pub fn iter(&self) -> impl Iterator<Item = Option<f32>> + '_ {
        self.shares[..self.count].iter().map(|&share| Some(share).filter(|share| *share >= 0.0))
    }
}

impl From<PerClass> for Vec<Option<f32>> {
    fn from(all: PerClass) -> Self {
        all.iter().collect()
    }
}

impl TryFrom<Vec<Option<f32>>> for PerClass {
    type Error = String;

    fn try_from(all: Vec<Option<f32>>) -> Result<Self, String> {
        let shares: Vec<Option<f64>> = all.iter().map(|share| share.map(f64::from)).collect();
        Self::new(&shares).ok_or_else(|| format!("{} classes", all.len()))
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
            map: None,
            class_map: None,
            found: None,
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
        Self { cer, ..Self::right(right) }
    }

    /// Of boxes. `only`: the class of all that were found, from 0, where there is more than one to find.
    #[must_use]
    pub fn of_boxes(precision: &AveragePrecision, only: Option<u32>) -> Self {
        let [eleven, area] = [precision.mean_eleven(), precision.mean_area()].map(|mean| mean.unwrap_or(f64::NAN));
        Self {
            only,
            map: Some([eleven, area]),
            class_map: PerClass::new(&precision.area()),
            found: Some(precision.detections() as u64),
            ..Self::right(eleven)
        }
    }

    /// Of answers of which such a share is right.
    fn right(share: f64) -> Self {
        let (only, confusion) = (None, Confusion::new(1));
        Self { class_accuracy: share, global_accuracy: share, only, ..Self::of_images(&confusion) }
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
