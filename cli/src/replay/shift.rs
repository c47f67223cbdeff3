//! A row as it would have been at another exponent.

use gradscale::core::{
    scale::Factor,
    stats::{Convention, Detail, LIGHT_WORDS, Moments, Stats, WORDS},
};
use std::f64::consts::LN_2;

/// Words before the histogram.
const HEAD: usize = LIGHT_WORDS + 8;

/// The row of the same values at the exponent `to`. Counts of what flushes are exact within the range of the histogram;
/// what overflows and what is subnormal is counted by whole bins.
pub fn shift(row: &Stats, to: i32) -> Stats {
    let by = to.saturating_sub(row.exponent());
    let Some(bins) = row.bins().filter(|_| by != 0) else { return *row };
    let amax = Factor::between(row.exponent(), to).apply(row.counts().amax);
    let convention = Convention::FP16;
    let count = |within: &dyn Fn(i32) -> bool| -> u64 {
        // Bin `key` holds magnitudes up to 2^(key − 127), and by more at the new exponent.
        let all = bins.iter().zip(-127i32..);
        all.filter(|(_, c)| within(c.saturating_add(by))).map(|(&bin, _)| u64::from(bin)).sum()
    };
    let flushed = count(&|c| c <= convention.last_flushed());
    let subnormal = count(&|c| c > convention.last_flushed() && c <= -14);
    // The largest value says exactly whether anything overflows; 65520 lies inside its bin.
    let overflows = amax >= f32::from_bits(convention.nearest_overflow());
    let overflowed = if overflows { count(&|c| c > 16).max(1) } else { 0 };
    let mut words = row.to_words();
    let mut wide = |at: usize, value: u64| {
        let bytes = value.to_le_bytes();
        let (low, high) = bytes.split_at(4);
        let word = |half: &[u8]| half.iter().rev().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
        (words[at], words[at + 1]) = (word(low), word(high));
    };
    wide(8, flushed);
    wide(10, overflowed);
    wide(12, subnormal);
    words[14] = amax.to_bits();
    if let Some(moments) = row.moments() {
        move_sums(&mut words, moments, row.counts().nonzero() as f64, by);
    }
    words[HEAD..].fill(0);
    for (key, &bin) in (0i32..).zip(bins) {
        let moved = usize::try_from(key.saturating_add(by).clamp(1, 254)).unwrap_or(1);
        words[HEAD + moved] = words[HEAD + moved].saturating_add(bin);
    }
    // Where values leave what f32 can hold, counts are all that can be said.
    Stats::from_words(&words, convention, to).unwrap_or_else(|_| {
        words[14] = amax.clamp(f32::MIN_POSITIVE, f32::MAX).to_bits();
        words[15] = Detail::Counts.code();
        Stats::from_words(&words, convention, to).unwrap_or(*row)
    })
}

/// Sums over values 2^by times as large, of which `n` are not zero.
fn move_sums(words: &mut [u32; WORDS], moments: &Moments, n: f64, by: i32) {
    let (factor, log) = (2f64.powi(by), f64::from(by) * LN_2);
    let sums = [
        moments.sum * factor,
        moments.sum_sq * factor * factor,
        moments.sum_ln + n * log,
        moments.sum_ln_sq + 2.0 * log * moments.sum_ln + n * log * log,
    ];
    for (pair, sum) in words[LIGHT_WORDS..HEAD].chunks_exact_mut(2).zip(sums) {
        #[expect(clippy::cast_possible_truncation, reason = "a pair of f32, the large part first")]
        let (large, small) = (sum as f32, (sum - f64::from(sum as f32)) as f32);
        pair.copy_from_slice(&[large.to_bits(), small.to_bits()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_row_is_the_row_of_shifted_values() {
        let values: Vec<f32> = (0..4000i32).map(|i| (i % 61 - 30) as f32 * 2f32.powi(i % 33 - 25)).collect();
        let row = |to: i32| {
            let mut row = Stats::new(Convention::FP16, to, Detail::Moments);
            let factor = Factor::between(0, to);
            row.observe(&values.iter().map(|&value| factor.apply(value)).collect::<Vec<_>>());
            row
        };
        for to in [-30, -7, -1, 0, 1, 5, 20] {
            let (got, want) = (shift(&row(0), to), row(to));
            assert_eq!(got.bins(), want.bins(), "{to}");
            assert_eq!((got.exponent(), got.counts().amax), (to, want.counts().amax));
            assert_eq!(got.counts().flushed, want.counts().flushed, "{to}");
            assert_eq!(got.counts().overflowed > 0, want.counts().overflowed > 0, "{to}");
            assert_eq!(got.room_above(), want.room_above());
            let sums = |row: &Stats| row.moments().map(|m| [m.sum, m.sum_sq, m.sum_ln, m.sum_ln_sq]).expect("sums");
            for (got, want) in sums(&got).into_iter().zip(sums(&want)) {
                assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{to}: {got} {want}");
            }
        }
    }
}
