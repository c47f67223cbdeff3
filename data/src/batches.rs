//! Batches for training and evaluation.

use super::{Cause, DataError, Order, Sample, Split, Store, store::each};
use std::borrow::Cow;

/// Endless batches of one size in random order, images and labels mirrored together with probability ½.
///
/// An epoch's last batch is filled up from the next epoch. The state is the seed and [`Batches::position`], and
/// [`Batches::at`] continues from there to the bit.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    split: &'a Split,
    batch: usize,
    order: Order,
}

impl<'a> Batches<'a> {
    /// Creates an endless sequence of shuffled batches of `batch` images from a split.
    ///
    /// # Errors
    /// The split has fewer images, `batch` is 0, or the lengths of the split's vectors differ from its sizes.
    pub fn new(split: &'a Split, batch: usize, seed: u64) -> Result<Self, Cause> {
        split.consistent()?;
        if batch == 0 || batch > split.count {
            return Err(Cause::Batch { batch, count: split.count });
        }
        Ok(Self { split, batch, order: Order::new(split.count, seed) })
    }

    /// Returns the same sequence from `position` images on.
    #[must_use]
    pub fn at(self, position: u64) -> Self {
        Self { order: self.order.at(position), ..self }
    }

    /// Returns the number of images served so far: after n batches, n·batch.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.order.position()
    }

    /// Overwrites the vectors with the next batch: images [batch, h, w, 3], labels [batch, h, w].
    ///
    /// # Errors
    /// Images on disk that can no longer be read.
    pub fn next(&mut self, images: &mut Vec<u8>, labels: &mut Vec<u8>) -> Result<(), DataError> {
        let samples = self.draw();
        self.read(&samples, images, labels)
    }

    /// Draws the samples of the next batch.
    pub fn draw(&mut self) -> Vec<Sample> {
        self.order.by_ref().take(self.batch).collect()
    }

    /// Overwrites the vectors with these samples: images [n, h, w, 3], labels [n, h, w].
    ///
    /// # Errors
    /// Images on disk that can no longer be read.
    pub fn read(&self, samples: &[Sample], images: &mut Vec<u8>, labels: &mut Vec<u8>) -> Result<(), DataError> {
        images.clear();
        labels.clear();
        let (split, width, pixels) = (self.split, self.split.width, self.split.pixels());
        let read = |sample: &Sample| {
            Ok((split.images.get(sample.index, 3 * pixels)?, split.labels.get(sample.index, pixels)?))
        };
        let in_memory = |store| matches!(store, &Store::Memory(_));
        let read: Vec<Result<_, DataError>> = if in_memory(&split.images) && in_memory(&split.labels) {
            samples.iter().map(read).collect()
        } else {
            each(samples.len(), |i| read(&samples[i]))
        };
        for (sample, read) in samples.iter().zip(read) {
            let (image, label) = read?;
            if sample.flip() {
                image.chunks_exact(width * 3).for_each(|row| images.extend(row.rchunks_exact(3).flatten()));
                label.chunks_exact(width).for_each(|row| labels.extend(row.iter().rev()));
            } else {
                images.extend_from_slice(&image);
                labels.extend_from_slice(&label);
            }
        }
        Ok(())
    }
}

/// Iterator over the batches of a split in order; see [`in_order`].
#[derive(Clone, Debug)]
pub struct InOrder<'a> {
    split: &'a Split,
    batch: usize,
    next: usize,
}

/// Batch of a split: images [n, h, w, 3], labels [n, h, w] and n.
pub type Part<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>, usize);

/// Returns batches of `batch` images of a split in its order, the last one shorter.
///
/// # Errors
/// `batch` is 0, the split is empty, or the lengths of its vectors differ from its sizes.
pub fn in_order(split: &Split, batch: usize) -> Result<InOrder<'_>, Cause> {
    split.consistent()?;
    if batch == 0 {
        return Err(Cause::Batch { batch, count: split.count });
    }
    Ok(InOrder { split, batch, next: 0 })
}

