//! Mean gradients over all micro-batches: exact fixed-point sums of FP16 values, rounded once, or sums in f32.
//!
//! The exact sum in pseudo-code, for one parameter with the exponent e, which is the same on all ranks:
//!
//! ```text
//! for each micro-batch of this rank
//!     h = f16(gradient · 2^e)                     one rounding per value
//!     S += h · 2^24                               i64, exact
//! all-to-all: send S[range of r] to each rank r   reduce-scatter
//! T = sum of the received S                       i64, exact
//! m = f16(T / micro-batches / 2^24)               one rounding per value
//! all-gather: m of all ranges
//! gradient = m · 2^-e                             f32
//! ```
//!
//! The real code differs, for these reasons:
//!
//! 1. Integers are used because their sum does not depend on the order. Every finite f16 is an integer multiple of 2^-24
//!    and below 2^16, so S grows by less than 2^40. With at most 2^12 micro-batches all sums stay below 2^52, which an
//!    i64 holds exactly and which the f64 of the mean holds exactly too. The bits of the weights are therefore the same
//!    for any number of ranks.
//!
//! 2. A ring all-reduce in f16 would be simpler, but it rounds after each rank, so its bits depend on their number and
//!    order. Here each rank owns a range of the values, sums it alone, and rounds it once.
//!
//! 3. An f16 has 2 bytes, but its sum does not fit them. A rank with one micro-batch sends the f16 values themselves.
//!    With up to three micro-batches a compact code of 3 bytes has 17 significand bits, a sign and 6 bits of exponent;
//!    with more, a code of 4 bytes has 25. Sums of values of similar magnitude nearly always fit.
//!
//! 4. A sum that does not fit, for example 60000 + 2^-24, sends an escape code, and its full 7 bytes follow after all
//!    codes. It costs bytes and never a bit of the result.
//!
//! 5. Values are sent in pieces of 2^22, because MPI counts bytes in an i32. With at most 11 bytes each (code and full
//!    sum) a piece takes 46 MB.
//!
//! 6. The mean of FP16 values does not exceed the largest of them, so rounding it cannot overflow.
//!
//! 7. ±∞ and NaN have no fixed-point value. Their result is arbitrary, because all ranks skip such a step after they have
//!    compared their reports.
//!
//! 8. The all-to-all has no message tag. The caller has compared tags in a gather immediately before, lengths are checked,
//!    and a message that does not decode is reported with its sender.
//!
//! 9. Without exactness ([`ReduceMode::NativeF32`]) the transport sums f32. Each gradient is divided by the number of
//!    micro-batches before it is added, because a sum of gradients could overflow although their mean does not.

use super::{DistributedError, MessageTag, ReduceMode, comm_thread::CommChannel, half_codec};
use std::ops::Range;

/// Maximum number of values of one message: with at most 11 bytes each, it is shorter than 2^31 − 1 bytes, the limit of
/// MPI.
const MAX_VALUES_PER_MESSAGE: usize = 1 << 22;
/// Size in bytes of a sum outside the compact encoding: 2^12 micro-batches of values below 2^40 need 53 bits.
const FULL_SUM_BYTES: usize = 7;

/// Sums of gradients over the micro-batches of one rank, one parameter after the other.
#[derive(Debug)]
pub(crate) enum GradSums {
    ExactF16(ExactAccumulator),
    /// Sums of the quotients gradient / number of micro-batches, because a sum of gradients could overflow.
    NativeF32 {
        sums: Vec<f32>,
        micro_batches: f32,
    },
}

impl GradSums {
    /// Creates gradient sums of no values, a placeholder.
    pub const fn empty() -> Self {
        Self::NativeF32 { sums: Vec::new(), micro_batches: 1.0 }
    }

    /// Creates zero sums of `len` values for the micro-batches that this rank has.
    #[expect(clippy::cast_precision_loss, reason = "at most 4096")]
    pub fn new(mode: ReduceMode, len: usize, (micro_batches, rank, size): (u32, usize, usize)) -> Self {
        match mode {
            ReduceMode::ExactF16 => {
                Self::ExactF16(ExactAccumulator::new(len, local_micro_batches(micro_batches, rank, size)))
            }
            ReduceMode::NativeF32 => Self::NativeF32 { sums: vec![0.0; len], micro_batches: micro_batches as f32 },
        }
    }

