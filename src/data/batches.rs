//! Assignment of examples to batches.

use super::{DataError, Order, Sample};

/// Treatment of the last examples of an epoch if they do not fill a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// The last batch of an epoch is completed from the next epoch: all batches have one size, and every example is
    /// used.
    #[default]
    Filled,
    /// The last batch of an epoch is shorter, which needs a compiled program for its shape.
    Short,
    /// Incomplete last batches are dropped. Each epoch has another order, so it drops other examples.
    Dropped,
}

/// Endless batches of example indices, each epoch in its own order ([`Order`]).
///
/// ```
/// use gradscale::data::{Batches, Last};
/// let mut batches = Batches::new(10, 4, 7)?.last(Last::Short);
/// let sizes: Vec<usize> = batches.by_ref().take(6).map(|batch| batch.len()).collect();
/// assert_eq!((sizes, batches.epoch()), (vec![4, 4, 2, 4, 4, 2], 2));
/// # Ok::<(), gradscale::data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Batches {
    order: Order,
    count: u64,
    batch: usize,
    last: Last,
}

impl Batches {
    /// Creates endless batches of `batch` out of `count` examples, in an order from `seed`.
    ///
    /// # Errors
    /// A batch of 0, or of more than `count` examples.
    pub fn new(count: usize, batch: usize, seed: u64) -> Result<Self, DataError> {
        if batch == 0 || batch > count {
            return Err(DataError::Batch { batch, count });
        }
        Ok(Self { order: Order::new(count, seed), count: count as u64, batch, last: Last::default() })
    }

    /// Sets the treatment of the last examples of an epoch; the default is [`Last::Filled`].
    #[must_use]
    pub fn last(self, last: Last) -> Self {
        Self { last, ..self }
    }

    /// Moves the batches to a position, so that they continue as after that number of examples.
    #[must_use]
    pub fn at(self, position: u64) -> Self {
        Self { order: self.order.at(position), ..self }
    }

    /// Returns the position: the number of examples used or dropped so far. Together with the seed it is the whole
    /// state.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.order.position()
    }

    /// Returns the epoch, from 0, of the next batch's first example.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.begin() / self.count
    }

    /// Returns the number of examples that the epoch of the next batch has left.
    const fn left(&self) -> u64 {
        self.count - self.order.position() % self.count
    }

    /// Returns the position in the sequence of examples at which the next batch starts.
    const fn begin(&self) -> u64 {
        let position = self.order.position();
        match self.last {
            Last::Dropped if self.left() < self.batch as u64 => position.wrapping_add(self.left()),
            Last::Dropped | Last::Filled | Last::Short => position,
        }
    }
}

impl Iterator for Batches {
    type Item = Vec<Sample>;

    fn next(&mut self) -> Option<Vec<Sample>> {
        let begin = self.begin();
        if begin != self.order.position() {
            self.order = self.order.clone().at(begin);
        }
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let count = if self.last == Last::Short { self.batch.min(left) } else { self.batch };
        Some(self.order.by_ref().take(count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(last: Last, count: usize, batch: usize, batches: usize) -> (Vec<usize>, Vec<Vec<usize>>) {
        let mut all = Batches::new(count, batch, 3).unwrap().last(last);
        let mut seen: Vec<Vec<usize>> = Vec::new();
        let mut sizes = Vec::new();
        for _ in 0..batches {
            let epoch = usize::try_from(all.epoch()).unwrap();
            seen.resize(seen.len().max(epoch + 1), Vec::new());
            let batch = all.next().unwrap();
            sizes.push(batch.len());
            seen[epoch].extend(batch.iter().map(|sample| sample.index));
        }
        (sizes, seen)
    }

    #[test]
    fn ends_of_an_epoch() {
        // 7 examples, 3 per batch.
        let (sizes, seen) = epochs(Last::Filled, 7, 3, 14);
        assert_eq!(sizes, [3; 14]);
        let mut counts = [0; 7];
        seen.iter().flatten().for_each(|&index| counts[index] += 1);
        assert_eq!(counts, [6; 7], "42 examples are six epochs");
        let (sizes, seen) = epochs(Last::Short, 7, 3, 9);
        assert_eq!(sizes, [3, 3, 1, 3, 3, 1, 3, 3, 1]);
        for mut epoch in seen {
            epoch.sort_unstable();
            assert!(epoch.into_iter().eq(0..7));
        }
        let (sizes, seen) = epochs(Last::Dropped, 7, 3, 20);
        assert_eq!(sizes, [3; 20]);
        let mut all = [false; 7];
        for epoch in seen {
            assert_eq!(epoch.len(), 6);
            let mut once = [false; 7];
            epoch.iter().for_each(|&index| once[index] = true);
            assert_eq!(once.iter().filter(|seen| **seen).count(), 6, "{epoch:?}");
            all.iter_mut().zip(once).for_each(|(all, once)| *all |= once);
        }
        assert_eq!(all, [true; 7], "each is shown in some epoch");
        // If the batches divide the epoch, all three are the same.
        let right = epochs(Last::Filled, 6, 3, 8);
        assert!(epochs(Last::Short, 6, 3, 8) == right && epochs(Last::Dropped, 6, 3, 8) == right);
    }

    #[test]
    fn continues_from_every_position() {
        for last in [Last::Filled, Last::Short, Last::Dropped] {
            let mut batches = Batches::new(7, 3, 8).unwrap().last(last);
            for _ in 0..20 {
                let mut resumed = Batches::new(7, 3, 8).unwrap().last(last).at(batches.position());
                assert_eq!(resumed.epoch(), batches.epoch());
                assert_eq!(resumed.next(), batches.next());
            }
        }
    }

    #[test]
    fn batches_that_cannot_be() {
        let said = |count, batch| Batches::new(count, batch, 0).unwrap_err().to_string();
        assert_eq!(said(5, 6), "a batch of 6 examples needs as many, but there are 5");
        assert_eq!(said(5, 0), "a batch needs at least one example");
        assert_eq!(said(0, 1), "a batch of 1 examples needs as many, but there are 0");
        assert_eq!(Batches::new(1, 1, 0).unwrap().next().unwrap().len(), 1);
    }
}
