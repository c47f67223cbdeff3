//! Sampling of classes for a loss that is computed over few of many classes.

use super::Random;
use std::collections::HashMap;

/// Log-uniform sampler of classes that are ordered by frequency, like the words of a vocabulary. Class k has the
/// probability (ln(k + 2) − ln(k + 1)) / ln(classes + 1), which is near Zipf's law.
///
/// ```
/// use gradscale::data::{LogUniform, Random};
/// let words = LogUniform::new(10_000);
/// // The same key gives the same classes, so a repeated or resumed step uses the same.
/// let drawn = words.draw(&mut Random::from_key(&[7, 3]), 64, &[0, 5, 9_999]);
/// assert_eq!((drawn.classes.len(), drawn.hits.len()), (64, 3));
/// assert!(drawn.classes.contains(&0), "the most frequent word is there as a rule");
/// assert_eq!(drawn.classes[drawn.hits[0] as usize - 1], 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUniform {
    classes: usize,
}

/// Sampled classes with their expected counts, as input of [`SampledSoftmax`](crate::nn::SampledSoftmax).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Candidates {
    /// Sampled classes of the softmax, each once.
    pub classes: Vec<u32>,
    /// Logarithm of the expected count of each sampled class among the draws.
    pub of_classes: Vec<f32>,
    /// Logarithm of the expected count of each label among the draws.
    pub of_labels: Vec<f32>,
    /// Position of each label among the sampled classes, from 1; one more than their number if it was not sampled.
    pub hits: Vec<u32>,
}

impl LogUniform {
    /// Creates a log-uniform sampler of classes for `classes` classes.
    #[must_use]
    pub const fn new(classes: usize) -> Self {
        Self { classes }
    }

    /// Returns the probability that one draw of the sampler is `class`.
    #[must_use]
    pub fn probability(self, class: u32) -> f64 {
        let rank = f64::from(class);
        ((rank + 2.0) / (rank + 1.0)).ln() / (self.classes as f64 + 1.0).ln()
    }

    /// Samples `count` different classes, or all if there are fewer, for these labels.
    #[must_use]
    pub fn draw(self, random: &mut Random, count: usize, labels: &[u32]) -> Candidates {
        let (range, mut tries) = ((self.classes as f64 + 1.0).ln(), 0u64);
        let (mut classes, mut places) = (Vec::new(), HashMap::new());
        while classes.len() < count.min(self.classes) {
            tries += 1;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a class, rounded down")]
            let class = ((random.uniform() * range).exp() - 1.0) as u32;
            if (class as usize) < self.classes && !places.contains_key(&class) {
                classes.push(class);
                places.insert(class, classes.len());
            }
        }
        // Probability that the class is among `tries` draws, because drawing ended when there were enough different
        // ones.
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let expected = |&class: &u32| (-(tries as f64 * (-self.probability(class)).ln_1p()).exp_m1()).ln() as f32;
        let none = classes.len() + 1;
        let hit = |label: &u32| u32::try_from(*places.get(label).unwrap_or(&none)).unwrap_or(u32::MAX);
        Candidates {
            of_classes: classes.iter().map(expected).collect(),
            of_labels: labels.iter().map(expected).collect(),
            hits: labels.iter().map(hit).collect(),
            classes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_counts_are_those_of_many_draws() {
        let words = LogUniform::new(50);
        let sum: f64 = (0..50).map(|class| words.probability(class)).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        let all: Vec<u32> = (0..50).collect();
        let (mut counts, mut expected) = ([0u32; 50], [0f64; 50]);
        let draws = 4000;
        for i in 0..draws {
            let drawn = words.draw(&mut Random::from_key(&[1, i]), 12, &all);
            assert_eq!(drawn.classes.len(), 12);
            for (label, &hit) in all.iter().zip(&drawn.hits) {
                let place = drawn.classes.iter().position(|class| class == label);
                assert_eq!(hit as usize, place.map_or(13, |place| place + 1));
                counts[*label as usize] += u32::from(place.is_some());
                expected[*label as usize] += f64::from(drawn.of_labels[*label as usize]).exp();
            }
        }
        for (class, (&count, expected)) in counts.iter().zip(expected).enumerate() {
            // Five standard deviations, and a margin because the number of tries depends slightly on the draws.
            let far = 5.0 * expected.sqrt() + 0.01 * draws as f64;
            assert!((f64::from(count) - expected).abs() < far, "{class}: {count} {expected}");
        }
        assert!(counts[0] > 10 * counts[49]);
    }

    #[test]
    fn as_many_as_there_are() {
        let drawn = LogUniform::new(3).draw(&mut Random::from_key(&[2]), 8, &[1]);
        let mut classes = drawn.classes.clone();
        classes.sort_unstable();
        assert_eq!(classes, [0, 1, 2]);
        assert_eq!(LogUniform::new(0).draw(&mut Random::from_key(&[2]), 8, &[]), Candidates::default());
    }
}
