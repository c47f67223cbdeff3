//! Which classes are taken for which.

use super::{MetricError, same_length};

/// How often each class was taken for each.
///
/// Scores are fractions 0…1, means over the classes that occur in the labels; NaN while nothing has been counted. It takes
/// 8 bytes for each pair of classes.
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
    /// [label, prediction].
    counts: Vec<u64>,
}

impl Confusion {
    /// Of so many classes, with nothing counted.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self { classes, counts: vec![0; classes * classes] }
    }

    /// Counts labels with their predictions (pixels, or images), but for those whose label is `ignore`.
    ///
    /// # Errors
    /// Slices of unlike lengths; a label or a prediction that is no class.
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

    /// What two have counted, of the same classes; of unlike numbers, those of the first.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        for label in 0..self.classes {
            for prediction in 0..self.classes {
                self.counts[label * self.classes + prediction] += other.count(label, prediction);
            }
        }
        self
    }

    /// How often class `label` was taken for `prediction`; 0 for what is no class.
    #[must_use]
    pub fn count(&self, label: usize, prediction: usize) -> u64 {
        if label < self.classes && prediction < self.classes {
            self.counts[label * self.classes + prediction]
        } else {
            0
        }
    }

    /// A class's intersection over union: what of it was taken for it, of all that is it or was taken for it. None if it
    /// does not occur in the labels.
    #[must_use]
    pub fn iou(&self, class: usize) -> Option<f64> {
        let hits = self.count(class, class);
        let taken: u64 = (0..self.classes).map(|label| self.count(label, class)).sum();
        let union = self.labelled(class) + taken - hits;
        (self.labelled(class) > 0).then(|| hits as f64 / union as f64)
    }

    /// A class's accuracy, its recall: what of it was taken for it, of all that is it. None if it does not occur in the
    /// labels.
    #[must_use]
    pub fn accuracy(&self, class: usize) -> Option<f64> {
        let labelled = self.labelled(class);
        (labelled > 0).then(|| self.count(class, class) as f64 / labelled as f64)
    }

    /// Mean of [`Confusion::iou`] over the classes that occur in the labels. What was taken for another class still counts
    /// against the class that it is of.
    #[must_use]
    pub fn miou(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.iou(class)))
    }

    /// Mean of [`Confusion::accuracy`] over the classes that occur in the labels.
    #[must_use]
    pub fn class_accuracy(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.accuracy(class)))
    }

    /// What was taken for what it is, of all.
    #[must_use]
    pub fn global_accuracy(&self) -> f64 {
        let hits: u64 = (0..self.classes).map(|class| self.count(class, class)).sum();
        hits as f64 / self.counts.iter().sum::<u64>() as f64
    }

    /// The class that was predicted everywhere, if there was no other.
    #[must_use]
    pub fn only(&self) -> Option<usize> {
        let predicted = |class: &usize| (0..self.classes).any(|label| self.count(label, *class) > 0);
        let mut classes = (0..self.classes).filter(predicted);
        let first = classes.next()?;
        classes.next().is_none().then_some(first)
    }

    /// Labels of a class.
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

    /// What is no class is named, and nothing is counted.
    #[test]
    fn what_is_no_class() {
        let mut confusion = Confusion::new(2);
        let said = |error: Result<(), MetricError>| error.unwrap_err().to_string();
        assert_eq!(said(confusion.add(&[0u8, 2], &[0u8, 0], None)), "1: 2 taken for 0, of 2 classes");
        assert_eq!(said(confusion.add(&[0u32, 1], &[u32::MAX, 0], None)), "0: 0 taken for 4294967295, of 2 classes");
        assert_eq!(said(confusion.add(&[0u8, 1], &[0u8], None)), "2 labels for 1 predictions");
        assert_eq!(confusion, Confusion::new(2));
    }
}