    /// Adds the gradient of one parameter to the sums, from index `start` on.
    pub fn accumulate(&mut self, start: usize, values: &[f32], exponent: Option<i32>) {
        match self {
            Self::ExactF16(accumulator) => accumulator.accumulate(start, values, exponent),
            Self::NativeF32 { sums, micro_batches } => {
                sums[start..].iter_mut().zip(values).for_each(|(sum, value)| *sum += value / *micro_batches);
            }
        }
    }
}

/// Mean gradients over all micro-batches of all ranks, one parameter after the other.
#[derive(Debug, PartialEq)]
pub(crate) enum ReducedGrads {
    /// Mean gradients as FP16 values, those of each parameter at its exponent.
    F16(Vec<u16>),
    F32(Vec<f32>),
}

impl ReducedGrads {
    /// Returns the mean gradient of one parameter as f32.
    pub fn decode_range(&self, range: Range<usize>, exponent: i32) -> Vec<f32> {
        match self {
            Self::F16(halves) => halves[range].iter().map(|&half| half_codec::decode_f16(half, exponent)).collect(),
            Self::F32(means) => means[range].to_vec(),
        }
    }
}

/// Accumulator of FP16 gradients: the values of a single micro-batch, exact fixed-point sums of several.
#[derive(Debug)]
pub(crate) struct ExactAccumulator {
    /// Number of micro-batches of this rank whose gradients are added.
    micro_batches: u32,
    /// FP16 bit patterns of the last micro-batch's gradients.
    halves: Vec<u16>,
    sums: Vec<i64>,
}

impl ExactAccumulator {
    fn new(len: usize, micro_batches: u32) -> Self {
        Self { micro_batches, halves: vec![0; len], sums: vec![0; if micro_batches > 1 { len } else { 0 }] }
    }

    fn accumulate(&mut self, start: usize, values: &[f32], exponent: Option<i32>) {
        let halves = &mut self.halves[start..start + values.len()];
        half_codec::encode_f16(values, exponent, halves);
        if !self.sums.is_empty() {
            let sums = &mut self.sums[start..start + values.len()];
            sums.iter_mut().zip(halves).for_each(|(sum, half)| *sum += half_codec::to_fixed_point(*half));
        }
    }

    /// Encodes a range for another rank: compact codes, then the sums that do not fit them. Most sums have few significand
    /// bits and fit.
    fn encode(&self, range: Range<usize>) -> Vec<u8> {
        if self.sums.is_empty() {
            return self.halves[range].iter().flat_map(|half| half.to_le_bytes()).collect();
        }
        let (significand_bits, mut full_sums) = (significand_bits(self.micro_batches), Vec::new());
        let mut bytes = Vec::with_capacity(range.len() * code_bytes(self.micro_batches));
        for &sum in &self.sums[range] {
            let code = half_codec::encode_compact(sum, significand_bits).unwrap_or_else(|| {
                full_sums.extend_from_slice(&sum.to_le_bytes()[..FULL_SUM_BYTES]);
                half_codec::ESCAPE_CODE << significand_bits
            });
            bytes.extend_from_slice(&code.to_le_bytes()[..code_bytes(self.micro_batches)]);
        }
        bytes.append(&mut full_sums);
        bytes
    }
}

/// Returns the significand bits of a compact code. 17 hold nearly all sums of up to three values; sums of more values span
/// more bits.
const fn significand_bits(micro_batches: u32) -> u32 {
    if micro_batches <= 3 { 17 } else { 25 }
}

/// Returns the size in bytes of a compact code for an exact sum: significand, sign and exponent.
const fn code_bytes(micro_batches: u32) -> usize {
    if significand_bits(micro_batches) == 17 { 3 } else { 4 }
}

