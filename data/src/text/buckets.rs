//! Batches of examples of about the same length.

use crate::{Order, Random};

/// Number of batches that are drawn together and then sorted by length.
const POOL: usize = 16;

/// Endless batches of one size. The examples of several batches are drawn in the order of the seed; those of about the
/// same length form a batch, and these batches are shuffled. An epoch contains every example once, except where two
/// epochs share a pool. The state is the seed and the position.
#[derive(Clone, Debug)]
pub struct Buckets {
    lengths: Vec<usize>,
    batch: usize,
    seed: u64,
    position: u64,
    /// Cache of the current pool: its number and its batches, which seed and position determine.
    pool: Option<(u64, Vec<Vec<usize>>)>,
}

impl Buckets {
    /// Creates buckets for examples of these lengths.
    #[must_use]
    pub const fn new(lengths: Vec<usize>, batch: usize, seed: u64) -> Self {
        Self { lengths, batch, seed, position: 0, pool: None }
    }

    /// Returns the number of examples drawn so far.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Continues after this number of examples, as after a restored checkpoint.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    /// Draws the examples of the next batch, which have similar lengths.
    pub fn draw(&mut self) -> Vec<usize> {
        let batches = self.position / self.batch.max(1) as u64;
        let (number, place) = (batches / POOL as u64, batches % POOL as u64);
        let pool = match &self.pool {
            Some((known, pool)) if *known == number => pool,
            _ => &self.pool.insert((number, self.drawn(number))).1,
        };
        let batch = usize::try_from(place).ok().and_then(|place| pool.get(place)).cloned().unwrap_or_default();
        self.position += self.batch as u64;
        batch
    }

    fn drawn(&self, number: u64) -> Vec<Vec<usize>> {
        let count = POOL * self.batch;
        let order = Order::new(self.lengths.len(), self.seed).at(number * count as u64);
        let mut examples: Vec<usize> = order.take(count).map(|sample| sample.index).collect();
        examples.sort_by_key(|&example| self.lengths[example]);
        let mut batches: Vec<Vec<usize>> = examples.chunks(self.batch.max(1)).map(<[usize]>::to_vec).collect();
        let mut random = Random::from_key(&[self.seed, number]);
        for last in (1..batches.len()).rev() {
            batches.swap(last, random.below(last + 1));
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_shows_every_example_once_and_lengths_are_alike() {
        let lengths: Vec<usize> = (0..640).map(|i| i * 37 % 64).collect();
        let mut buckets = Buckets::new(lengths.clone(), 8, 3);
        let batches: Vec<Vec<usize>> = (0..80).map(|_| buckets.draw()).collect();
        let mut all = batches.concat();
        all.sort_unstable();
        assert_eq!(all, (0..640).collect::<Vec<_>>());
        let spread = |batch: &Vec<usize>| {
            let of = batch.iter().map(|&example| lengths[example]);
            of.clone().max().unwrap_or(0) - of.min().unwrap_or(0)
        };
        let mean = batches.iter().map(spread).sum::<usize>() as f64 / 80.0;
        assert!(mean < 8.0, "{mean}");
        // Long ones are not always last.
        let longest = |batch: &Vec<usize>| batch.iter().map(|&example| lengths[example]).max();
        assert!(!batches.windows(2).take(15).all(|pair| longest(&pair[0]) <= longest(&pair[1])));
    }

    #[test]
    fn the_position_is_all_there_is_to_keep() {
        let lengths: Vec<usize> = (0..50).map(|i| i * 7 % 13).collect();
        let mut whole = Buckets::new(lengths.clone(), 4, 9);
        for _ in 0..40 {
            let mut other = Buckets::new(lengths.clone(), 4, 9);
            other.seek(whole.position());
            let next = whole.draw();
            assert_eq!((other.draw(), next.len()), (next, 4));
        }
        assert_ne!(Buckets::new(lengths.clone(), 4, 10).draw(), Buckets::new(lengths, 4, 9).draw());
    }
}
