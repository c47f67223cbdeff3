//! Tests of per-tensor scales from largest magnitudes against the recipe of Transformer Engine, computed in f64: scale
//! = 2^(⌊log2(65504 / max(history))⌋ − margin), unchanged after a row of zeros or one that is not finite.

mod common;

use common::{FP16, Fate, cases, full, narrow, pow2, row};
use gradscale_core::{
    site::{Calls, Memory, Site, SiteConfig, SiteOutcome, Trigger},
    solve::{Amax, ConfigError, LimitedBy, NoDecision},
    stats::{Convention, Detail, FlushRule, Stats},
};
use proptest::{collection::vec, prelude::*};

fn site(history: u32, margin: u32) -> Site {
    let amax = Amax::new(history, margin).expect("numbers in their ranges");
    Site::new(SiteConfig::amax(amax)).expect("a site")
}

/// Returns the row of a step whose largest true magnitude is `amax`, as the site stores it.
fn seen(site: &Site, amax: f64) -> Stats {
    let alpha = site.alpha().unwrap_or(0);
    row(Convention::FP16, alpha, Detail::Counts, &[narrow(amax * pow2(alpha)), 0.0])
}

/// Returns the largest exponent at which none of these magnitudes overflows, minus the margin.
fn recipe(history: &[f64], margin: u32) -> i32 {
    let largest = history.iter().copied().fold(0.0, f64::max);
    let fits = |k: i32| FP16.fate(FlushRule::Nearest, largest * pow2(k)) != Fate::Overflowed;
    let k = (-150..100).rev().find(|&k| fits(k)).expect("some exponent fits");
    k - i32::try_from(margin).expect("a small number")
}

proptest! {
    #![proptest_config(cases(256))]

    /// Delayed scaling: the exponent of each step is that of the largest of the `history` finite rows before it.
    #[test]
    fn delayed_scaling_is_the_recipe(
        history in 1..=16u32, margin in 0..=4u32, steps in vec((-30..30i32, 1.0..2.0f64, 0..8u8), 1..60),
    ) {
        let mut site = site(history, margin);
        let mut known: Vec<f64> = Vec::new();
        for (exponent, digits, kind) in steps {
            prop_assert!(!site.request().at_once, "no step waits for a decision");
            let amax = f64::from(narrow(digits * pow2(exponent)));
            let before = site.alpha();
            match kind {
                0 => site.finish(&full(before.unwrap_or(0), &[0.0, 0.0]), SiteOutcome::Stepped),
                1 => site.finish(&full(before.unwrap_or(0), &[f32::NAN, 1.0]), SiteOutcome::Skipped),
                2 => site.finish(&full(before.unwrap_or(0), &[f32::INFINITY, 1.0]), SiteOutcome::SkippedDownstream),
                _ => {
                    let row = seen(&site, amax);
                    let overflowed = row.counts().overflowed != 0;
                    known.push(amax);
                    site.finish(&row, if overflowed { SiteOutcome::Skipped } else { SiteOutcome::Stepped });
                    let last = &known[known.len().saturating_sub(history as usize)..];
                    prop_assert_eq!(site.alpha(), Some(recipe(last, margin)));
                    continue;
                }
            }
            prop_assert_eq!(site.alpha(), before, "zeros and rows that are not finite change nothing");
        }
    }

    /// Current scaling: a tensor is stored at the exponent of its own maximum, and never overflows.
    #[test]
    fn current_scaling_never_overflows(margin in 0..=4u32, steps in vec((-40..40i32, 1.0..2.0f64), 1..40)) {
        let mut site = site(0, margin);
        for (exponent, digits) in steps {
            let amax = f64::from(narrow(digits * pow2(exponent)));
            prop_assert!(site.request().at_once);
            let probe = full(0, &[narrow(amax), narrow(-amax / 8.0)]);
            let alpha = site.decide(site.exact(&probe), 0).expect("a decision");
            prop_assert_eq!(alpha, recipe(&[amax], margin));
            let stored = seen(&site, amax);
            prop_assert_eq!(stored.counts().overflowed, 0);
            prop_assert_eq!(stored.headroom_above(), Some(i32::try_from(margin).expect("small")));
            site.finish(&stored, SiteOutcome::Stepped);
        }
    }

    /// A site that is saved at any point, as state or as words, continues unchanged.
    #[test]
    fn a_saved_history_goes_on(
        history in 0..=16u32, margin in 0..=30u32, several in any::<bool>(), steps in vec(-20..20i32, 1..40),
    ) {
        let calls = if several { Calls::Several } else { Calls::One };
        let amax = Amax::new(history, margin).expect("numbers in their ranges");
        let config = SiteConfig { calls, ..SiteConfig::amax(amax) };
        let (mut through, mut saved) = (common::site(config), common::site(config));
        for exponent in steps {
            let mut next = common::site(config);
            next.restore(&saved.state());
            saved = Site::from_words(&next.to_words()).expect("its own words");
            prop_assert_eq!(saved.config(), through.config());
            prop_assert_eq!(saved.request(), through.request());
            for site in [&mut through, &mut saved] {
                if site.request().at_once {
                    site.decide(site.exact(&full(0, &[narrow(pow2(exponent))])), 0);
                }
                let row = seen(site, pow2(exponent));
                site.finish(&row, SiteOutcome::Stepped);
            }
            prop_assert_eq!((saved.alpha(), saved.state()), (through.alpha(), through.state()));
        }
    }
}

