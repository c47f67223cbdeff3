//! Tests of the exact rule against its definition, on every exponent: casts of the values themselves and a search over
//! all k, without a histogram or a shortcut.

mod common;

use common::{E4M3, E5M2, FP16, Fate, Target, cases, full, pow2, row, shifted};
use gradscale_core::{
    loss_scale::{LossScale, ScheduleError},
    scale::exponent_of,
    site::{Site, SiteConfig},
    solve::{Authors, Choice, ConfigError, Exact, LimitedBy, NoDecision, Operand, Paper},
    stats::{Convention, Detail, FlushRule, Stats},
};
use proptest::{collection::vec, prelude::*, sample::select};

/// Range of the search over all k: beyond the need of any f32.
const ALL: core::ops::RangeInclusive<i32> = -330..=330;

/// Returns non-zero values of `width` binades from 2^`low` up, many of them equal.
fn values(low: impl Strategy<Value = i32>) -> impl Strategy<Value = Vec<f32>> {
    (low, 0..45i32).prop_flat_map(|(low, width)| {
        let digit = prop_oneof![Just(1.0f32), Just(1.0 + f32::EPSILON), Just(2.0 - f32::EPSILON), 1f32..2.0];
        let one = (low..=low + width, digit, any::<bool>(), 1..20usize).prop_map(|(k, digit, negative, times)| {
            let x = digit * 2f32.powi(k);
            vec![if negative { -x } else { x }; times]
        });
        vec(one, 1..8).prop_map(|runs| runs.concat())
    })
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    target: Target,
    flush: FlushRule,
    ppm: u32,
    window: i32,
    room: i32,
}

impl Rule {
    fn exact(self) -> Exact {
        let exact = Exact::for_format(self.target.format).with_gamma(f64::from(self.ppm) / 1e6).expect("in range");
        exact.with_window(self.window).expect("in range").with_headroom(self.room).expect("in range")
    }

    fn row(self, values: &[f32]) -> Stats {
        row(self.target.convention(self.flush), 0, Detail::Full, values)
    }

    /// Returns the largest k at which the largest value does not overflow under nearest even.
    fn k_of(self, values: &[f32]) -> i32 {
        let fits = |u: f32, k: i32| self.target.fate(FlushRule::Nearest, f64::from(u) * pow2(k)) != Fate::Overflowed;
        ALL.rev().find(|&k| values.iter().all(|&u| fits(u, k))).expect("some k fits")
    }

    fn flushed(self, values: &[f32], k: i32) -> u64 {
        self.target.flushed(self.flush, values, k)
    }

    /// Returns true if flushed · 10⁶ ≤ allowed · 10⁶ + γ_ppm · non-zeros.
    fn keeps(self, values: &[f32], flushed: u64, allowed: u64) -> bool {
        flushed * 1_000_000 <= allowed * 1_000_000 + u64::from(self.ppm) * values.len() as u64
    }