/// Decodes the message of a rank with `micro_batches` micro-batches and adds it to `totals`; `false` if it is
/// malformed.
fn accumulate_encoded(bytes: &[u8], micro_batches: u32, totals: &mut [i64]) -> bool {
    if micro_batches == 1 {
        for (total, half) in totals.iter_mut().zip(bytes.chunks_exact(2)) {
            *total += half_codec::to_fixed_point(u16::from_le_bytes([half[0], half[1]]));
        }
        return bytes.len() == totals.len() * 2;
    }
    let (code_bytes, significand_bits) = (code_bytes(micro_batches), significand_bits(micro_batches));
    let Some((compact, full_sums)) = bytes.split_at_checked(totals.len() * code_bytes) else { return false };
    let mut full_sums = full_sums.chunks_exact(FULL_SUM_BYTES);
    for (total, code) in totals.iter_mut().zip(compact.chunks_exact(code_bytes)) {
        let mut word = [0; 4];
        word[..code_bytes].copy_from_slice(code);
        let sum = half_codec::decode_compact(u32::from_le_bytes(word), significand_bits).or_else(|| {
            let mut word = [0; 8];
            word[8 - FULL_SUM_BYTES..].copy_from_slice(full_sums.next()?);
            Some(i64::from_le_bytes(word) >> (8 * (8 - FULL_SUM_BYTES)))
        });
        let Some(sum) = sum else { return false };
        *total += sum;
    }
    full_sums.next().is_none() && full_sums.remainder().is_empty()
}

