//! The mean of all parts' gradients: exact sums of halves, rounded once; or sums in f32.

use super::{Exchange, Kind, ParallelError, comm_thread::Line, half_codec as wire};
use std::ops::Range;

/// Values that travel at a time: no message is longer than a count of MPI's.
const BUCKET: usize = 1 << 22;
/// Bytes of a sum that travels whole.
const WHOLE: usize = 7;

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
    /// Of nothing.
    pub const fn none() -> Self {
        Self::Fast { sums: Vec::new(), parts: 1.0 }
    }

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

/// Gradients of a rank's parts: halves of one part, exact sums of more.
#[derive(Debug)]
pub(crate) struct Halves {
    /// Parts of this rank.
    parts: u32,
    /// One part, or that in progress.
    halves: Vec<u16>,
    sums: Vec<i64>,
}

impl Halves {
    fn new(len: usize, parts: u32) -> Self {
        Self { parts, halves: vec![0; len], sums: vec![0; if parts > 1 { len } else { 0 }] }
    }

    fn add(&mut self, at: usize, values: &[f32], exponent: Option<i32>) {
        let halves = &mut self.halves[at..at + values.len()];
        wire::halves(values, exponent, halves);
        if !self.sums.is_empty() {
            let sums = &mut self.sums[at..at + values.len()];
            sums.iter_mut().zip(halves).for_each(|(sum, half)| *sum += wire::units(*half));
        }
    }

    /// What travels of these values. Most sums have few digits between their first and their last, and are short; behind
    /// them come those that have more, whole.
    fn encode(&self, range: Range<usize>) -> Vec<u8> {
        if self.sums.is_empty() {
            return self.halves[range].iter().flat_map(|half| half.to_le_bytes()).collect();
        }
        let (digits, mut long) = (digits(self.parts), Vec::new());
        let mut bytes = Vec::with_capacity(range.len() * width(self.parts));
        for &sum in &self.sums[range] {
            let code = wire::short(sum, digits).unwrap_or_else(|| {
                long.extend_from_slice(&sum.to_le_bytes()[..WHOLE]);
                wire::LONG << digits
            });
            bytes.extend_from_slice(&code.to_le_bytes()[..width(self.parts)]);
        }
        bytes.append(&mut long);
        bytes
    }
}

/// Digits of a short sum of so many halves: of two or three, that is nearly all; of more, their sums spread further.
const fn digits(parts: u32) -> u32 {
    if parts <= 3 { 17 } else { 25 }
}

/// Bytes of one: digits, sign, and where they lie.
const fn width(parts: u32) -> usize {
    if digits(parts) == 17 { 3 } else { 4 }
}

/// Adds what a rank with so many parts has sent.
fn decode(bytes: &[u8], parts: u32, totals: &mut [i64]) -> bool {
    if parts == 1 {
        for (total, half) in totals.iter_mut().zip(bytes.chunks_exact(2)) {
            *total += wire::units(u16::from_le_bytes([half[0], half[1]]));
        }
        return bytes.len() == totals.len() * 2;
    }
    let (width, digits) = (width(parts), digits(parts));
    let Some((short, long)) = bytes.split_at_checked(totals.len() * width) else { return false };
    let mut long = long.chunks_exact(WHOLE);
    for (total, code) in totals.iter_mut().zip(short.chunks_exact(width)) {
        let mut word = [0; 4];
        word[..width].copy_from_slice(code);
        let sum = wire::sum(u32::from_le_bytes(word), digits).or_else(|| {
            let mut word = [0; 8];
            word[8 - WHOLE..].copy_from_slice(long.next()?);
            Some(i64::from_le_bytes(word) >> (8 * (8 - WHOLE)))
        });
        let Some(sum) = sum else { return false };
        *total += sum;
    }
    long.next().is_none() && long.remainder().is_empty()
}

/// How many of the parts of a step are a rank's: part p is that of rank p modulo their number.
pub(crate) fn share(parts: u32, rank: usize, size: usize) -> u32 {
    let count = (parts as usize).saturating_sub(rank).div_ceil(size);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The mean over all parts of all ranks.
pub(super) fn mean(line: &mut Line, sums: Sums, parts: u32) -> Result<Means, ParallelError> {
    match sums {
        Sums::Exact(halves) => exact(line, &halves, parts).map(Means::Halves),
        Sums::Fast { mut sums, .. } => {
            line.reduce(&mut sums)?;
            Ok(Means::Singles(sums))
        }
    }
}

/// As halves: each rank adds up its share of the values, and all gather the means.
fn exact(line: &mut Line, sums: &Halves, parts: u32) -> Result<Vec<u16>, ParallelError> {
    let (rank, size) = (line.rank, line.others + 1);
    let len = sums.halves.len();
    let mut means = Vec::with_capacity(len);
    for first in (0..len).step_by(BUCKET) {
        let count = BUCKET.min(len - first);
        let of = |rank: usize| first + count * rank / size..first + count * (rank + 1) / size;
        let from = line.exchange((0..size).map(|rank| sums.encode(of(rank))).collect())?;
        let mut totals = vec![0; of(rank).len()];
        for (sender, bytes) in from.iter().enumerate() {
            if !decode(bytes, share(parts, sender, size), &mut totals) {
                return Err(ParallelError::Apart(sender));
            }
        }
        let mine: Vec<u8> = totals.iter().flat_map(|&sum| wire::rounded_mean(sum, parts).to_le_bytes()).collect();
        for (sender, bytes) in line.gather(Kind::Means, &mine)?.iter().enumerate() {
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
    use super::{
        super::{Group, Threads},
        *,
    };
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
        }
        group.mean(sums, parts).expect("the mean")
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

    /// A sum is short if its digits are few, wherever they lie; what is long costs more bytes and no bits.
    #[test]
    fn sums_of_parts_travel_whole() {
        for parts in [2, 3, 4, 12, 4096] {
            let mut halves = Halves::new(1000, parts);
            for number in 0..parts.min(12) {
                halves.add(0, &part(number), Some(0));
            }
            halves.sums[7] = -(1 << 40) * i64::from(parts) + 1;
            let bytes = halves.encode(3..903);
            let mut totals = vec![5; 900];
            assert!(decode(&bytes, parts, &mut totals), "{parts}");
            assert!(totals.iter().zip(&halves.sums[3..903]).all(|(total, sum)| *total == sum + 5), "{parts}");
            assert!(bytes.len() > 900 * width(parts) && bytes.len() < 900 * (width(parts) + WHOLE), "{parts}");
            for damaged in [&bytes[..100], &bytes[..bytes.len() - 1], &[&bytes[..], &[0; WHOLE]].concat()[..]] {
                assert!(!decode(damaged, parts, &mut totals), "{parts}");
            }
        }
        // Of values that are about as large as each other most are short.
        let mut halves = Halves::new(1000, 2);
        for number in 0..2 {
            let values: Vec<f32> = part(number).iter().map(|value| value.signum() + value.abs().fract()).collect();
            halves.add(0, &values, Some(0));
        }
        assert!(halves.encode(0..1000).len() < 3200);
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