    /// Returns k_lo, k and whether the threshold is missed, by the definition, without clamping.
    fn decide(self, values: &[f32], k_of: i32) -> (i32, i32, bool) {
        let c = k_of - 2;
        let k_uf = ALL.clone().find(|&k| self.keeps(values, self.flushed(values, k), 0)).expect("some k keeps γ′");
        let missed = k_uf > c;
        let k_lo = if missed {
            let least = self.flushed(values, c);
            let fits = |&k: &i32| {
                let flushed = self.flushed(values, k);
                k <= c && flushed < values.len() as u64 && self.keeps(values, flushed, least)
            };
            // Only a history of larger values can leave no candidate at c.
            ALL.clone().find(fits).unwrap_or(c)
        } else {
            k_uf
        };
        (k_lo, k_lo.max((k_lo + self.window).min(k_of - self.room)), missed)
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let target = prop_oneof![3 => Just(FP16), 1 => Just(E5M2), 1 => Just(E4M3)];
    let ppm = prop_oneof![Just(1000), 1..2000u32, 1..1_000_000u32];
    let window = prop_oneof![2 => Just(11), 1 => 0..=30];
    let room = prop_oneof![2 => Just(6), 1 => 2..=30];
    (target, select(FlushRule::ALL.to_vec()), ppm, window, room).prop_map(|(target, flush, ppm, window, room)| Rule {
        target,
        flush,
        ppm,
        window,
        room,
    })
}

proptest! {
    #![proptest_config(cases(512))]

    /// Tests the definition, over all k, with and without an upper limit from other rows (an amax history).
    #[test]
    fn exact_is_its_definition(rule in any_rule(), values in values(-126..80), lower in prop_oneof![Just(0), 0..70]) {
        let k_of = rule.k_of(&values) - lower;
        let (k_lo, k, missed) = rule.decide(&values, k_of);
        let stats = rule.row(&values);
        let got = rule.exact().decide_below(&stats, k_of).expect("finite and not zero");
        prop_assert_eq!(got.k, k.clamp(-152, 101), "{:?} k_of {} k_lo {}", rule, k_of, k_lo);
        let share = rule.flushed(&values, got.k) as f64 / values.len() as f64;
        prop_assert_eq!(got.gamma.to_bits(), share.to_bits(), "γ at the exponent decided");
        if got.k == k {
            let lifted = k == k_lo + rule.window;
            let held = if missed { LimitedBy::Overflow } else if lifted { LimitedBy::NormalRange } else { LimitedBy::Threshold };
            prop_assert_eq!(got.held, held);
        }
        if lower == 0 {
            prop_assert_eq!(rule.exact().decide(&stats), Ok(got));
        }
    }

    /// Without a window the rule returns k_lo: it keeps the threshold, and one less would not.
    #[test]
    fn k_lo_keeps_its_promise_and_is_the_least_to_do_so(rule in any_rule(), values in values(-90..60)) {
        let exact = rule.exact().with_window(0).expect("in range");
        let got = exact.decide(&rule.row(&values)).expect("finite and not zero");
        let (at, below) = (rule.flushed(&values, got.k), rule.flushed(&values, got.k - 1));
        let c = rule.k_of(&values) - 2;
        prop_assert!(got.k <= c, "two bits stay free");
        if got.held == LimitedBy::Overflow {
            let least = rule.flushed(&values, c);
            prop_assert!(!rule.keeps(&values, least, 0), "no k up to c keeps γ′");
            prop_assert!(at < values.len() as u64 && rule.keeps(&values, at, least));
            prop_assert!(below == values.len() as u64 || !rule.keeps(&values, below, least));
        } else {
            prop_assert!(rule.keeps(&values, at, 0) && !rule.keeps(&values, below, 0));
        }
    }

    /// Two bits stay free above, and the whole headroom where k_lo allows; if there is enough range, at most γ′ of the
    /// values are even subnormal.
    #[test]
    fn exact_leaves_room_on_both_sides(flush in select(FlushRule::ALL.to_vec()), values in values(-90..60)) {
        let rule = Rule { target: FP16, flush, ppm: 1000, window: 11, room: 6 };
        let got = Exact::FP16.decide(&rule.row(&values)).expect("finite and not zero");
        let (k_lo, _, _) = rule.decide(&values, rule.k_of(&values));
        let k_of = rule.k_of(&values);
        let least = if k_lo <= k_of - 6 { 6 } else { 2 };
        prop_assert!(k_of - got.k >= least);
        if got.held == LimitedBy::NormalRange {
            let small = |&&u: &&f32| {
                matches!(FP16.fate(flush, f64::from(u) * pow2(got.k)), Fate::Flushed | Fate::Subnormal)
            };
            prop_assert!(rule.keeps(&values, values.iter().filter(small).count() as u64, 0));
        }
    }

    /// Statistics of u · 2^s give k − s and otherwise the same result. No loss scaling has this property.
    #[test]
    fn exact_is_shift_equivariant(rule in any_rule(), values in values(-40..5), s in -36..36i32) {
        let here = rule.exact().decide(&rule.row(&values)).expect("finite and not zero");
        let there = rule.exact().decide(&rule.row(&shifted(&values, s))).expect("finite and not zero");
        prop_assert_eq!(there, Choice { k: here.k - s, ..here });
    }

    /// A choice that reports γ′ as kept keeps it, also at the limits of f32 or of the histogram.
    #[test]
    fn no_choice_claims_more_than_it_keeps(
        flush in select(FlushRule::ALL.to_vec()), patterns in vec(1..0x7F80_0000u32, 1..9), low in 1..0x0400_0000u32,
    ) {
        for patterns in [patterns.clone(), patterns.into_iter().map(|bits| bits % low + 1).collect()] {
            let values: Vec<f32> = patterns.into_iter().map(f32::from_bits).collect();
            let rule = Rule { target: FP16, flush, ppm: 1000, window: 11, room: 6 };
            let got = Exact::FP16.decide(&rule.row(&values)).expect("finite and not zero");
            let keeps = rule.keeps(&values, rule.flushed(&values, got.k), 0);
            let claims = matches!(got.held, LimitedBy::Threshold | LimitedBy::NormalRange);
            prop_assert!(keeps || !claims, "{:?} of {:?}", got, values);
        }
    }

    /// Any pattern gives a decision within the range, or a reason, and never a panic.
    #[test]
    fn any_bits_are_decided_or_refused(rule in any_rule(), patterns in vec(any::<u32>(), 0..9), k_of in any::<i32>()) {
        let values: Vec<f32> = patterns.into_iter().map(f32::from_bits).collect();
        let stats = rule.row(&values);
        let finite = values.iter().all(|u| u.is_finite());
        for verdict in [rule.exact().decide(&stats), rule.exact().decide_below(&stats, k_of), rule.exact().lower(&stats)] {
            match verdict {
                Ok(choice) => prop_assert!(finite && (-152..=101).contains(&choice.k)),
                Err(NoDecision::Empty | NoDecision::NotFinite) => {}
                Err(other) => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

/// The threshold is in whole parts per million, and equality keeps it.
#[test]
fn parts_per_million_decide_exactly() {
    // 2^-20 needs k = −4 to survive, 1 needs −24; with window 0 the result is one of the two.
    let k = |gamma: f64, tiny: usize, all: usize| {
        let values = [vec![2f32.powi(-20); tiny], vec![1.0; all - tiny]].concat();
        let exact = Exact::FP16.with_gamma(gamma).expect("in range").with_window(0).expect("in range");
        exact.decide(&full(0, &values)).expect("finite").k
    };
    assert_eq!([k(1e-3, 1, 1000), k(1e-3, 1, 999), k(1e-3, 2, 1999), k(1e-3, 2, 2000)], [-24, -4, -4, -24]);
    assert_eq!([k(1e-6, 1, 1_000_000), k(1e-6, 1, 999_999)], [-24, -4]);
    assert_eq!([k(0.5, 5, 10), k(0.5, 6, 10), k(0.999_999, 9, 10)], [-24, -4, -24]);
    let ppm = |gamma| Exact::FP16.with_gamma(gamma).map(|exact| exact.ppm());
    assert_eq!([ppm(1e-6), ppm(1e-3), ppm(0.25), ppm(0.999_999)], [Ok(1), Ok(1000), Ok(250_000), Ok(999_999)]);
}

/// `docs/specification.md`, section 5.5, first row: no values to decide from.
#[test]
fn zeros_decide_nothing() {
    for values in [vec![], vec![0.0, -0.0, 0.0]] {
        let stats = row(Convention::FP16, 0, Detail::Moments, &values);
        assert_eq!(Exact::FP16.decide(&stats), Err(NoDecision::Empty));
        assert_eq!(Exact::FP16.decide_below(&stats, 5), Err(NoDecision::Empty));
        assert_eq!(Exact::FP16.lower(&stats), Err(NoDecision::Empty));
        assert_eq!(Operand::from_row(&stats), Err(NoDecision::Empty));
        let (paper, authors) = (Paper::new(1e-3).expect("a share"), Authors::new(1e-3).expect("a share"));
        assert_eq!(paper.softmax_cast(&stats), Err(NoDecision::Empty));
        assert_eq!(paper.other_cast(&stats), Err(NoDecision::Empty));
        assert_eq!(authors.softmax_cast(&stats), Err(NoDecision::Empty));
    }
}

/// Second row: NaN or ±∞ among the values, whatever the others; such a tensor is not "all zero".
#[test]
fn values_that_are_not_finite_decide_nothing() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for others in [&[1.0, 1e-6][..], &[0.0], &[]] {
            let stats = row(Convention::FP16, 0, Detail::Moments, &[others, &[bad]].concat());
            let (paper, authors) = (Paper::new(1e-3).expect("a share"), Authors::new(1e-3).expect("a share"));
            assert_eq!(Operand::from_row(&stats), Err(NoDecision::NotFinite));
            assert_eq!(paper.softmax_cast(&stats), Err(NoDecision::NotFinite));
            assert_eq!(paper.other_cast(&stats), Err(NoDecision::NotFinite));
            assert_eq!(authors.softmax_cast(&stats), Err(NoDecision::NotFinite));
            assert_eq!(Exact::FP16.lower(&stats), Err(NoDecision::NotFinite), "{bad} and {others:?}");
            assert_eq!(Exact::FP16.decide(&stats), Err(NoDecision::NotFinite), "{bad} and {others:?}");
        }
    }
}

/// Third row: invalid settings are typed errors.
#[test]
fn impossible_settings_are_typed_errors() {
    for gamma in [0.0, -0.0, 1.0, -1e-3, 2.0, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(Exact::FP16.with_gamma(gamma), Err(ConfigError::Gamma(gamma)));
        assert_eq!(Paper::new(gamma), Err(ConfigError::Gamma(gamma)));
        assert_eq!(Authors::new(gamma), Err(ConfigError::Gamma(gamma)));
    }
    assert!(Exact::FP16.with_gamma(f64::NAN).is_err() && Paper::new(f64::NAN).is_err());
    // Below one part per million only the models have a result.
    for gamma in [9.99e-7, 1e-9, f64::MIN_POSITIVE] {
        assert_eq!(Exact::FP16.with_gamma(gamma), Err(ConfigError::Gamma(gamma)));
        assert!(Paper::new(gamma).is_ok() && Authors::new(gamma).is_ok());
    }
    assert_eq!(Site::new(SiteConfig { interval: 0, ..SiteConfig::exact() }).map(|_| ()), Err(ConfigError::Interval));
    for scale in [1000.0, 0.0, -2.0, 3.0, 65504.0] {
        assert!(exponent_of(scale).is_err());
        assert_eq!(LossScale::fixed(scale), Err(ScheduleError::Scale(scale)));
    }
    assert!(exponent_of(f64::NAN).is_err() && exponent_of(f64::INFINITY).is_err());
    assert_eq!((exponent_of(1.0), exponent_of(pow2(-40)), exponent_of(pow2(32))), (Ok(0), Ok(-40), Ok(32)));
    assert_eq!(Exact::FP16.with_window(31), Err(ConfigError::Window(31)));
    assert_eq!(Exact::FP16.with_headroom(1), Err(ConfigError::Headroom(1)));
}

/// A row without histogram has no γ(k), a row without sums no model.
#[test]
fn too_little_detail_is_said() {
    let light = row(Convention::FP16, 0, Detail::Counts, &[1.0]);
    assert_eq!(Exact::FP16.decide(&light), Err(NoDecision::Detail));
    assert_eq!(Paper::new(1e-3).expect("a share").softmax_cast(&full(0, &[1.0])), Err(NoDecision::Detail));
    assert_eq!(Operand::from_row(&full(0, &[1.0])), Err(NoDecision::Detail));
}
