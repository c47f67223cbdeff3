//! Confusion matrix.

use super::{MetricError, same_length};

/// Confusion matrix: number of predictions of each class, for each label.
///
/// Scores are fractions 0…1, means over the classes that occur in the labels; NaN without labels. The matrix takes 8
/// bytes for each pair of classes.
///
/// ```
/// use gradscale::metrics::Confusion;
/// let mut confusion = Confusion::new(2);
/// confusion.add(&[0u8, 0, 0, 1, 255], &[0u8, 0, 1, 1, 0], Some(255))?;
/// assert_eq!(confusion.global_accuracy(), 3.0 / 4.0);
/// assert_eq!(confusion.class_accuracy(), (2.0 / 3.0 + 1.0) / 2.0);
/// assert_eq!(confusion.miou(), (2.0 / 3.0 + 1.0 / 2.0) / 2.0);
/// # Ok::<(), gradscale::metrics::MetricError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// Number of predictions of each class for each label, by [label, prediction].
    counts: Vec<u64>,
}

impl Confusion {
    /// Creates an empty confusion matrix for `classes` classes.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self { classes, counts: vec![0; classes * classes] }
    }

    /// Counts labels with their predictions (pixels or images), except those whose label is `ignore`.
    ///
    /// # Errors
    /// Slices of different lengths; a label or a prediction that is not a class.
    pub fn add<L, P>(&mut self, labels: &[L], predictions: &[P], ignore: Option<u32>) -> Result<(), MetricError>
    where
        L: Copy + Into<u32>,
        P: Copy + Into<u32>,
    {
        same_length(labels.len(), predictions.len())?;
        let counted = || {
            let pairs = labels.iter().zip(predictions).map(|(&label, &found)| (label.into(), found.into()));
            pairs.enumerate().filter(|(_, (label, _))| Some(*label) != ignore)
        };
        let classes = self.classes;
        let index = |(label, prediction): (u32, u32)| {
            let [label, prediction] = [label, prediction].map(|class| usize::try_from(class).ok());
            let [label, prediction] = [label?, prediction?];
            let known = label < classes && prediction < classes;
            known.then_some(label * classes + prediction)
        };
        if let Some((place, (label, prediction))) = counted().find(|(_, pair)| index(*pair).is_none()) {
            return Err(MetricError::Class { label, prediction: Some(prediction), place, classes });
        }
        counted().filter_map(|(_, pair)| index(pair)).for_each(|place| self.counts[place] += 1);
        Ok(())
    }

    /// Adds the counts of another matrix of the same classes; if their number differs, the counts of `self` are
    /// returned.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for label in 0..self.classes {
            for prediction in 0..self.classes {
                self.counts[label * self.classes + prediction] += other.count(label, prediction);
            }
        }
        self
    }

    /// Returns how often class `label` was predicted as `prediction`; 0 for an invalid class.
    #[must_use]
    pub fn count(&self, label: usize, prediction: usize) -> u64 {
        if label < self.classes && prediction < self.classes {
            self.counts[label * self.classes + prediction]
        } else {
            0
        }
    }

    /// Returns the intersection over union of a class: its correct predictions, divided by its labels and predictions
    /// together. `None` if it does not occur in the labels.
    #[must_use]
    pub fn iou(&self, class: usize) -> Option<f64> {
        let hits = self.count(class, class);
        let taken: u64 = (0..self.classes).map(|label| self.count(label, class)).sum();
        let union = self.labelled(class) + taken - hits;
        (self.labelled(class) > 0).then(|| hits as f64 / union as f64)
    }

    /// Returns the accuracy (recall) of a class: its correct predictions, divided by its labels. `None` if it does not
    /// occur in the labels.
    #[must_use]
    pub fn accuracy(&self, class: usize) -> Option<f64> {
        let labelled = self.labelled(class);
        (labelled > 0).then(|| self.count(class, class) as f64 / labelled as f64)
    }

    /// Returns the mean of [`Confusion::iou`] over the classes that occur in the labels. Wrong predictions of other
    /// classes still lower the score of the label's class.
    #[must_use]
    pub fn miou(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.iou(class)))
    }

    /// Returns the mean of [`Confusion::accuracy`] over the classes that occur in the labels.
    #[must_use]
    pub fn class_accuracy(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.accuracy(class)))
    }

    /// Returns the fraction of all labels that were predicted correctly.
    #[must_use]
    pub fn global_accuracy(&self) -> f64 {
        let hits: u64 = (0..self.classes).map(|class| self.count(class, class)).sum();
        hits as f64 / self.counts.iter().sum::<u64>() as f64
    }

    /// Returns the class that was predicted everywhere, if there was only one.
    #[must_use]
    pub fn only(&self) -> Option<usize> {
        let predicted = |class: &usize| (0..self.classes).any(|label| self.count(label, *class) > 0);
        let mut classes = (0..self.classes).filter(predicted);
        let first = classes.next()?;
        classes.next().is_none().then_some(first)
    }

    /// Returns the number of counted labels of a class.
    fn labelled(&self, class: usize) -> u64 {
        (0..self.classes).map(|prediction| self.count(class, prediction)).sum()
    }
}

