//! Batch norm over the batches of all ranks: what each says of its own, put together in the order of the ranks, so that
//! all come to the same bits.

use super::{Group, Kind, ParallelError};
use std::{fmt, str::FromStr};

/// Of which batch batch norm takes mean and variance, where several ranks train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchStatistics {
    /// Of each part by itself, as with PyTorch's DDP: weights do not depend on the number of ranks.
    #[default]
    Rank,
    /// Of the batches of all ranks, as PyTorch's `SyncBatchNorm`: each rank then takes one part of a step.
    World,
}

impl BatchStatistics {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Rank, Self::World];
}

impl fmt::Display for BatchStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rank => "rank",
            Self::World => "world",
        })
    }
}

impl FromStr for BatchStatistics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.to_string() == text);
        found.ok_or_else(|| format!("there is no batch norm over {text}: rank or world"))
    }
}

/// What a rank says of its batch at a layer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    /// Values of each channel.
    pub count: f64,
    /// Two numbers of each channel: all of the first, then all of the second.
    pub values: Vec<f32>,
}

/// What all ranks say of theirs, by rank.
pub(crate) fn shares(group: &Group, layer: &str, mine: &Share) -> Result<Vec<Share>, ParallelError> {
    let digest = crc32c::crc32c(layer.as_bytes()).to_le_bytes();
    let mut message = digest.to_vec();
    message.extend(mine.count.to_le_bytes());
    message.extend(mine.values.iter().flat_map(|value| value.to_le_bytes()));
    let all = group.gather(Kind::Moments, &message)?;
    let read = |(rank, bytes): (usize, &Vec<u8>)| {
        let rest = bytes.strip_prefix(&digest).filter(|_| bytes.len() == message.len());
        let (count, values) = rest.and_then(<[u8]>::split_first_chunk).ok_or(ParallelError::Apart(rank))?;
        let value = |four: &[u8]| f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        Ok(Share { count: f64::from_le_bytes(*count), values: values.chunks_exact(4).map(value).collect() })
    };
    all.iter().enumerate().map(read).collect()
}

/// Means and biased variances of all values, from those of each rank: what lies between their means counts, too.
pub(crate) fn moments(shares: &[Share]) -> Vec<f32> {
    let channels = shares.first().map_or(0, |share| share.values.len() / 2);
    let mut both = vec![0f32; 2 * channels];
    for channel in 0..channels {
        let mean = weighted(shares, |share| share.values[channel].into());
        let variance = weighted(shares, |share| {
            let distance = f64::from(share.values[channel]) - mean;
            f64::from(share.values[channels + channel]) + distance * distance
        });
        both[channel] = rounded(mean);
        both[channels + channel] = rounded(variance);
    }
    both
}

/// The same with variances as they are to be expected of all that was not seen, as running statistics take them.
pub(crate) fn unbiased(shares: &[Share], biased: &[f32]) -> Vec<f32> {
    let count: f64 = shares.iter().map(|share| share.count).sum();
    let factor = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
    let (means, variances) = biased.split_at(biased.len() / 2);
    means.iter().copied().chain(variances.iter().map(|&variance| rounded(f64::from(variance) * factor))).collect()
}

/// Minus the mean of all values whose sums on each rank these are.
pub(crate) fn less_means(shares: &[Share]) -> Vec<f32> {
    let count: f64 = shares.iter().map(|share| share.count).sum();
    let len = shares.first().map_or(0, |share| share.values.len());
    let sum = |at: usize| shares.iter().map(|share| f64::from(share.values[at])).sum::<f64>();
    (0..len).map(|at| rounded(-sum(at) / count)).collect()
}

fn weighted(shares: &[Share], of: impl Fn(&Share) -> f64) -> f64 {
    let count: f64 = shares.iter().map(|share| share.count).sum();
    shares.iter().map(|share| share.count * of(share)).sum::<f64>() / count
}

#[expect(clippy::cast_possible_truncation, reason = "rounded once")]
const fn rounded(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::{super::Threads, *};
    use std::thread;

    /// Batches of unlike lengths and places.
    fn batches() -> [Vec<f32>; 3] {
        [7usize, 1, 40].map(|len| (0..len).map(|i| 100.0 + len as f32 + ((i * 37) % 11) as f32).collect())
    }

    fn share(values: &[f32]) -> Share {
        let (mean, variance) = two_passes(values);
        Share { count: values.len() as f64, values: vec![rounded(mean), rounded(variance)] }
    }

    fn two_passes(values: &[f32]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().copied().map(f64::from).sum::<f64>() / count;
        (mean, values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / count)
    }

    #[test]
    fn moments_of_parts_are_those_of_the_whole() {
        let shares: Vec<Share> = batches().iter().map(|batch| share(batch)).collect();
        let whole = batches().concat();
        let (mean, variance) = two_passes(&whole);
        let both = moments(&shares);
        let close = |got: f32, want: f64| assert!((f64::from(got) - want).abs() < 1e-6 * want, "{got}, not {want}");
        close(both[0], mean);
        close(both[1], variance);
        close(unbiased(&shares, &both)[1], variance * 48.0 / 47.0);
        // One rank has its own bits, and one value no variance.
        assert_eq!(moments(&shares[..1]), shares[0].values);
        assert_eq!(unbiased(&shares[1..2], &shares[1].values), shares[1].values);
        let sums = [Share { count: 3.0, values: vec![1.0, -6.0] }, Share { count: 1.0, values: vec![3.0, 2.0] }];
        assert_eq!(less_means(&sums), [-1.0, 1.0]);
    }

    #[test]
    fn ranks_at_other_layers_are_found() {
        let layers = |names: [&'static str; 2], lens: [usize; 2]| {
            let ranks: Vec<_> = Threads::world(2)
                .into_iter()
                .zip(names.into_iter().zip(lens))
                .map(|(rank, (name, len))| {
                    let mine = Share { count: len as f64, values: vec![0.5; len] };
                    thread::spawn(move || shares(&Group::new(rank), name, &mine))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect::<Vec<_>>()
        };
        assert!(layers(["a", "a"], [2, 2]).iter().all(|all| all.as_ref().is_ok_and(|all| all.len() == 2)));
        let apart = [Err(ParallelError::Apart(1)), Err(ParallelError::Apart(0))];
        assert_eq!(layers(["a", "b"], [2, 2]), apart);
        assert_eq!(layers(["a", "a"], [2, 4]), apart);
    }

    #[test]
    fn names_are_read_back() {
        for one in BatchStatistics::ALL {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert!("all".parse::<BatchStatistics>().is_err_and(|words| words.ends_with("rank or world")));
    }
}
