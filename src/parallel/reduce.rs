//! The mean of all parts' gradients: exact sums of halves, rounded once; or sums in f32.

use super::{Exchange, Group, Kind, ParallelError, wire};
use std::ops::Range;

/// Values that travel at a time: no message is longer than a count of MPI's.
const BUCKET: usize = 1 << 22;
/// Up to so many parts of one rank travel as they are; the sum of more is shorter.
const FEW: u32 = 3;

/// The gradients of one rank's parts, side by side.
#[derive(Debug)]
pub(crate) enum Sums {
    Exact(Halves),
    /// Sums of parts of the mean: each was divided by the number of all, so that none becomes ±∞.
    Fast {
        sums: Vec<f32>,
        parts: f32,
    },
}

impl Sums {
    /// For the parts that this rank has of so many, each of so many values.
    #[expect(clippy::cast_precision_loss, reason = "at most 4096")]
    pub fn new(exchange: Exchange, len: usize, (parts, rank, size): (u32, usize, usize)) -> Self {
        match exchange {
            Exchange::Exact => Self::Exact(Halves::new(len, share(parts, rank, size))),
            Exchange::Fast => Self::Fast { sums: vec![0.0; len], parts: parts as f32 },
        }
    }

    /// Adds one parameter's gradient of the part in progress, whose first value has this place.
    pub fn add(&mut self, at: usize, values: &[f32], exponent: Option<i32>) {
        match self {
            Self::Exact(halves) => halves.add(at, values, exponent),
            Self::Fast { sums, parts } => {
                sums[at..].iter_mut().zip(values).for_each(|(sum, value)| *sum += value / *parts);
            }
        }
    }

    /// The part in progress is complete.
    pub const fn next(&mut self) {
        match self {
            Self::Exact(halves) => halves.added += 1,
            Self::Fast { .. } => {}
        }
    }
}

/// The means of all parts, one behind the other.
#[derive(Debug, PartialEq)]
pub(crate) enum Means {
    /// Each parameter's at its exponent.
    Halves(Vec<u16>),
    Singles(Vec<f32>),
}

impl Means {
    /// Those of a parameter.
    pub fn of(&self, range: Range<usize>, exponent: i32) -> Vec<f32> {
        match self {
            Self::Halves(halves) => halves[range].iter().map(|&half| wire::value(half, exponent)).collect(),
            Self::Singles(singles) => singles[range].to_vec(),
        }
    }
}

/// Gradients of parts as halves.
#[derive(Debug)]
pub(crate) struct Halves {
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

impl Halves {
    fn new(len: usize, parts: u32) -> Self {
        let few = parts <= FEW;
        let halves = vec![0; if few { len * parts as usize } else { len }];
        Self { len, parts, added: 0, halves, sums: vec![0; if few { 0 } else { len }] }
    }

    fn add(&mut self, at: usize, values: &[f32], exponent: Option<i32>) {
        let few = self.sums.is_empty();
        let at = if few { at + self.len * self.added as usize } else { at };
        let halves = &mut self.halves[at..at + values.len()];
        wire::halves(values, exponent, halves);
        if !few {
            let sums = &mut self.sums[at..at + values.len()];
            sums.iter_mut().zip(halves).for_each(|(sum, half)| *sum += wire::units(*half));
        }
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

/// The mean over all parts of all ranks.
pub(crate) fn mean(group: &Group, sums: Sums, parts: u32) -> Result<Means, ParallelError> {
    match sums {
        Sums::Exact(halves) => exact(group, &halves, parts).map(Means::Halves),
        Sums::Fast { mut sums, .. } => {
            group.reduce(&mut sums)?;
            Ok(Means::Singles(sums))
        }
    }
}

/// As halves: each rank adds up its share of the values, and all gather the means.
fn exact(group: &Group, sums: &Halves, parts: u32) -> Result<Vec<u16>, ParallelError> {
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

    fn means(exchange: Exchange, group: &Group, parts: u32) -> Means {
        let mut sums = Sums::new(exchange, 1000, (parts, group.rank(), group.size()));
        for number in (0..parts).skip(group.rank()).step_by(group.size()) {
            let values = part(number);
            sums.add(0, &values[..300], Some(0));
            sums.add(300, &values[300..], Some(0));
            sums.next();
        }
        mean(group, sums, parts).expect("the mean")
    }

    #[test]
    fn any_number_of_ranks_has_one_mean() {
        for parts in [1, 7, 70] {
            let alone = means(Exchange::Exact, &Group::alone(), parts);
            let Means::Halves(halves) = &alone else { unreachable!() };
            let naive = |i: usize| {
                let all = (0..parts).map(|number| f64::from(half::f16::from_f32(part(number)[i])));
                gradscale_core::cast::f16_from_f64(
                    all.sum::<f64>() / f64::from(parts),
                    gradscale_core::cast::Round::NearestEven,
                )
            };
            for (i, &mean) in halves.iter().enumerate() {
                assert_eq!(half::f16::from_bits(mean), naive(i), "{parts} parts, value {i}");
            }
            for size in 2..=parts.min(7) as usize {
                for rank in world(Exchange::Exact, size, parts) {
                    assert!(rank == alone, "{parts} parts on {size}");
                }
            }
        }
    }

    fn world(exchange: Exchange, size: usize, parts: u32) -> Vec<Means> {
        let rank = |rank| thread::spawn(move || means(exchange, &Group::new(rank), parts));
        let ranks: Vec<_> = Threads::world(size).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
    }

    #[test]
    fn the_fast_mean_is_that_of_f32_on_all_ranks() {
        for (size, parts) in [(1, 7), (2, 7), (3, 3)] {
            let all = world(Exchange::Fast, size, parts);
            let Means::Singles(singles) = &all[0] else { unreachable!() };
            assert!(all.iter().all(|other| *other == all[0]), "{parts} parts on {size}");
            for (i, &mean) in singles.iter().enumerate() {
                let parts: Vec<f64> = (0..parts).map(|number| f64::from(part(number)[i])).collect();
                let (want, most) = (parts.iter().sum::<f64>() / parts.len() as f64, parts.iter().map(|x| x.abs()));
                assert!((f64::from(mean) - want).abs() <= 1e-6 * most.sum::<f64>(), "value {i}: {mean}, not {want}");
            }
        }
    }
}
