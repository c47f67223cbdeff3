//! The mean of all parts' gradients: exact sums of halves, rounded once.

use super::{Group, Kind, ParallelError, wire};
use std::ops::Range;

/// Values that travel at a time: no message is longer than a count of MPI's.
const BUCKET: usize = 1 << 22;
/// Up to so many parts of one rank travel as they are; the sum of more is shorter.
const FEW: u32 = 3;

/// The gradients of one rank's parts, side by side, in halves.
#[derive(Debug)]
pub(crate) struct Sums {
    len: usize,
    /// Parts of this rank.
    parts: u32,
    /// Those that are in here.
    added: u32,
    /// A few parts, one behind the other.
    halves: Vec<u16>,
    /// The sums of more.
    sums: Vec<i64>,
}

impl Sums {
    /// For so many parts, each of so many values.
    pub fn new(len: usize, parts: u32) -> Self {
        let few = parts <= FEW;
        let halves = vec![0; if few { len * parts as usize } else { len }];
        Self { len, parts, added: 0, halves, sums: vec![0; if few { 0 } else { len }] }
    }

    /// Adds one parameter's gradient of the part in progress, whose first value has this place.
    pub fn add(&mut self, at: usize, values: &[f32], exponent: Option<i32>) {
        let few = self.sums.is_empty();
        let at = if few { at + self.len * self.added as usize } else { at };
        let halves = &mut self.halves[at..at + values.len()];
        wire::halves(values, exponent, halves);
        if !few {
            let sums = &mut self.sums[at..at + values.len()];
            sums.iter_mut().zip(halves).for_each(|(sum, half)| *sum += wire::units(*half));
        }
    }

    /// The part in progress is complete.
    pub const fn next(&mut self) {
        self.added += 1;
    }

    /// What travels of these values.
    fn encode(&self, range: Range<usize>) -> Vec<u8> {
        if self.sums.is_empty() {
            let of = |part: usize| &self.halves[part * self.len..][range.clone()];
            let halves = (0..self.parts as usize).flat_map(of);
            return halves.flat_map(|half| half.to_le_bytes()).collect();
        }
        let width = width(self.parts);
        self.sums[range].iter().flat_map(|sum| sum.to_le_bytes().into_iter().take(width)).collect()
    }
}

/// Bytes of a sum of so many halves: each is less than 2^40 units of 2^-24.
const fn width(parts: u32) -> usize {
    if parts <= 64 { 6 } else { 7 }
}

/// Adds what a rank with so many parts has sent.
fn decode(bytes: &[u8], parts: u32, totals: &mut [i64]) -> bool {
    if parts <= FEW {
        if bytes.len() != totals.len() * 2 * parts as usize {
            return false;
        }
        for part in bytes.chunks_exact((totals.len() * 2).max(1)) {
            for (total, half) in totals.iter_mut().zip(part.chunks_exact(2)) {
                *total += wire::units(u16::from_le_bytes([half[0], half[1]]));
            }
        }
        return true;
    }
    let width = width(parts);
    for (total, sum) in totals.iter_mut().zip(bytes.chunks_exact(width)) {
        let mut word = [0; 8];
        word[8 - width..].copy_from_slice(sum);
        *total += i64::from_le_bytes(word) >> (8 * (8 - width));
    }
    bytes.len() == totals.len() * width
}

/// How many of the parts of a step are a rank's: part p is that of rank p modulo their number.
pub(crate) fn share(parts: u32, rank: usize, size: usize) -> u32 {
    let count = (parts as usize).saturating_sub(rank).div_ceil(size);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The mean over all parts of all ranks, as halves. Each rank adds up its share of the values, and all gather the means.
pub(crate) fn mean(group: &Group, sums: &Sums, parts: u32) -> Result<Vec<u16>, ParallelError> {
    let (rank, size) = (group.rank(), group.size());
    let mut means = Vec::with_capacity(sums.len);
    for first in (0..sums.len).step_by(BUCKET) {
        let count = BUCKET.min(sums.len - first);
        let of = |rank: usize| first + count * rank / size..first + count * (rank + 1) / size;
        let from = group.exchange((0..size).map(|rank| sums.encode(of(rank))).collect())?;
        let mut totals = vec![0; of(rank).len()];
        for (sender, bytes) in from.iter().enumerate() {
            if !decode(bytes, share(parts, sender, size), &mut totals) {
                return Err(ParallelError::Apart(sender));
            }
        }
        let mine: Vec<u8> = totals.iter().flat_map(|&sum| wire::rounded_mean(sum, parts).to_le_bytes()).collect();
        for (sender, bytes) in group.gather(Kind::Means, &mine)?.iter().enumerate() {
            if bytes.len() != 2 * of(sender).len() {
                return Err(ParallelError::Apart(sender));
            }
            means.extend(bytes.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]])));
        }
    }
    Ok(means)
}

#[cfg(test)]
mod tests {
    use super::{super::Threads, *};
    use std::thread;

    /// Some parts of 1000 values, most of them small, some of either sign and any size.
    fn part(number: u32) -> Vec<f32> {
        let mut state = u64::from(number) + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i32
        };
        (0..1000).map(|_| (next() % 2047) as f32 * 2f32.powi(next() % 28 - 22)).collect()
    }

    fn means(group: &Group, parts: u32) -> Vec<u16> {
        let mut sums = Sums::new(1000, share(parts, group.rank(), group.size()));
        for number in (0..parts).skip(group.rank()).step_by(group.size()) {
            let values = part(number);
            sums.add(0, &values[..300], Some(0));
            sums.add(300, &values[300..], Some(0));
            sums.next();
        }
        mean(group, &sums, parts).expect("the mean")
    }

    #[test]
    fn any_number_of_ranks_has_one_mean() {
        for parts in [1, 7, 70] {
            let alone = means(&Group::alone(), parts);
            let naive = |i: usize| {
                let halves = (0..parts).map(|number| f64::from(half::f16::from_f32(part(number)[i])));
                gradscale_core::cast::f16_from_f64(
                    halves.sum::<f64>() / f64::from(parts),
                    gradscale_core::cast::Round::NearestEven,
                )
            };
            for (i, &mean) in alone.iter().enumerate() {
                assert_eq!(half::f16::from_bits(mean), naive(i), "{parts} parts, value {i}");
            }
            for size in 2..=parts.min(7) as usize {
                let ranks =
                    Threads::world(size).into_iter().map(|rank| thread::spawn(move || means(&Group::new(rank), parts)));
                for rank in ranks.collect::<Vec<_>>() {
                    assert!(rank.join().expect("a rank") == alone, "{parts} parts on {size}");
                }
            }
        }
    }
}
