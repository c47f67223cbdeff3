//! Batch statistics of all ranks (`SyncBatchNorm` in PyTorch), combined in the order of the ranks, so that all ranks get the
//! same bits.

use super::{DistributedError, Group, MessageTag};
use std::{fmt, str::FromStr};

/// Samples over which batch norm computes mean and variance in distributed training.
#[doc(alias = "SyncBatchNorm")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchNormScope {
    /// Scope of one rank: each micro-batch by itself, as with PyTorch's DDP. Weights do not depend on the number of
    /// ranks.
    #[default]
    Rank,
    /// Scope of all ranks: the batches of all together, as in PyTorch's `SyncBatchNorm`. Each rank then has one
    /// micro-batch of a step.
    World,
}

impl BatchNormScope {
    /// All scopes of batch-norm statistics.
    pub const ALL: [Self; 2] = [Self::Rank, Self::World];
}

impl fmt::Display for BatchNormScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rank => "rank",
            Self::World => "world",
        })
    }
}

impl FromStr for BatchNormScope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scope| scope.to_string() == text);
        found.ok_or_else(|| format!("{text} is not a scope of batch norm; choose rank or world"))
    }
}

/// Batch-norm statistics of one layer on one rank.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LocalStats {
    /// Number of values of each channel on this rank.
    pub count: f64,
    /// Statistics of the rank, two values per channel: the first of all channels, then the second of all channels.
    pub values: Vec<f32>,
}

/// Gathers the batch-norm statistics of all ranks at a layer, in the order of the ranks.
pub(crate) fn gather_stats(
    group: &Group, layer: &str, local: &LocalStats,
) -> Result<Vec<LocalStats>, DistributedError> {
    let digest = crc32c::crc32c(layer.as_bytes()).to_le_bytes();
    let mut message = digest.to_vec();
    message.extend(local.count.to_le_bytes());
    message.extend(local.values.iter().flat_map(|value| value.to_le_bytes()));
    let all = group.all_gather(MessageTag::BatchStats, &message)?;
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        let rest = bytes.strip_prefix(&digest).filter(|_| bytes.len() == message.len());
        let (count, values) =
            rest.and_then(<[u8]>::split_first_chunk).ok_or(DistributedError::CollectiveMismatch(rank))?;
        let value = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        Ok(LocalStats { count: f64::from_le_bytes(*count), values: values.chunks_exact(4).map(value).collect() })
    };
    all.iter().enumerate().map(read).collect()
}

/// Combines means and biased variances of all ranks; the distances between the means of ranks are part of the variance.
pub(crate) fn combine_moments(stats: &[LocalStats]) -> Vec<f32> {
    let channels = stats.first().map_or(0, |rank| rank.values.len() / 2);
    let mut both = vec![0f32; 2 * channels];
    for channel in 0..channels {
        let mean = weighted_mean(stats, |rank| rank.values[channel].into());
        let variance = weighted_mean(stats, |rank| {
            let distance = f64::from(rank.values[channel]) - mean;
            f64::from(rank.values[channels + channel]) + distance * distance
        });
        both[channel] = round_to_f32(mean);
        both[channels + channel] = round_to_f32(variance);
    }
    both
}

/// Replaces biased variances by unbiased ones, as running statistics take them.
pub(crate) fn with_unbiased_variance(stats: &[LocalStats], biased: &[f32]) -> Vec<f32> {
    let count: f64 = stats.iter().map(|rank| rank.count).sum();
    let factor = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
    let (means, variances) = biased.split_at(biased.len() / 2);
    means.iter().copied().chain(variances.iter().map(|&variance| round_to_f32(f64::from(variance) * factor))).collect()
}

/// Returns the negated means of two sums per channel over all ranks, from the sums of each rank.
pub(crate) fn negated_means(stats: &[LocalStats]) -> Vec<f32> {
    let count: f64 = stats.iter().map(|rank| rank.count).sum();
    let len = stats.first().map_or(0, |rank| rank.values.len());
    let sum = |at: usize| stats.iter().map(|rank| f64::from(rank.values[at])).sum::<f64>();
    (0..len).map(|at| round_to_f32(-sum(at) / count)).collect()
}

fn weighted_mean(stats: &[LocalStats], value: impl Fn(&LocalStats) -> f64) -> f64 {
    let count: f64 = stats.iter().map(|rank| rank.count).sum();
    stats.iter().map(|rank| rank.count * value(rank)).sum::<f64>() / count
}

#[expect(clippy::cast_possible_truncation, reason = "rounded once")]
const fn round_to_f32(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::{super::Threads, *};
    use std::thread;

    /// Returns test batches of different lengths and means.
    fn batches() -> [Vec<f32>; 3] {
        [7usize, 1, 40].map(|len| (0..len).map(|i| 100.0 + len as f32 + ((i * 37) % 11) as f32).collect())
    }

    fn stats_of(values: &[f32]) -> LocalStats {
        let (mean, variance) = two_passes(values);
        LocalStats { count: values.len() as f64, values: vec![round_to_f32(mean), round_to_f32(variance)] }
    }

    fn two_passes(values: &[f32]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().copied().map(f64::from).sum::<f64>() / count;
        (mean, values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count)
    }

    #[test]
    fn moments_of_parts_are_those_of_the_whole() {
        let stats: Vec<LocalStats> = batches().iter().map(|batch| stats_of(batch)).collect();
        let whole = batches().concat();
        let (mean, variance) = two_passes(&whole);
        let both = combine_moments(&stats);
        let close = |got: f32, want: f64| assert!((f64::from(got) - want).abs() < 1e-6 * want, "{got}, not {want}");
        close(both[0], mean);
        close(both[1], variance);
        close(with_unbiased_variance(&stats, &both)[1], variance * 48.0 / 47.0);
        // One rank keeps its own bits, and the variance of one value is 0.
        assert_eq!(combine_moments(&stats[..1]), stats[0].values);
        assert_eq!(with_unbiased_variance(&stats[1..2], &stats[1].values), stats[1].values);
        let sums =
            [LocalStats { count: 3.0, values: vec![1.0, -6.0] }, LocalStats { count: 1.0, values: vec![3.0, 2.0] }];
        assert_eq!(negated_means(&sums), [-1.0, 1.0]);
    }

    #[test]
    fn ranks_at_other_layers_are_found() {
        let layers = |names: [&'static str; 2], lens: [usize; 2]| {
            let ranks: Vec<_> = Threads::world(2)
                .into_iter()
                .zip(names.into_iter().zip(lens))
                .map(|(rank, (name, len))| {
                    let local = LocalStats { count: len as f64, values: vec![0.5; len] };
                    thread::spawn(move || gather_stats(&Group::new(rank), name, &local))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect::<Vec<_>>()
        };
        assert!(layers(["a", "a"], [2, 2]).iter().all(|all| all.as_ref().is_ok_and(|all| all.len() == 2)));
        let apart = [Err(DistributedError::CollectiveMismatch(1)), Err(DistributedError::CollectiveMismatch(0))];
        assert_eq!(layers(["a", "b"], [2, 2]), apart);
        assert_eq!(layers(["a", "a"], [2, 4]), apart);
    }

    #[test]
    fn names_are_read_back() {
        for one in BatchNormScope::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!("all".parse::<BatchNormScope>().is_err_and(|words| words.ends_with("rank or world")));
    }
}