/// Returns the mean of the values; NaN if there are none.
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
        // Class 0: 4 pixels, 3 correct, one predicted as 1. Class 1: 2 pixels, 1 correct, one predicted as 3, which has
        // no labels. Class 2: 2 pixels, none correct, predicted as 0. Label 9 does not count, whatever its prediction.
        confusion.add(&[0u8, 0, 0, 0, 1], &[0u8, 0, 0, 1, 1], Some(9)).unwrap();
        confusion.add(&[1u8, 2, 2, 9, 9], &[3u32, 0, 0, 0, 200], Some(9)).unwrap();
        assert_eq!([0, 1, 2, 3].map(|c| confusion.iou(c)), [Some(3.0 / 6.0), Some(1.0 / 3.0), Some(0.0), None]);
        assert_eq!([0, 1, 2, 3].map(|c| confusion.accuracy(c)), [Some(0.75), Some(0.5), Some(0.0), None]);
        assert_eq!(confusion.miou(), (0.5 + 1.0 / 3.0) / 3.0);
        assert_eq!(confusion.class_accuracy(), 1.25 / 3.0);
        assert_eq!(confusion.global_accuracy(), 0.5);
        assert_eq!((confusion.count(2, 0), confusion.count(4, 0), confusion.count(0, 4)), (2, 0, 0));
        let both = confusion.clone().and(&confusion);
        assert_eq!((both.count(0, 0), both.count(1, 3), both.miou()), (6, 2, confusion.miou()));
    }

    #[test]
    fn extremes() {
        let mut right = Confusion::new(256);
        let all: Vec<u8> = (0..=255).collect();
        right.add(&all, &all, None).unwrap();
        assert_eq!((right.miou(), right.class_accuracy(), right.global_accuracy()), (1.0, 1.0, 1.0));
        for nothing in [Confusion::new(3), Confusion::new(0)] {
            assert!(nothing.miou().is_nan() && nothing.class_accuracy().is_nan() && nothing.global_accuracy().is_nan());
        }
    }

    #[test]
    fn one_class_everywhere() {
        let mut confusion = Confusion::new(3);
        assert_eq!(confusion.only(), None);
        confusion.add(&[0u8, 1, 2, 9], &[2u8, 2, 2, 0], Some(9)).unwrap();
        assert_eq!(confusion.only(), Some(2));
        confusion.add(&[0u8], &[1u8], None).unwrap();
        assert_eq!(confusion.only(), None);
    }

    /// The error contains the invalid class, and nothing is counted.
    #[test]
    fn what_is_no_class() {
        let mut confusion = Confusion::new(2);
        let said = |error: Result<(), MetricError>| error.unwrap_err().to_string();
        assert_eq!(said(confusion.add(&[0u8, 2], &[0u8, 0], None)), "1: label 2 and prediction 0 do not fit 2 classes");
        assert_eq!(
            said(confusion.add(&[0u32, 1], &[u32::MAX, 0], None)),
            "0: label 0 and prediction 4294967295 do not \
            fit 2 classes"
        );
        assert_eq!(said(confusion.add(&[0u8, 1], &[0u8], None)), "2 labels for 1 predictions");
        assert_eq!(confusion, Confusion::new(2));
    }
}
