//! Tests of every cast on every input: all 2^32 f32 values against the number line of the format. With
//! `GRADSCALE_CASTS=sparse` only binary16 to nearest even is tested on all of them, the others on both sides of every
//! change.
//!
//! The oracle uses no bit manipulation. It lists the representable numbers in f64 by their definition (IEEE 754-2019
//! §3.4) and goes upwards through all f32. The result may change only at the midpoint of two neighbours (nearest even)
//! or at the upper one (toward zero), and both are exact in f64 and in f32.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers that were made to fit")]

use gradscale_core::{
    cast::{Cast, Round, Status},
    format::{Format, SpecialEncoding},
};

/// Returns the non-negative finite numbers of a format in ascending order; their patterns are 0, 1, 2 …
fn number_line(format: Format) -> Vec<f64> {
    let (e, m) = (format.exponent_bits(), format.mantissa_bits());
    let bias = (1i32 << (e - 1)) - 1;
    let finite = match format.special_encoding() {
        SpecialEncoding::Ieee => ((1u32 << e) - 1) << m,
        SpecialEncoding::FiniteWithNan => (1 << (e + m)) - 1,
    };
    let value = |pattern: u32| {
        let (field, digits) = ((pattern >> m) as i32, f64::from(pattern & ((1 << m) - 1)));
        let fraction = digits / f64::from(1u32 << m);
        if field == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(field - bias) }
    };
    (0..finite).map(value).collect()
}

/// Converts an f64 to the f32 that equals it.
fn exact(x: f64) -> f32 {
    let narrow = x as f32;
    assert_eq!(f64::from(narrow), x, "{x:e} is no f32");
    narrow
}

/// Returns where the result changes from number `i` to `i + 1`: the smallest f32 pattern that rounds to the upper one.
fn change(line: &[f64], i: usize, round: Round) -> u32 {
    // Above the largest number the grid continues as if there were another.
    let upper = line.get(i + 1).copied().unwrap_or_else(|| 2.0 * line[i] - line[i - 1]);
    match round {
        Round::TowardZero => exact_or_infinity(upper),
        _ => {
            let middle = (line[i] + upper) / 2.0;
            exact(middle).to_bits() + u32::from((i + 1) % 2 == 1)
        }
    }
}

fn exact_or_infinity(x: f64) -> u32 {
    if x > f64::from(f32::MAX) { f32::INFINITY.to_bits() } else { exact(x).to_bits() }
}

/// Returns true with `GRADSCALE_CASTS=sparse`: only inputs around changes and exact ones are tried.
fn is_sparse() -> bool {
    std::env::var("GRADSCALE_CASTS").is_ok_and(|value| value == "sparse")
}

/// Returns the inputs to try in a range with one result: all, or its ends and the value in it that is `exact`.
fn chosen(from: u32, to: u32, exact: u32, sparse: bool) -> impl Iterator<Item = u32> {
    let few = [from, from + 1, exact.saturating_sub(1), exact, exact.saturating_add(1), to.saturating_sub(1)];
    let dense = if sparse { from..from } else { from..to };
    let few = if sparse { few } else { [to; 6] };
    dense.chain(few.into_iter().filter(move |bits| (from..to).contains(bits)))
}

/// Tests all 2^32 inputs, or a few for each result, and returns how many.
fn walk(format: Format, round: Round, sparse: bool, cast: impl Fn(f32) -> Cast) -> u64 {
    let line = number_line(format);
    let sign = 1u32 << (format.exponent_bits() + format.mantissa_bits());
    let infinity = f32::INFINITY.to_bits();
    let mut inputs = 0u64;
    let mut check = |from: u32, to: u32, pattern: u32, value: Option<f64>| {
        // A range contains at most one representable number, and only that is exact.
        let same = value.map_or(u32::MAX, |value| exact(value).to_bits());
        let otherwise = match (value, pattern) {
            (None, _) => Status::Overflow,
            (Some(_), 0) => Status::Underflow,
            (Some(_), _) => Status::Inexact,
        };
        let mut wrong = None;
        chosen(from, to, same, sparse).for_each(|bits| {
            let status = if bits == same { Status::Exact } else { otherwise };
            let (up, down) = (cast(f32::from_bits(bits)), cast(f32::from_bits(bits | 1 << 31)));
            let right = up == Cast { bits: pattern, status } && down == Cast { bits: pattern | sign, status };
            if !right {
                wrong = Some((bits, up, down));
            }
        });
        if let Some((bits, up, down)) = wrong {
            panic!(
                "{format}, {round:?}: ±{:e} ({bits:#010x}) gave {up:x?}, {down:x?}, not {pattern:#06x}",
                f32::from_bits(bits)
            );
        }
        inputs += 2 * u64::from(to.saturating_sub(from));
    };
    let mut from = 0;
    for (i, &value) in line.iter().enumerate() {
        let to = change(&line, i, round).min(infinity);
        check(from, to, i as u32, Some(value));
        from = to;
    }
    let largest = (line.len() - 1) as u32;
    let (above, at_infinity) = match (format.special_encoding(), format.is_saturating()) {
        (_, true) => (largest, (largest, Status::Invalid)),
        (SpecialEncoding::Ieee, false) => (largest + 1, (largest + 1, Status::Exact)),
        (SpecialEncoding::FiniteWithNan, false) => (sign - 1, (sign - 1, Status::Invalid)),
    };
    let above = if matches!(round, Round::TowardZero) { largest } else { above };
    check(from, infinity, above, None);
    for bits in [infinity, infinity | 1 << 31] {
        let want = Cast { bits: at_infinity.0 | ((bits >> 31) * sign), status: at_infinity.1 };
        assert_eq!(cast(f32::from_bits(bits)), want, "{format}: ∞");
        inputs += 1;
    }
    // A NaN keeps its sign and the upper bits of its payload, and becomes quiet.
    let m = format.mantissa_bits();
    for bits in (infinity + 1..=i32::MAX as u32).step_by(if sparse { 257 } else { 1 }) {
        let payload = (bits & 0x7F_FFFF) >> (23 - m);
        let pattern = match format.special_encoding() {
            SpecialEncoding::Ieee => (sign - 1) & !((1 << m) - 1) | 1 << (m - 1) | payload,
            SpecialEncoding::FiniteWithNan => sign - 1,
        };
        let status = if bits & 0x40_0000 != 0 { Status::Exact } else { Status::Invalid };
        let (up, down) = (cast(f32::from_bits(bits)), cast(f32::from_bits(bits | 1 << 31)));
        assert!(
            up == Cast { bits: pattern, status } && down == Cast { bits: pattern | sign, status },
            "{format}: NaN {bits:#010x} gave {up:x?}, {down:x?}"
        );
    }
    inputs + 2 * u64::from(i32::MAX as u32 - infinity)
}

