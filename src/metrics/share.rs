//! Accuracy and top-k accuracy.

use super::{MetricError, same_length};

/// Accuracy: the fraction of labels that were predicted correctly, for any number of classes. For few classes
/// [`super::Confusion`] has more details.
///
/// ```
/// use gradscale::metrics::Accuracy;
/// let mut accuracy = Accuracy::default();
/// accuracy.add(&[2u8, 0, 1, 9], &[2u32, 1, 1, 0], Some(9))?;
/// assert_eq!((accuracy.share(), accuracy.count()), (2.0 / 3.0, 3));
/// # Ok::<(), gradscale::metrics::MetricError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accuracy {
    hits: u64,
    count: u64,
}

impl Accuracy {
    /// Adds labels with their predictions to the accuracy, except for labels that are `ignore`.
    ///
    /// # Errors
    /// Slices of different lengths.
    pub fn add<L, P>(&mut self, labels: &[L], predictions: &[P], ignore: Option<u32>) -> Result<(), MetricError>
    where
        L: Copy + Into<u32>,
        P: Copy + Into<u32>,
    {
        same_length(labels.len(), predictions.len())?;
        for (label, prediction) in labels.iter().zip(predictions).map(|(&label, &found)| (label.into(), found.into())) {
            if Some(label) != ignore {
                self.hit(label == prediction);
            }
        }
        Ok(())
    }

    fn hit(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.count += 1;
    }

    /// Returns the number of labels that the accuracy counts.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the accuracy: the fraction of counted labels that were correct; NaN without any.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.hits as f64 / self.count as f64
    }
}

/// Top-k accuracy: the fraction of labels that are among the k classes with the largest logits. Of equal logits the
/// lower class comes first, as for argmax, so k = 1 is [`Accuracy`]. A row with a NaN is never correct.
///
/// ```
/// use gradscale::metrics::TopK;
/// let mut top = TopK::new(2);
/// top.add(&[0.1, 0.7, 0.2, 0.5, 0.3, 0.4], &[2u8, 1], None)?;
/// assert_eq!(top.share(), 0.5);
/// # Ok::<(), gradscale::metrics::MetricError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    k: usize,
    seen: Accuracy,
}

impl TopK {
    /// Creates the top-k accuracy, which counts a label among the `k` likeliest classes as correct.
    #[must_use]
    pub fn new(k: usize) -> Self {
        Self { k, seen: Accuracy::default() }
    }

    /// Counts a row of logits for each label, `[labels, classes]`, except for labels that are `ignore`.
    ///
    /// # Errors
    /// Logits that are not whole rows, or a label that is not a class.
    pub fn add<L: Copy + Into<u32>>(
        &mut self, logits: &[f32], labels: &[L], ignore: Option<u32>,
    ) -> Result<(), MetricError> {
        let classes = logits.len().checked_div(labels.len()).unwrap_or(0);
        if classes * labels.len() != logits.len() || logits.is_empty() != labels.is_empty() {
            return Err(MetricError::Length { labels: labels.len(), predictions: logits.len() });
        }
        let counted = || {
            let rows = logits.chunks_exact(classes.max(1)).zip(labels.iter().map(|&label| label.into())).enumerate();
            rows.filter(|(_, (_, label))| Some(*label) != ignore)
        };
        let place = |label: u32| usize::try_from(label).unwrap_or(usize::MAX);
        if let Some((row, (_, label))) = counted().find(|(_, (_, label))| place(*label) >= classes) {
            return Err(MetricError::Class { label, prediction: None, place: row, classes });
        }
        for (_, (row, label)) in counted() {
            let (at, own) = (place(label), row[place(label)]);
            let before = |(i, &logit): (usize, &f32)| logit > own || logit == own && i < at;
            let rank = row.iter().enumerate().filter(|&one| before(one)).count();
            self.seen.hit(rank < self.k && !row.iter().any(|logit| logit.is_nan()));
        }
        Ok(())
    }

    /// Returns the number of labels that the top-k accuracy counts.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.seen.count()
    }

    /// Returns the top-k accuracy: the fraction of counted labels that were correct; NaN without any.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.seen.share()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut accuracy = Accuracy::default();
        assert!(accuracy.share().is_nan());
        accuracy.add(&[300u32, 70_000, 5], &[300u32, 7, 5], None).unwrap();
        accuracy.add(&[5u8, 1], &[1u8, 1], Some(5)).unwrap();
        assert_eq!((accuracy.share(), accuracy.count()), (0.75, 4));
        let error = accuracy.add(&[1u8, 2], &[1u8], None).unwrap_err();
        assert_eq!((error.to_string().as_str(), accuracy.count()), ("2 labels for 1 predictions", 4));
    }

    #[test]
    fn the_first_k() {
        // Ranks of the labels: 0, 2, 1 (a tie with a lower class), 0 (a tie with a higher one).
        let logits = [9.0, 1.0, 2.0, 3.0, 1.0, 2.0, 5.0, 5.0, 0.0, 4.0, 4.0, -1.0];
        let labels = [0u8, 1, 1, 0];
        for (row, (&label, rank)) in logits.chunks(3).zip(labels.iter().zip([0, 2, 1, 0])) {
            for k in 0..4 {
                let mut top = TopK::new(k);
                top.add(row, &[label], None).unwrap();
                assert_eq!(top.share(), if rank < k { 1.0 } else { 0.0 }, "{row:?}, {k}");
            }
        }
        for (k, right) in [(0, 0.0), (1, 0.5), (2, 0.75), (3, 1.0), (9, 1.0)] {
            let mut top = TopK::new(k);
            top.add(&logits, &labels, None).unwrap();
            assert_eq!((top.share(), top.count()), (right, 4), "{k}");
        }
        let mut top = TopK::new(2);
        top.add(&[f32::NAN, 1.0, f32::INFINITY, 0.0], &[1u32, 0], None).unwrap();
        assert_eq!(top.share(), 0.5, "a row with a NaN is never right");
        top.add(&logits, &[0u8, 255, 255, 0], Some(255)).unwrap();
        assert_eq!((top.share(), top.count()), (0.75, 4));
    }

    #[test]
    fn rows_that_do_not_fit() {
        let mut top = TopK::new(1);
        let said = |error: Result<(), MetricError>| error.unwrap_err().to_string();
        assert_eq!(said(top.add(&[0.5; 7], &[0u8, 1], None)), "2 labels for 7 predictions");
        assert_eq!(said(top.add(&[0.5; 6], &[0u8, 3], None)), "1: label 3 does not fit 3 classes");
        assert_eq!(said(top.add(&[0.5; 6], &[] as &[u8], None)), "0 labels for 6 predictions");
        assert_eq!(said(top.add(&[], &[0u8], None)), "1 labels for 0 predictions");
        top.add(&[], &[] as &[u8], None).unwrap();
        assert!(top.count() == 0 && top.share().is_nan());
    }
}
