//! Shared code of the tests: a generator, comparisons by bits, a naive model of a store, steps of one site.
//!
//! No expected value comes from the code under test: the model of a store is f64 arithmetic with the numbers of
//! `docs/specification.md`.

#![allow(dead_code, reason = "each test binary uses a part")]

use core::fmt::Display;
use gradscale_core::{
    format::Format,
    site::{Site, SiteConfig, SiteOutcome},
    stats::{Convention, Detail, FlushRule, Stats},
};
use proptest::{prelude::*, sample::select, test_runner::Config};

/// Returns the settings of a property: a failing input is printed with its seed, and no file is written.
pub fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and with the same numbers on every machine.
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in (0, 1).
    pub fn unit(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) * pow2(-52)
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).expect("below a usize")
    }

    /// Returns a standard normal number (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        radius * (core::f64::consts::TAU * self.unit()).cos()
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Returns 2^k, exactly.
pub fn pow2(k: i32) -> f64 {
    assert!((-1022..=1023).contains(&k));
    f64::from_bits(u64::try_from(k + 1023).expect("a normal field") << 52)
}

/// Converts an f64 to the nearest f32, for values that are representable.
#[expect(clippy::cast_possible_truncation, reason = "rounds")]
pub fn narrow(x: f64) -> f32 {
    x as f32
}

/// Returns ⌊log2 x⌋ of a positive normal f64.
pub fn floor_log2(x: f64) -> i32 {
    i32::try_from(x.to_bits() >> 52).expect("no sign") - 1023
}

/// Returns the distance of two f32 in the sequence of all f32. −0 and +0 are adjacent to the smallest subnormals and to
/// each other, so only 0 itself is near 0. NaNs are equal to each other and infinitely far from other values.
pub fn ulps(a: f32, b: f32) -> u64 {
    if a.is_nan() || b.is_nan() {
        return if a.is_nan() && b.is_nan() { 0 } else { u64::MAX };
    }
    // The two zeros have separate positions.
    let place = |x: f32| {
        let magnitude = i64::from(x.to_bits() & 0x7FFF_FFFF);
        if x.is_sign_negative() { -1 - magnitude } else { magnitude }
    };
    place(a).abs_diff(place(b))
}

/// Asserts equal bits; NaNs are compared by class.
#[track_caller]
pub fn assert_bits(got: f32, want: f32, case: impl Display) {
    assert!(
        ulps(got, want) == 0,
        "{case}: got {got:e} ({:#010x}), want {want:e} ({:#010x}), {} ulp apart",
        got.to_bits(),
        want.to_bits(),
        ulps(got, want),
    );
}

/// Asserts that a value is within `bound` of the expected one; ±∞ and NaN must be equal.
#[track_caller]
pub fn assert_near(got: f64, want: f64, bound: f64, case: impl Display) {
    let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
    assert!(
        same || (got - want).abs() <= bound,
        "{case}: got {got:e} ({:#018x}), want {want:e} ({:#018x}), off by {:e}, bound {bound:e}",
        got.to_bits(),
        want.to_bits(),
        (got - want).abs(),
    );
}

/// Asserts equal counters, amax and bins, bit for bit.
#[track_caller]
pub fn assert_same_row(got: &Stats, want: &Stats, case: impl Display) {
    assert_bits(got.counts().amax, want.counts().amax, format!("{case}: amax"));
    assert_eq!(got.counts(), want.counts(), "{case}: counts");
    assert_eq!(got.bins(), want.bins(), "{case}: bins");
    assert_eq!((got.convention(), got.detail()), (want.convention(), want.detail()), "{case}: kind");
}

/// Returns a row over `values`.
pub fn row(convention: Convention, exponent: i32, detail: Detail, values: &[f32]) -> Stats {
    let mut row = Stats::new(convention, exponent, detail);
    row.observe(values);
    row
}

/// Returns a full FP16 row over `values` observed at `exponent`.
pub fn full(exponent: i32, values: &[f32]) -> Stats {
    row(Convention::FP16, exponent, Detail::Full, values)
}

/// Returns `values` · 2^k, which must be exact.
pub fn shifted(values: &[f32], k: i32) -> Vec<f32> {
    let exact = |&v: &f32| {
        let u = narrow(f64::from(v) * pow2(k));
        assert!(f64::from(u) == f64::from(v) * pow2(k), "{v:e} times 2^{k} is no f32");
        u
    };
    values.iter().map(exact).collect()
}

/// A format by the numbers of the table in `docs/specification.md`, section 2.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub format: Format,
    pub mantissa_bits: i32,
    /// Exponent of the smallest normal number.
    pub least_exponent: i32,
    pub max: f64,
}

