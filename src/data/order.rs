//! Random order of examples.

use super::random::Random;

/// One example of a shuffled sequence: its index and a random word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Index of the example in the data.
    pub index: usize,
    /// Random word of this example in this epoch, for its augmentation.
    pub word: u64,
}

impl Sample {
    /// Returns true, with probability ½, if the example should be mirrored horizontally.
    #[must_use]
    pub const fn flip(self) -> bool {
        self.word >> 63 == 1
    }
}

/// Endless sequence of examples: every epoch has every example once, in its own order.
///
/// The example at a position is a function of the seed, the number of examples and the position, so these three are the
/// whole state.
///
/// ```
/// use gradscale::data::Order;
/// let mut order = Order::new(4, 9);
/// let mut epoch: Vec<usize> = order.by_ref().take(4).map(|sample| sample.index).collect();
/// epoch.sort_unstable();
/// assert_eq!(epoch, [0, 1, 2, 3]);
/// let next = order.next();
/// assert_eq!(Order::new(4, 9).at(4).next(), next);
/// ```
#[derive(Clone, Debug)]
pub struct Order {
    seed: u64,
    position: u64,
    /// Number and order of the current epoch, cached because they follow from the seed.
    epoch: u64,
    permutation: Vec<usize>,
}

impl Order {
    /// Creates the shuffled sequence of `count` examples. With 0 it is empty.
    #[must_use]
    pub fn new(count: usize, seed: u64) -> Self {
        Self { seed, position: 0, epoch: 0, permutation: permutation(count, seed, 0) }
    }

    /// Moves the sequence to `position`, so that it continues as after that number of examples.
    #[must_use]
    pub fn at(self, position: u64) -> Self {
        Self { position, ..self }
    }

    /// Returns the number of examples that were taken from the sequence so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }
}

impl Iterator for Order {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        let count = self.permutation.len();
        let epoch = self.position.checked_div(count as u64)?;
        if epoch != self.epoch {
            self.epoch = epoch;
            self.permutation = permutation(count, self.seed, epoch);
        }
        let index = self.permutation[usize::try_from(self.position % count as u64).ok()?];
        self.position = self.position.wrapping_add(1);
        let word = Random::from_key(&[self.seed, epoch, index as u64]).word();
        Some(Sample { index, word })
    }
}

/// Returns the numbers 0…count−1 in random order (Fisher and Yates).
fn permutation(count: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut random = Random::from_key(&[seed, epoch]);
    let mut order: Vec<_> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_once_an_epoch() {
        let mut order = Order::new(101, 9);
        let epochs: Vec<Vec<_>> = (0..4).map(|_| order.by_ref().take(101).collect()).collect();
        for epoch in &epochs {
            let mut indices: Vec<_> = epoch.iter().map(|sample| sample.index).collect();
            indices.sort_unstable();
            assert!(indices.into_iter().eq(0..101));
        }
        let moved = epochs[0].iter().zip(&epochs[1]).filter(|(first, second)| first.index != second.index).count();
        assert!(moved > 90, "the second epoch's order is the first's but for {moved} of 101");
        assert_ne!(epochs[0], Order::new(101, 10).take(101).collect::<Vec<_>>());
        let flips = epochs.iter().flatten().filter(|sample| sample.flip()).count();
        assert!((150..255).contains(&flips), "{flips} of 404"); // 5 standard deviations
    }

    #[test]
    fn permutations_are_equally_likely() {
        let mut counts = [0; 27];
        for seed in 0..60_000 {
            let order = permutation(3, seed, 5);
            counts[order[0] * 9 + order[1] * 3 + order[2]] += 1;
        }
        let seen: Vec<_> = counts.into_iter().filter(|&count| count > 0).collect();
        assert_eq!(seen.len(), 6);
        assert!(seen.iter().all(|count| (9_500..10_500).contains(count)), "{seen:?}"); // 5 standard deviations
    }

    #[test]
    fn continues_anywhere() {
        let all: Vec<_> = Order::new(7, 3).take(50).collect();
        for position in 0..50 {
            let rest: Vec<_> = Order::new(7, 3).at(position as u64).take(50 - position).collect();
            assert_eq!(rest, all[position..]);
        }
        assert_eq!(Order::new(0, 3).next(), None);
        let mut end = Order::new(7, 3).at(u64::MAX);
        assert!(end.next().is_some() && end.next() == Some(all[0]));
    }
}
