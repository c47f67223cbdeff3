//! `one-in-n`: share of large batches that a dynamic loss scale skips, by their rarity.
//!
//! The scale gains one bit in 2000 clean steps, and only a dropped batch takes one away. So of the batches that set its
//! limit, one in n steps, about a share n/2000 is dropped, and from n = 2000 on all of them.

use super::figure::Figure;
use crate::data::Random;
use gradscale::gradscale_core::loss_scale::{Dynamic, DynamicConfig};
use serde_json::json;
use std::fmt::Write;

/// Name of the figure, as `--only` takes it.
pub const NAME: &str = "one-in-n";
/// Intervals between large batches that the figure shows: one in n.
const RARITIES: [usize; 6] = [50, 200, 500, 1000, 2000, 4000];
/// Largest exponent at which ordinary batches fit: the initial one of torch.amp.
const CEILING: i32 = 16;
/// Bits by which the magnitudes of large batches exceed ordinary ones.
const EXCESS: i32 = 12;
/// Number of large batches in one simulation.
const EVENTS: u32 = 400;
/// Number of simulations whose mean is shown, because a single one varies by 4 points.
const SEEDS: u64 = 8;

/// Returns the share of dropped batches by the law: one bit gained in 2000 clean steps pays for one dropped batch.
fn law(every: usize) -> f64 {
    (every as f64 / f64::from(DynamicConfig::default().interval)).min(1.0)
}

/// Simulates the share of large batches that are dropped, where each batch is large with probability 1/`every`.
fn simulated(every: usize) -> f64 {
    let mut dropped = 0u32;
    for seed in 0..SEEDS {
        let (mut random, mut events) = (Random::from_key(&[seed, 21, every as u64]), 0);
        let mut scale = Dynamic::default();
        while events < EVENTS {
            let is_large = random.below(every) == 0;
            let fits = scale.exponent() <= if is_large { CEILING - EXCESS } else { CEILING };
            scale.update(!fits);
            events += u32::from(is_large);
            dropped += u32::from(is_large && !fits);
        }
    }
    f64::from(dropped) / f64::from(EVENTS) / SEEDS as f64
}

/// Computes the figure about the share of large batches that a dynamic loss scale drops.
pub fn figure() -> Figure {
    let about = "share of large batches that torch.amp's scale drops, if one in n is 12 bits above the others";
    let mut text = format!("{:>12}  {:>9}  {:>9}\n", "one in", "simulated", "law");
    let mut rows = Vec::new();
    for every in RARITIES {
        let (simulated, law) = (simulated(every), law(every));
        let bar: String = (0..40).filter(|&i| f64::from(i) + 0.5 <= 40.0 * simulated).map(|_| '█').collect();
        writeln!(text, "{every:>12}  {:>7.0} %  {:>7.0} %  {bar}", 100.0 * simulated, 100.0 * law).ok();
        rows.push(json!({"one_in": every, "simulated": simulated, "law": law}));
    }
    text.push_str("Expected: n/2000; 2000 clean steps regain the bit that a dropped batch costs.\n");
    text.push_str("The first 12 drops, which lower the scale, are 3 points of each row.\n");
    text.push_str("Remedies: a repeat (gs), a fixed scale, a maximum (max=), scales per tensor.\n");
    Figure { name: NAME, about, text, rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulations_follow_the_law() {
        // The review's table, one run of 386 events each.
        for (every, published) in [(50, 0.06), (200, 0.12), (500, 0.24), (1000, 0.41), (2000, 0.75), (4000, 1.0)] {
            let share = simulated(every);
            assert!((share - published).abs() < 0.05, "one in {every}: {share}");
        }
        assert_eq!([50, 1000, 2000, 4000].map(law), [0.025, 0.5, 1.0, 1.0]);
        let figure = figure();
        assert_eq!(figure.rows.len(), RARITIES.len());
        assert!(figure.text.lines().all(|line| line.chars().count() <= 80), "{}", figure.text);
    }
}
