//! Scores of predicted classes.

use crate::compare::record::or_nan;
use serde::{Deserialize, Serialize};

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
    /// The class that was predicted everywhere, if there was no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<u8>,
    /// Of two towers, the share of images that each tells right; the scores above are over the answers of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub towers: Option<[f64; 2]>,
}

impl Metrics {
    /// Of images with one class each.
    #[must_use]
    pub fn of_images(confusion: &Confusion) -> Self {
        let (class_accuracy, global_accuracy) = (confusion.class_accuracy(), confusion.global_accuracy());
        Self { miou: None, class_accuracy, global_accuracy, only: confusion.only(), towers: None }
    }

    /// Of images that two towers tell. If either of them takes all for one class, that is said of both.
    #[must_use]
    pub fn of_towers(first: &Confusion, second: Confusion) -> Self {
        let towers = Some([first.global_accuracy(), second.global_accuracy()]);
        let only = first.only().or_else(|| second.only());
        Self { towers, only, ..Self::of_images(&second.and(first)) }
    }

    /// Of pixels.
    #[must_use]
    pub fn of_pixels(confusion: &Confusion) -> Self {
        Self { miou: Some(confusion.miou()), ..Self::of_images(confusion) }
    }
}

/// How often each class was taken for each.
///
/// Scores are fractions 0…1, means over the classes that occur in the labels; NaN while nothing has been counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// [label, prediction].
    counts: Vec<u64>,
}

impl Confusion {
    /// Of so many classes, with nothing counted. Labels are bytes, so more than 256 are never seen.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        let classes = classes.min(256);
        Self { classes, counts: vec![0; classes * classes] }
    }

    /// Counts pixels, but for those whose label is `ignore`.
    ///
    /// # Panics
    /// The slices differ in length, or a label or a prediction is no class.
    pub fn add(&mut self, labels: &[u8], predictions: &[u8], ignore: Option<u8>) {
        assert_eq!(labels.len(), predictions.len(), "labels and predictions differ in number");
        for (&label, &prediction) in labels.iter().zip(predictions).filter(|(label, _)| Some(**label) != ignore) {
            let (label, prediction) = (usize::from(label), usize::from(prediction));
            let classes = self.classes;
            assert!(label < classes && prediction < classes, "{label} taken for {prediction}, of {classes} classes");
            self.counts[label * classes + prediction] += 1;
        }
    }

    /// What two have counted, of the same classes.
    fn and(mut self, other: &Self) -> Self {
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self
    }

    /// How many pixels of class `label` were taken for `prediction`; 0 for what is no class.
    #[must_use]
    pub fn count(&self, label: usize, prediction: usize) -> u64 {
        if label < self.classes && prediction < self.classes {
            self.counts[label * self.classes + prediction]
        } else {
            0
        }
    }

    /// A class's intersection over union: pixels of it taken for it, of those of it or taken for it.
    /// None if it does not occur in the labels.
    #[must_use]
    pub fn iou(&self, class: usize) -> Option<f64> {
        let hits = self.count(class, class);
        let taken: u64 = (0..self.classes).map(|label| self.count(label, class)).sum();
        let union = self.labelled(class) + taken - hits;
        (self.labelled(class) > 0).then(|| hits as f64 / union as f64)
    }

    /// A class's accuracy: pixels of it taken for it, of those of it. None if it does not occur in the labels.
    #[must_use]
    pub fn accuracy(&self, class: usize) -> Option<f64> {
        let labelled = self.labelled(class);
        (labelled > 0).then(|| self.count(class, class) as f64 / labelled as f64)
    }

    /// Mean of [`Confusion::iou`] over the classes that occur in the labels. Pixels taken for another class still
    /// count against the class they are of.
    #[must_use]
    pub fn miou(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.iou(class)))
    }

    /// Mean of [`Confusion::accuracy`] over the classes that occur in the labels.
    #[must_use]
    pub fn class_accuracy(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.accuracy(class)))
    }

    /// Pixels taken for what they are, of all.
    #[must_use]
    pub fn global_accuracy(&self) -> f64 {
        let hits: u64 = (0..self.classes).map(|class| self.count(class, class)).sum();
        hits as f64 / self.counts.iter().sum::<u64>() as f64
    }

    /// The class that was predicted everywhere, if there was no other.
    #[must_use]
    pub fn only(&self) -> Option<u8> {
        let predicted = |class: &usize| (0..self.classes).any(|label| self.count(label, *class) > 0);
        let mut classes = (0..self.classes).filter(predicted);
        let first = classes.next()?;
        if classes.next().is_none() { u8::try_from(first).ok() } else { None }
    }

    /// Pixels of a class.
    fn labelled(&self, class: usize) -> u64 {
        (0..self.classes).map(|prediction| self.count(class, prediction)).sum()
    }
}

/// NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut confusion = Confusion::new(4);
        // Class 0: 4 pixels, 3 found, one taken for 1. Class 1: 2 pixels, 1 found, one taken for 3, which does not occur.
        // Class 2: 2 pixels, none found, taken for 0. Label 9 does not count, whatever it was taken for.
        confusion.add(&[0, 0, 0, 0, 1], &[0, 0, 0, 1, 1], Some(9));
        confusion.add(&[1, 2, 2, 9, 9], &[3, 0, 0, 0, 200], Some(9));
        assert_eq!([0, 1, 2, 3].map(|c| confusion.iou(c)), [Some(3.0 / 6.0), Some(1.0 / 3.0), Some(0.0), None]);
        assert_eq!([0, 1, 2, 3].map(|c| confusion.accuracy(c)), [Some(0.75), Some(0.5), Some(0.0), None]);
        assert_eq!(confusion.miou(), (0.5 + 1.0 / 3.0) / 3.0);
        assert_eq!(confusion.class_accuracy(), 1.25 / 3.0);
        assert_eq!(confusion.global_accuracy(), 0.5);
        assert_eq!((confusion.count(2, 0), confusion.count(4, 0), confusion.count(0, 4)), (2, 0, 0));
    }

    #[test]
    fn extremes() {
        let mut right = Confusion::new(256);
        let all: Vec<u8> = (0..=255).collect();
        right.add(&all, &all, None);
        assert_eq!((right.miou(), right.class_accuracy(), right.global_accuracy()), (1.0, 1.0, 1.0));
        let nothing = Confusion::new(3);
        assert!(nothing.miou().is_nan() && nothing.class_accuracy().is_nan() && nothing.global_accuracy().is_nan());
    }

    #[test]
    fn one_class_everywhere() {
        let mut confusion = Confusion::new(3);
        assert_eq!(confusion.only(), None);
        confusion.add(&[0, 1, 2, 9], &[2, 2, 2, 0], Some(9));
        assert_eq!((confusion.only(), Metrics::of_pixels(&confusion).only), (Some(2), Some(2)));
        confusion.add(&[0], &[1], None);
        assert_eq!(confusion.only(), None);
    }

    #[test]
    #[should_panic(expected = "2 taken for 0, of 2 classes")]
    fn label_that_is_no_class() {
        Confusion::new(2).add(&[0, 2], &[0, 0], None);
    }
}