macro_rules! exhaustive {
    ($($name:ident: $format:expr, $round:expr, $sparse:expr;)*) => {$(
        #[test]
        fn $name() {
            const FORMAT: Format = $format;
            // A closure of constants, so that the cast is compiled for this format alone.
            let inputs = walk(FORMAT, $round, $sparse, |x| FORMAT.encode(x, $round));
            println!("{FORMAT}, {:?}: {inputs} inputs{}", $round, if $sparse { ", sparsely" } else { "" });
            assert_eq!(inputs, 1 << 32);
        }
    )*};
}

exhaustive! {
    // The cast against which every device is tested, so it always runs on all inputs.
    fp16_nearest_even: Format::FP16, Round::NearestEven, false;
    fp16_toward_zero: Format::FP16, Round::TowardZero, is_sparse();
    bf16_nearest_even: Format::BF16, Round::NearestEven, is_sparse();
    e5m2_nearest_even: Format::E5M2, Round::NearestEven, is_sparse();
    e4m3_nearest_even: Format::E4M3, Round::NearestEven, is_sparse();
    e4m3_saturating: Format::E4M3.saturating(), Round::NearestEven, is_sparse();
}

#[test]
fn every_pattern_up() {
    for format in [Format::FP16, Format::BF16, Format::E5M2, Format::E4M3] {
        let line = number_line(format);
        let sign = 1u32 << (format.width() - 1);
        for pattern in 0..1u32 << format.width() {
            let got = format.decode(pattern);
            assert_eq!(got.is_sign_negative(), pattern & sign != 0, "{format} {pattern:#x}");
            let magnitude = pattern & (sign - 1);
            match line.get(magnitude as usize) {
                Some(&value) => assert_eq!(f64::from(got.abs()), value, "{format} {pattern:#x}"),
                None if format.special_encoding() == SpecialEncoding::Ieee && magnitude as usize == line.len() => {
                    assert_eq!(got.abs(), f32::INFINITY);
                }
                None => {
                    assert!(got.is_nan() && got.to_bits() & 0x40_0000 != 0, "{format} {pattern:#x} gave {got}");
                    let payload = magnitude & ((1 << format.mantissa_bits()) - 1);
                    let kept = got.to_bits() >> (23 - format.mantissa_bits()) & ((1 << format.mantissa_bits()) - 1);
                    assert_eq!(kept | 1 << (format.mantissa_bits() - 1), payload | 1 << (format.mantissa_bits() - 1));
                }
            }
            // Converting back gives the same pattern, except that a NaN becomes quiet.
            let back = format.encode(got, Round::NearestEven).bits;
            let quiet = if got.is_nan() { 1 << (format.mantissa_bits() - 1) } else { 0 };
            assert_eq!(back, pattern | quiet, "{format} {pattern:#x} did not come back");
        }
    }
}

/// Of the 2^32 random numbers, exactly ⌊2^32 · fraction⌋ round up, in every gap between neighbours.
#[test]
fn stochastic_share_in_every_gap() {
    for format in [Format::FP16, Format::BF16, Format::E5M2, Format::E4M3] {
        let line = number_line(format);
        let mut gaps = 0u64;
        for (i, pair) in line.windows(2).enumerate() {
            let (lower, upper) = (pair[0], pair[1]);
            let (from, to) = (exact(lower).to_bits(), exact(upper).to_bits());
            let step = ((to - from) / 37).max(1);
            for bits in (from..to).step_by(step as usize).chain([from + 1, to - 1]).filter(|&bits| bits < to) {
                let x = f32::from_bits(bits);
                // The gap is a power of two, so the quotient is exact.
                let fraction = (f64::from(x) - lower) / (upper - lower);
                let share = (fraction * 2f64.powi(32)).floor() as u64;
                let rounds_up = |random: u32| format.encode(x, Round::Stochastic(random)).bits == i as u32 + 1;
                for random in [0, share / 2, share.saturating_sub(1), share, share + 1, u64::from(u32::MAX)] {
                    let Ok(random) = u32::try_from(random) else { continue };
                    assert_eq!(rounds_up(random), u64::from(random) < share, "{format} {x:e}, random {random:#x}");
                }
            }
            gaps += 1;
        }
        assert_eq!(gaps, u64::from(format.max_bits()));
    }
}
