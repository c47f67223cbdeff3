//! Tests of rows as 32-bit words: the host reads the words that a device writes, and rejects words that no device can
//! have written.

mod common;

use common::{assert_near, assert_same_row, detail, kind, pow2, row, value};
use gradscale_core::{
    backend::{ABI, Control},
    stats::{BINS, Convention, Counts, Detail, LIGHT_WORDS, Moments, RowError, Stats, WORDS},
};
use proptest::{collection::vec, prelude::*};

/// Parts are rounded to the bits of words, so that both give the same row: 1 + 2^-26 + 2^-52 has one bit too many.
#[test]
fn sums_of_parts_have_the_digits_of_words() {
    let (short, long) = (1.0 + pow2(-26), 1.0 + pow2(-26) + pow2(-52));
    let one = row(Convention::FP16, 0, Detail::Moments, &[1.0]);
    let (counts, bins) = (*one.counts(), *one.bins().expect("observed"));
    let made = |sum| {
        let moments = Moments { sum, sum_sq: sum, sum_ln: -sum, sum_ln_sq: sum };
        Stats::from_parts(Convention::FP16, Detail::Moments, counts, moments, &bins).expect("a row")
    };
    assert_eq!(made(long), made(short));
    assert_eq!(made(short).moments().map(|moments| moments.sum), Some(short));
    assert_eq!(Stats::from_words(&made(long).to_words(), Convention::FP16, 0), Ok(made(long)));
}

proptest! {
    #![proptest_config(common::cases(1024))]

    /// The host reads the words that a device writes: integers exactly, sums to the 48 bits of two f32.
    #[test]
    fn words_carry_a_row(
        (target, rule) in kind(), exponent in any::<i32>(), level in detail(), values in vec(-1e6f32..1e6, 0..60),
        others in vec(value(), 0..20),
    ) {
        let convention = target.convention(rule);
        let values = if level == Detail::Moments { values } else { [values, others].concat() };
        let stats = row(convention, exponent, level, &values);
        let words = stats.to_words();
        let back = Stats::from_words(&words, convention, exponent);
        if level == Detail::None {
            prop_assert_eq!(back, Ok(Stats::new(convention, exponent, level)));
            return Ok(());
        }
        let back = back.expect("written by a row");
        assert_same_row(&back, &stats, "words");
        for (got, want) in back.moments().iter().zip(stats.moments()) {
            for (got, want) in [(got.sum, want.sum), (got.sum_sq, want.sum_sq), (got.sum_ln, want.sum_ln),
                (got.sum_ln_sq, want.sum_ln_sq)] {
                assert_near(got, want, want.abs() * pow2(-47), "a sum as two f32");
            }
        }
        prop_assert_eq!(Stats::from_words(&back.to_words(), convention, exponent), Ok(back));
        // The same row from its parts.
        let (moments, bins) = (stats.moments().copied().unwrap_or_default(), stats.bins().copied().unwrap_or([0; BINS]));
        prop_assert_eq!(Stats::from_parts(convention, level, *stats.counts(), moments, &bins), Ok(back));
        let needed = if level == Detail::Counts { LIGHT_WORDS } else { WORDS };
        prop_assert!(Stats::from_words(&words[..needed], convention, exponent).is_ok());
        prop_assert_eq!(Stats::from_words(&words[..needed - 1], convention, exponent), Err(RowError::TooShort));
    }

    /// Random words are rejected or read, and never cause a panic; a row that is read is consistent.
    #[test]
    fn garbage_words_never_panic(
        (target, rule) in kind(), level in detail(), words in vec(prop_oneof![Just(0), 0..9u32, Just(u32::MAX), any::<u32>()], 0..WORDS + 9),
        spots in vec((0..WORDS, any::<u32>()), 0..4), values in vec(value(), 0..9),
    ) {
        let convention = target.convention(rule);
        let mut patched = row(convention, 0, level, &values).to_words();
        for (at, word) in spots {
            patched[at] = word;
        }
        for words in [words.as_slice(), &patched] {
            let Ok(mut stats) = Stats::from_words(words, convention, 7) else { continue };
            let c = *stats.counts();
            prop_assert!(c.zeros + c.infinite + c.nan + c.flushed + c.overflowed + c.subnormal <= c.count);
            prop_assert!(c.amax >= 0.0 && c.amax.is_finite() && (c.amax == 0.0) == (c.nonzero() == 0));
            let _ = (stats.flushed_at(0), stats.headroom_above(), stats.merge(&stats));
            if c.count < u64::from(u32::MAX) {
                stats.observe(&values);
                prop_assert_eq!(stats.counts().count, c.count + values.len() as u64 * u64::from(stats.detail() > Detail::None));
            }
        }
    }
}