/// Delayed scaling starts at 2^0 and is one step late: a batch that is 2^10 times larger is lost, the next is not.
#[test]
fn an_overflow_costs_one_batch() {
    let mut site = site(16, 0);
    assert_eq!((site.alpha(), site.request().at_once, site.request().detail), (None, false, Detail::Counts));
    site.finish(&seen(&site, 1.0), SiteOutcome::Stepped);
    assert_eq!(site.alpha(), Some(15));
    let large = seen(&site, 1024.0);
    assert_eq!(large.counts().overflowed, 1);
    site.finish(&large, SiteOutcome::Skipped);
    assert_eq!(site.alpha(), Some(5));
    assert_eq!(seen(&site, 1024.0).counts().overflowed, 0);
    let last = site.history().last().copied().expect("a decision");
    assert_eq!((last.trigger, last.choice.held, last.before), (Trigger::Overflow, LimitedBy::Amax, Some(15)));
    // The exponent returns after sixteen more rows have replaced the large one.
    for step in 1..=16 {
        assert_eq!(site.alpha(), Some(5), "step {step}");
        site.finish(&seen(&site, 1.0), SiteOutcome::Stepped);
    }
    assert_eq!(site.alpha(), Some(15));
    assert!(!site.config().repeats());
}

/// The first of several calls decides inside the step only in the first step; after that the merged row of the last
/// step decides.
#[test]
fn several_calls_share_the_exponent_of_the_last_step() {
    let config = SiteConfig { calls: Calls::Several, ..SiteConfig::amax(Amax::new(0, 0).expect("an amax")) };
    let mut site = common::site(config);
    assert!(site.request().at_once);
    assert_eq!(site.decide(site.exact(&full(0, &[1.0])), 0), Some(15));
    assert!(!site.request().at_once);
    site.finish(&seen(&site, 2.0), SiteOutcome::Skipped);
    assert_eq!((site.alpha(), site.request().at_once), (Some(14), false));
}

#[test]
fn numbers_that_make_no_rule() {
    assert_eq!(Amax::new(17, 0), Err(ConfigError::History(17)));
    assert_eq!(Amax::new(16, 31), Err(ConfigError::Margin(31)));
    let amax = SiteConfig::amax(Amax::new(16, 30).expect("the limits"));
    assert!(Site::new(amax).is_ok());
    for wrong in [
        SiteConfig { memory: Memory::Ring, ..amax },
        SiteConfig { outliers: Some(24), ..amax },
        SiteConfig { when: SiteConfig::paper().when, ..amax },
    ] {
        assert_eq!(Site::new(wrong).map(|_| ()), Err(ConfigError::Amax));
    }
    let site = site(0, 0);
    assert_eq!(site.exact(&full(0, &[0.0])), Err(NoDecision::Empty));
    assert_eq!(site.exact(&full(0, &[f32::NAN])), Err(NoDecision::NotFinite));
}