impl<'a> Iterator for InOrder<'a> {
    type Item = Result<Part<'a>, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (split, pixels) = (self.split, self.split.pixels());
        let some = self.next..split.count.min(self.next.saturating_add(self.batch));
        if some.is_empty() {
            return None;
        }
        self.next = some.end;
        let count = some.len();
        let images = split.images.range(some.clone(), 3 * pixels);
        Some(images.and_then(|images| Ok((images, split.labels.range(some, pixels)?, count))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sources;

    /// Five images of 2 × 3, every byte of every pixel telling where it is.
    fn split() -> Split {
        let labels = 0..30_u8;
        let images = labels.clone().flat_map(|pixel| [pixel, pixel + 100, pixel + 200]).collect();
        let (images, labels) = (Store::Memory(images), Store::Memory(labels.collect()));
        Split { count: 5, height: 2, width: 3, images, labels, sources: Sources::Unnamed }
    }

    #[test]
    fn a_batch_is_whole_images_and_their_mirrors() {
        let split = split();
        let mut batches = Batches::new(&split, 2, 1).unwrap();
        let (mut images, mut labels) = (vec![7], vec![7]);
        let (mut seen, mut flips) = (vec![0; 5], 0);
        for _ in 0..50 {
            batches.next(&mut images, &mut labels).unwrap();
            let pixels: Vec<_> = labels.iter().flat_map(|&pixel| [pixel, pixel + 100, pixel + 200]).collect();
            assert_eq!(images, pixels);
            for label in labels.chunks(6) {
                let index = label[0] / 6;
                let plain: Vec<_> = [0, 1, 2, 3, 4, 5].map(|at| index * 6 + at).into();
                let mirror: Vec<_> = [2, 1, 0, 5, 4, 3].map(|at| index * 6 + at).into();
                assert!(label == plain || label == mirror, "{label:?}");
                flips += usize::from(label == mirror);
                seen[usize::from(index)] += 1;
            }
        }
        assert_eq!(batches.position(), 100);
        assert_eq!(seen, [20; 5]);
        assert!((25..75).contains(&flips), "{flips} of 100"); // 5 standard deviations
    }

    #[test]
    fn continues_from_a_position() {
        let split = split();
        let (mut images, mut labels, mut other, mut others) = (vec![], vec![], vec![], vec![]);
        let mut batches = Batches::new(&split, 3, 8).unwrap();
        for _ in 0..20 {
            let mut resumed = Batches::new(&split, 3, 8).unwrap().at(batches.position());
            batches.next(&mut images, &mut labels).unwrap();
            resumed.next(&mut other, &mut others).unwrap();
            assert_eq!((&images, &labels), (&other, &others));
        }
    }

    #[test]
    fn in_order_shows_everything_once() {
        let split = split();
        let batches: Vec<_> = in_order(&split, 2).unwrap().map(Result::unwrap).collect();
        assert_eq!(batches.iter().map(|batch| batch.2).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(batches.iter().map(|batch| &*batch.0).collect::<Vec<_>>().concat(), split.images.memory());
        assert_eq!(batches.iter().map(|batch| &*batch.1).collect::<Vec<_>>().concat(), split.labels.memory());
        assert_eq!(in_order(&split, usize::MAX).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_batched() {
        let mut split = split();
        assert_eq!(
            Batches::new(&split, 6, 0).unwrap_err().to_string(),
            "a batch of 6 images needs as many, but the training set has 5"
        );
        assert!(Batches::new(&split, 5, 0).is_ok());
        assert!(Batches::new(&split, 0, 0).is_err() && in_order(&split, 0).is_err());
        split.width = usize::MAX;
        assert!(Batches::new(&split, 1, 0).is_err() && in_order(&split, 1).is_err());
        let empty =
            Split { count: 0, height: 0, width: 0, images: vec![].into(), labels: vec![].into(), ..split.clone() };
        assert_eq!(in_order(&empty, 1).unwrap_err().to_string(), "no images");
    }
}
