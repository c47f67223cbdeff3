//! Conversion of a row to another exponent.

use gradscale_core::{
    scale::Factor,
    stats::{BINS, Counts, Detail, Moments, Stats},
    store_format::StoreFormat,
};
use std::f64::consts::LN_2;

/// Computes the statistics row of the same values at the exponent `to`, as FP16 would store them: see [`shift_in`].
#[must_use]
pub fn shift(row: &Stats, to: i32) -> Stats {
    shift_in(row, to, StoreFormat::Fp16)
}

/// Computes the statistics row of the same values at the exponent `to` in a format, whatever format they had. Counts of
/// flushed values are exact within the range of the histogram; overflows and subnormals are counted by whole bins.
#[must_use]
pub fn shift_in(row: &Stats, to: i32, format: StoreFormat) -> Stats {
    let (by, convention) = (to.saturating_sub(row.exponent()), format.convention());
    let Some(bins) = row.bins().filter(|_| by != 0 || row.convention() != convention) else { return *row };
    let amax = Factor::between(row.exponent(), to).apply(row.counts().amax);
    let least_normal = format.format().min_exponent();
    // A part of this bin is too large, and all of those above.
    let overflow_bin = (convention.nearest_overflow() >> 23).cast_signed() - 126;
    let count = |within: &dyn Fn(i32) -> bool| -> u64 {
        // Bin `key` holds magnitudes up to 2^(key − 127), shifted by the difference of the exponents.
        let all = bins.iter().zip(-127i32..);
        all.filter(|(_, c)| within(c.saturating_add(by))).map(|(&bin, _)| u64::from(bin)).sum()
    };
    let flushed = count(&|c| c <= convention.last_flushed());
    let subnormal = count(&|c| c > convention.last_flushed() && c <= least_normal);
    // The largest value determines exactly if there is an overflow, because the threshold is inside its bin.
    let overflows = amax >= f32::from_bits(convention.nearest_overflow());
    let overflowed = if overflows { count(&|c| c > overflow_bin).max(1) } else { 0 };
    let counts = Counts { flushed, overflowed, subnormal, amax, exponent: to, ..*row.counts() };
    let mut moved = [0u32; BINS];
    for (key, &bin) in (0i32..).zip(bins) {
        let bin_there = &mut moved[usize::try_from(key.saturating_add(by).clamp(1, 254)).unwrap_or(1)];
        *bin_there = bin_there.saturating_add(bin);
    }
    let moments = row.moments().map(|moments| sums(moments, row.counts().nonzero() as f64, by)).unwrap_or_default();
    // If values leave the range of f32, only the counts are kept.
    Stats::from_parts(convention, row.detail(), counts, moments, &moved).unwrap_or_else(|_| {
        let counts = Counts { amax: amax.clamp(f32::MIN_POSITIVE, f32::MAX), ..counts };
        Stats::from_parts(convention, Detail::Counts, counts, moments, &moved).unwrap_or(*row)
    })
}

/// Computes the sums over values 2^by times as large, of which `n` are not zero.
fn sums(moments: &Moments, n: f64, by: i32) -> Moments {
    let (factor, log) = (2f64.powi(by), f64::from(by) * LN_2);
    Moments {
        sum: moments.sum * factor,
        sum_sq: moments.sum_sq * factor * factor,
        sum_ln: moments.sum_ln + n * log,
        sum_ln_sq: moments.sum_ln_sq + 2.0 * log * moments.sum_ln + n * log * log,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_row_is_the_row_of_shifted_values() {
        let values: Vec<f32> = (0..4000i32).map(|i| (i % 61 - 30) as f32 * 2f32.powi(i % 33 - 25)).collect();
        let row = |to: i32, format: StoreFormat| {
            let mut row = Stats::new(format.convention(), to, Detail::Moments);
            let factor = Factor::between(0, to);
            row.observe(&values.iter().map(|&value| factor.apply(value)).collect::<Vec<_>>());
            row
        };
        for (from, format) in
            StoreFormat::ALL.into_iter().flat_map(|from| StoreFormat::ALL.map(|format| (from, format)))
        {
            for to in [-30, -7, -1, 0, 1, 5, 20] {
                let (got, want) = (shift_in(&row(0, from), to, format), row(to, format));
                assert_eq!((got.convention(), got.bins()), (want.convention(), want.bins()), "{to}");
                assert_eq!((got.exponent(), got.counts().amax), (to, want.counts().amax));
                assert_eq!(got.counts().flushed, want.counts().flushed, "{to}");
                // A bin holds the values up to a power of two, and rounding moves thresholds within it.
                let subnormal = got.counts().subnormal.abs_diff(want.counts().subnormal);
                assert!(subnormal <= want.counts().count / 10, "{format} at {to}: {subnormal}");
                assert_eq!(got.counts().overflowed > 0, want.counts().overflowed > 0, "{to}");
                assert!(got.counts().overflowed <= want.counts().overflowed, "{to}");
                assert_eq!(got.headroom_above(), want.headroom_above());
                let sums = |row: &Stats| row.moments().map(|m| [m.sum, m.sum_sq, m.sum_ln, m.sum_ln_sq]).expect("sums");
                for (got, want) in sums(&got).into_iter().zip(sums(&want)) {
                    assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{to}: {got} {want}");
                }
            }
        }
        assert_eq!(shift(&row(0, StoreFormat::E4m3), 5), shift_in(&row(0, StoreFormat::Fp16), 5, StoreFormat::Fp16));
    }
}