#[test]
fn impossible_rows_are_refused() {
    let good = row(Convention::FP16, 3, Detail::Full, &[1.0, -2.0, 0.0, f32::NAN, 1e-9]).to_words();
    let read = |change: &dyn Fn(&mut [u32; WORDS])| {
        let mut words = good;
        change(&mut words);
        Stats::from_words(&words, Convention::FP16, 3).map(|_| ())
    };
    assert_eq!(read(&|_| {}), Ok(()));
    assert_eq!(read(&|words| words[0] = 1), Err(RowError::Counts), "fewer values than zeros, NaN and flushed");
    assert_eq!(read(&|words| words[2..14].fill(u32::MAX)), Err(RowError::Counts), "the parts' sum leaves u64");
    assert_eq!(read(&|words| words[14] = (-2f32).to_bits()), Err(RowError::Amax), "a negative magnitude");
    assert_eq!(read(&|words| words[14] = f32::INFINITY.to_bits()), Err(RowError::Amax), "the largest finite magnitude");
    assert_eq!(read(&|words| words[14] = f32::NAN.to_bits()), Err(RowError::Amax), "a NaN");
    assert_eq!(read(&|words| words[14] = 0), Err(RowError::Amax), "zero beside values that are not");
    assert_eq!(read(&|words| words[15] = 4), Err(RowError::Detail), "no such detail");
    assert_eq!(read(&|words| words[14] = 1e-3f32.to_bits()), Err(RowError::Histogram), "amax below the highest bin");
    assert_eq!(read(&|words| words[24 + 127] += 1), Err(RowError::Histogram), "more bins than values");
    assert_eq!(read(&|words| words[24 + 127] = 0), Err(RowError::Histogram), "fewer bins than values");
    let zeros = row(Convention::FP16, 0, Detail::Counts, &[0.0; 3]).to_words();
    let mut words = zeros;
    words[14] = 1f32.to_bits();
    assert_eq!(Stats::from_words(&words, Convention::FP16, 0), Err(RowError::Amax), "amax of zeros");
}

/// Observing is merging, up to the last count: a full counter saturates and never restarts at 0.
#[test]
fn full_counters_stay_full() {
    let mut words = row(Convention::FP16, 0, Detail::Counts, &[1.0]).to_words();
    words[..2].fill(u32::MAX);
    let mut full = Stats::from_words(&words, Convention::FP16, 0).expect("as many as can be");
    let more = row(Convention::FP16, 0, Detail::Counts, &[1.0, 2.0]);
    assert_eq!(full.merge(&more).expect("of one kind").counts().count, u64::MAX);
    full.observe(&[1.0, 2.0]);
    assert_eq!(full.counts().count, u64::MAX);
}

#[test]
fn a_row_has_the_size_it_promises() {
    assert_eq!(size_of::<Counts>(), 64);
    assert_eq!((BINS, LIGHT_WORDS, WORDS), (256, 16, 16 + 8 + 256));
}

/// Kernels find words of a row, and of a control, by these names.
#[test]
fn names_of_kernels_say_where_words_stand() {
    let number = |name: &str| {
        let mut found = ABI.iter().copied().flatten().filter(|(known, _)| *known == name);
        let (_, number) = found.next().expect("a name of kernels");
        assert!(found.next().is_none(), "{name} twice");
        *number as usize
    };
    ABI.iter().copied().flatten().for_each(|(name, value)| assert_eq!(number(name), *value as usize));
    let mut row = Stats::new(Convention::FP16, 0, Detail::Moments);
    row.observe(&[3.0, f32::INFINITY, f32::INFINITY, 7e4]);
    let words = row.to_words();
    assert_eq!(words.len(), number("ROW_WORDS"));
    assert_eq!((words[0], words[number("ROW_INFINITE")], words[number("ROW_OVERFLOWED")]), (4, 2, 1));
    assert_eq!(words[number("ROW_AMAX")], 7e4f32.to_bits());
    assert_eq!(words[number("ROW_DETAIL")] as usize, number("DETAIL_MOMENTS"));
    assert_eq!(words[number("ROW_SUMS")], 70_003f32.to_bits());
    // Key 129: 2 < |u| ≤ 4.
    assert_eq!(words[number("ROW_HISTOGRAM") + 129], 1);
    assert_eq!(number("ROW_HISTOGRAM") + number("ROW_BINS"), words.len());
    let control = Control { exponents: &[7, -8], hyperparameters: &[0.5], seed: 0x1_0000_0002, detail: Detail::Full };
    let words: Vec<u32> = control.words().collect();
    let header = number("CONTROL_HEADER");
    assert_eq!(words[header..], [7, (-8i32).cast_unsigned(), 0.5f32.to_bits()]);
    assert_eq!(words[number("CONTROL_SEED")..][..2], [2, 1]);
    assert_eq!((words[number("CONTROL_SLOTS")], words[number("CONTROL_DETAIL")]), (2, Detail::Full.code()));
    assert_eq!(header, Control::HEADER);
}
