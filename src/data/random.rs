//! Random numbers from a key, the same on every machine.

use std::f64::consts::TAU;

/// Stream of random words: SplitMix64 (Steele, Lea and Flood 2014), with one word of state.
///
/// ```
/// use gradscale::data::Random;
/// // One stream for each example of each epoch: its numbers do not depend on anything else.
/// let (seed, epoch, example) = (7, 3, 41);
/// let mut random = Random::from_key(&[seed, epoch, example]);
/// let (row, column, bright) = (random.below(5), random.below(5), 0.8 + 0.4 * random.uniform());
/// assert!(row < 5 && column < 5 && (0.8..1.2).contains(&bright));
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Increment of the generator's state: 2⁶⁴ divided by the golden ratio, odd.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Creates a stream of random numbers with a given state.
    pub(crate) const fn seeded(state: u64) -> Self {
        Self(state)
    }

    /// Returns the random stream of a key. Each list of words has a stream of its own.
    #[must_use]
    pub fn from_key(key: &[u64]) -> Self {
        Self(key.iter().fold(0, |state: u64, word| mixed(state.wrapping_add(STRIDE) ^ word)))
    }

    /// Returns the next random word of the stream.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STRIDE);
        mixed(self.0)
    }

    /// Returns a number below `n`; 0 if `n` is 0. Probabilities differ by at most n/2⁶⁴.
    #[expect(clippy::cast_possible_truncation, reason = "the product of a fraction of 64 bits and n is less than n")]
    pub const fn below(&mut self, n: usize) -> usize {
        ((self.word() as u128 * n as u128) >> 64) as usize
    }

    /// Returns a random integer from `least` to `most`, both included.
    #[expect(clippy::cast_possible_truncation, reason = "between two i32")]
    pub const fn between(&mut self, least: i32, most: i32) -> i32 {
        let numbers = most as i128 - least as i128 + 1;
        (least as i128 + ((self.word() as i128 * numbers) >> 64)) as i32
    }

    /// Returns a random number in [0, 1): 53 bits of a word.
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a random number in [−1, 1).
    pub(crate) fn symmetric(&mut self) -> f64 {
        2.0 * self.uniform() - 1.0
    }

    /// Returns a normally distributed number with mean 0 and variance 1: Box and Muller's cosine, from two words.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }
}

const fn mixed(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_splitmix64() {
        // The first outputs for seed 1234567, as published with Vigna's splitmix64.c in several test suites.
        let mut random = Random(1_234_567);
        let words = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(words.map(|_| random.word()), words);
    }

    #[test]
    fn numbers_in_range() {
        let mut random = Random::from_key(&[1, 2]);
        let mut counts = [0; 7];
        for _ in 0..70_000 {
            counts[random.below(7)] += 1;
            assert!((-3..=3).contains(&random.between(-3, 3)));
        }
        // 5.7 standard deviations.
        assert!(counts.iter().all(|count| (9_470..10_530).contains(count)), "{counts:?}");
        assert_eq!((random.below(0), random.below(1), random.between(4, 4)), (0, 0, 4));
        assert_ne!(Random::from_key(&[1]).word(), Random::from_key(&[1, 0]).word());
    }
}