pub const FP16: Target = Target { format: Format::FP16, mantissa_bits: 10, least_exponent: -14, max: 65504.0 };
pub const E5M2: Target = Target { format: Format::E5M2, mantissa_bits: 2, least_exponent: -14, max: 57344.0 };
pub const E4M3: Target = Target { format: Format::E4M3, mantissa_bits: 3, least_exponent: -6, max: 448.0 };

/// Result of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Zero,
    Flushed,
    Subnormal,
    Normal,
    Overflowed,
    Infinite,
    Nan,
}

impl Target {
    pub fn convention(self, rule: FlushRule) -> Convention {
        Convention::new(self.format, rule).expect("narrower than f32")
    }

    /// Computes the result of storing `x` on a device with this rule, one operation after the other, like the device.
    pub fn fate(self, rule: FlushRule, x: f64) -> Fate {
        if x.is_nan() {
            return Fate::Nan;
        }
        if x.is_infinite() {
            return Fate::Infinite;
        }
        if x == 0.0 {
            return Fate::Zero;
        }
        let x = x.abs();
        let least = pow2(self.least_exponent);
        // Finest grid of the format, or none for rounding with an unbounded exponent.
        let finest =
            if rule == FlushRule::UnboundedThenFlush { -1000 } else { self.least_exponent - self.mantissa_bits };
        let quantum = pow2((floor_log2(x) - self.mantissa_bits).max(finest));
        let y = match rule {
            FlushRule::FlushThenRound if x < least => 0.0,
            FlushRule::TowardZero => (x / quantum).trunc() * quantum,
            _ => (x / quantum).round_ties_even() * quantum,
        };
        let flushes_subnormals = matches!(rule, FlushRule::RoundThenFlush | FlushRule::UnboundedThenFlush);
        if y == 0.0 || flushes_subnormals && y < least {
            Fate::Flushed
        } else if y < least {
            Fate::Subnormal
        } else if y > self.max {
            Fate::Overflowed
        } else {
            Fate::Normal
        }
    }

    /// Counts the `values` · 2^k that flush.
    pub fn flushed(self, rule: FlushRule, values: &[f32], k: i32) -> u64 {
        let flushes = |&&v: &&f32| self.fate(rule, f64::from(v) * pow2(k)) == Fate::Flushed;
        values.iter().filter(flushes).count() as u64
    }
}

/// Returns four values of magnitude 2^m at exponent 0.
pub fn gradient(m: i32) -> Vec<f32> {
    [1.0, -1.0, 1.0, 1.0].map(|sign| sign * 2f32.powi(m)).to_vec()
}

pub fn stored(values: &[f32], alpha: i32, detail: Detail) -> Stats {
    let u: Vec<f32> = values.iter().map(|&v| narrow(f64::from(v) * pow2(alpha.clamp(-378, 378)))).collect();
    row(Convention::FP16, alpha, detail, &u)
}

pub fn site(config: SiteConfig) -> Site {
    Site::new(config).expect("an interval")
}

/// Runs one step that the optimizer applies: decides inside the step if the site requests it, stores, and passes the
/// row. Returns the exponent in force.
pub fn step(site: &mut Site, values: &[f32]) -> Option<i32> {
    let request = site.request();
    if request.at_once {
        let probe = full(0, values);
        site.decide(site.exact(&probe), 0);
    }
    let alpha = site.alpha();
    site.finish(&stored(values, alpha.unwrap_or(0), request.detail), SiteOutcome::Stepped);
    alpha
}

/// Any bit pattern; thresholds with their neighbours; values that are excluded first.
pub fn value() -> impl Strategy<Value = f32> {
    // Every threshold of the table is one of these numbers of f32 steps below a power of two.
    let steps = select(vec![0, 1 << 11, 1 << 12, 1 << 13, 1 << 18, 1 << 19, 1 << 20, 1 << 21]);
    let edge = (-40..18i32, steps, -2..=2i32);
    let special = vec![0.0, -0.0, f32::INFINITY, f32::NAN, f32::MAX, 65504.0, 61440.0, 464.0, 464.00003];
    let magnitude = prop_oneof![
        3 => any::<u32>().prop_map(f32::from_bits),
        4 => edge.prop_map(|(k, below, step)| f32::from_ne_bytes((((k + 127) << 23) - below + step).to_ne_bytes())),
        1 => (1..=0x007F_FFFFu32).prop_map(f32::from_bits),
        1 => select(special),
        3 => (-30f32..20.0).prop_map(f32::exp2),
    ];
    (magnitude, any::<bool>()).prop_map(|(x, negative)| if negative { -x } else { x })
}

pub fn kind() -> impl Strategy<Value = (Target, FlushRule)> {
    (select(vec![FP16, E5M2, E4M3]), select(FlushRule::ALL.to_vec()))
}

pub fn detail() -> impl Strategy<Value = Detail> {
    select(vec![Detail::None, Detail::Counts, Detail::Full, Detail::Moments])
}