/// Returns the number of micro-batches of a rank: micro-batch i belongs to rank i modulo the number of ranks.
pub(crate) fn local_micro_batches(micro_batches: u32, rank: usize, size: usize) -> u32 {
    let count = (micro_batches as usize).saturating_sub(rank).div_ceil(size);
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// All-reduces gradients: returns their means over all micro-batches of all ranks.
pub(super) fn all_reduce_mean(
    channel: &mut CommChannel, sums: GradSums, micro_batches: u32,
) -> Result<ReducedGrads, DistributedError> {
    match sums {
        GradSums::ExactF16(accumulator) => {
            all_reduce_exact(channel, &accumulator, micro_batches).map(ReducedGrads::F16)
        }
        GradSums::NativeF32 { mut sums, .. } => {
            channel.all_reduce(&mut sums)?;
            Ok(ReducedGrads::F32(sums))
        }
    }
}

/// Computes the exact mean over all ranks: reduce-scatter of exact sums, then all-gather of their rounded means.
fn all_reduce_exact(
    channel: &mut CommChannel, sums: &ExactAccumulator, micro_batches: u32,
) -> Result<Vec<u16>, DistributedError> {
    let (rank, size) = (channel.rank, channel.other_ranks + 1);
    let len = sums.halves.len();
    let mut means = Vec::with_capacity(len);
    for first in (0..len).step_by(MAX_VALUES_PER_MESSAGE) {
        let count = MAX_VALUES_PER_MESSAGE.min(len - first);
        let range_of = |rank: usize| first + count * rank / size..first + count * (rank + 1) / size;
        let received = channel.all_to_all((0..size).map(|rank| sums.encode(range_of(rank))).collect())?;
        let mut totals = vec![0; range_of(rank).len()];
        for (sender, bytes) in received.iter().enumerate() {
            if !accumulate_encoded(bytes, local_micro_batches(micro_batches, sender, size), &mut totals) {
                return Err(DistributedError::CollectiveMismatch(sender));
            }
        }
        let local: Vec<u8> =
            totals.iter().flat_map(|&sum| half_codec::round_mean(sum, micro_batches).to_le_bytes()).collect();
        for (sender, bytes) in channel.all_gather(MessageTag::GradMean, &local)?.iter().enumerate() {
            if bytes.len() != 2 * range_of(sender).len() {
                return Err(DistributedError::CollectiveMismatch(sender));
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

    /// Creates one micro-batch of 1000 values, most of them small, some of either sign and any size.
    fn part(number: u32) -> Vec<f32> {
        let mut state = u64::from(number) + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as i32
        };
        (0..1000).map(|_| (next() % 2047) as f32 * 2f32.powi(next() % 28 - 22)).collect()
    }

    fn means(mode: ReduceMode, group: &Group, micro_batches: u32) -> ReducedGrads {
        let mut sums = GradSums::new(mode, 1000, (micro_batches, group.rank(), group.size()));
        for number in (0..micro_batches).skip(group.rank()).step_by(group.size()) {
            let values = part(number);
            sums.accumulate(0, &values[..300], Some(0));
            sums.accumulate(300, &values[300..], Some(0));
        }
        group.all_reduce_mean(sums, micro_batches).expect("the mean")
    }

    #[test]
    fn any_number_of_ranks_has_one_mean() {
        for micro_batches in [1, 7, 70] {
            let alone = means(ReduceMode::ExactF16, &Group::single_rank(), micro_batches);
            let ReducedGrads::F16(halves) = &alone else { unreachable!() };
            let naive = |i: usize| {
                let all = (0..micro_batches).map(|number| f64::from(half::f16::from_f32(part(number)[i])));
                gradscale_core::cast::f16_from_f64(
                    all.sum::<f64>() / f64::from(micro_batches),
                    gradscale_core::cast::Round::NearestEven,
                )
            };
            for (i, &mean) in halves.iter().enumerate() {
                assert_eq!(half::f16::from_bits(mean), naive(i), "{micro_batches} micro_batches, value {i}");
            }
            for size in 2..=micro_batches.min(7) as usize {
                for rank in world(ReduceMode::ExactF16, size, micro_batches) {
                    assert!(rank == alone, "{micro_batches} micro_batches on {size}");
                }
            }
        }
    }

    /// A sum fits the compact code if it has few significand bits, at any exponent; a full sum costs more bytes but
    /// loses no bits.
    #[test]
    fn sums_of_parts_travel_whole() {
        for micro_batches in [2, 3, 4, 12, 4096] {
            let mut halves = ExactAccumulator::new(1000, micro_batches);
            for number in 0..micro_batches.min(12) {
                halves.accumulate(0, &part(number), Some(0));
            }
            halves.sums[7] = -(1 << 40) * i64::from(micro_batches) + 1;
            let bytes = halves.encode(3..903);
            let mut totals = vec![5; 900];
            assert!(accumulate_encoded(&bytes, micro_batches, &mut totals), "{micro_batches}");
            assert!(totals.iter().zip(&halves.sums[3..903]).all(|(total, sum)| *total == sum + 5), "{micro_batches}");
            assert!(
                bytes.len() > 900 * code_bytes(micro_batches)
                    && bytes.len() < 900 * (code_bytes(micro_batches) + FULL_SUM_BYTES),
                "{micro_batches}"
            );
            for damaged in [&bytes[..100], &bytes[..bytes.len() - 1], &[&bytes[..], &[0; FULL_SUM_BYTES]].concat()[..]]
            {
                assert!(!accumulate_encoded(damaged, micro_batches, &mut totals), "{micro_batches}");
            }
        }
        // Values of similar magnitude mostly fit the compact code.
        let mut halves = ExactAccumulator::new(1000, 2);
        for number in 0..2 {
            let values: Vec<f32> = part(number).iter().map(|value| value.signum() + value.abs().fract()).collect();
            halves.accumulate(0, &values, Some(0));
        }
        assert!(halves.encode(0..1000).len() < 3200);
    }

    fn world(mode: ReduceMode, size: usize, micro_batches: u32) -> Vec<ReducedGrads> {
        let rank = |rank| thread::spawn(move || means(mode, &Group::new(rank), micro_batches));
        let ranks: Vec<_> = Threads::world(size).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().expect("a rank")).collect()
    }

    #[test]
    fn the_fast_mean_is_that_of_f32_on_all_ranks() {
        for (size, micro_batches) in [(1, 7), (2, 7), (3, 3)] {
            let all = world(ReduceMode::NativeF32, size, micro_batches);
            let ReducedGrads::F32(singles) = &all[0] else { unreachable!() };
            assert!(all.iter().all(|other| *other == all[0]), "{micro_batches} micro_batches on {size}");
            for (i, &mean) in singles.iter().enumerate() {
                let micro_batches: Vec<f64> = (0..micro_batches).map(|number| f64::from(part(number)[i])).collect();
                let (want, most) = (
                    micro_batches.iter().sum::<f64>() / micro_batches.len() as f64,
                    micro_batches.iter().map(|x| x.abs()),
                );
                assert!((f64::from(mean) - want).abs() <= 1e-6 * most.sum::<f64>(), "value {i}: {mean}, not {want}");
            }
        }
    }
}
