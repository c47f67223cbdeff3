//! Tests of a site's history by hand: headroom, lift, guard, and batches that are repeated, skipped or lost.
//!
//! A gradient of magnitude 2^m overflows above the exponent 15 − m, its ceiling; alone it gets the exponent −m − 13.

mod common;

use common::{full, gradient, site, stored};
use gradscale_core::{
    site::{Calls, GUARD_STEPS, MAX_CEILING_SPREAD, MAX_GUARD_STEPS, Site, SiteConfig, SiteOutcome, Trigger},
    solve::ConfigError,
    stats::{Detail, Stats},
};

/// Runs a step with repeats, and returns the exponent of the store and the number of repeats.
fn train(site: &mut Site, values: &[f32]) -> (i32, u32) {
    for failed in 0.. {
        if site.request().at_once {
            site.decide(site.exact(&full(0, values)), 0);
        }
        let alpha = site.alpha().expect("decided");
        let row = stored(values, alpha, site.request().detail);
        if row.counts().overflowed == 0 && row.counts().non_finite() == 0 {
            site.finish(&row, SiteOutcome::Stepped);
            return (alpha, failed);
        }
        assert!(failed < 4, "it never fits");
        site.repeat(&row);
    }
    unreachable!("an attempt fits")
}

/// Returns values from 2^m down to 2^(m − span), nearly all of them at the lower end.
fn between(m: i32, span: i32) -> Vec<f32> {
    [vec![2f32.powi(m)], vec![2f32.powi(m - span); 99]].concat()
}

/// Returns values with such a range that the headroom decides: the exponent is the ceiling minus the headroom.
fn wide(m: i32) -> Vec<f32> {
    between(m, 28)
}

fn every_step() -> Site {
    site(SiteConfig { interval: 1, ..SiteConfig::exact() })
}

#[test]
fn the_room_follows_how_much_the_maxima_move() {
    let mut site = every_step();
    let alphas: Vec<i32> = (0..8).map(|_| train(&mut site, &wide(0)).0).collect();
    // Six bits until the history has three rows; their ceilings do not move, so two bits are enough.
    assert_eq!(alphas, [9, 9, 9, 9, 13, 13, 13, 13]);
    // Ceilings move by three bits, 15 and 18: five bits below the lower one, for all of them.
    for t in 0..40 {
        let (alpha, repeats) = train(&mut site, &wide(if t % 3 == 0 { 0 } else { -3 }));
        assert_eq!(repeats, 0);
        assert!(t < 2 || alpha == 10, "step {t}: {alpha}");
    }
    // Ceilings move by ten bits: never more than six bits of headroom.
    let mut site = every_step();
    for t in 0..40 {
        let (alpha, _) = train(&mut site, &between(if t % 3 == 0 { 0 } else { -10 }, 20));
        assert!(t < 3 || alpha == 9, "step {t}: {alpha}");
    }
    // The caller's setting is the maximum headroom.
    let exact = SiteConfig::exact().exact.with_headroom(3).expect("in range");
    let mut site = common::site(SiteConfig { exact, interval: 1, ..SiteConfig::exact() });
    for t in 0..40 {
        let (alpha, _) = train(&mut site, &between(if t % 3 == 0 { 0 } else { -10 }, 20));
        assert!(t < 3 || alpha == 12, "step {t}: {alpha}");
    }
}

#[test]
fn a_large_batch_is_lifted_to_where_the_small_ones_need_it() {
    let mut site = every_step();
    for _ in 0..5 {
        assert_eq!(train(&mut site, &gradient(-20)), (7, 0));
    }
    // Alone it would get −3, where the small ones are subnormal.
    for _ in 0..10 {
        assert_eq!(train(&mut site, &gradient(-10)), (7, 0));
        assert_eq!(train(&mut site, &gradient(-20)), (7, 0));
    }
}

#[test]
fn a_large_batch_is_repeated_and_then_remembered() {
    let mut site = site(SiteConfig::exact());
    for _ in 0..11 {
        train(&mut site, &between(-20, 20));
    }
    // Eleven exponents above the smallest at which nothing flushes; at 33 two bits would be free.
    assert_eq!(site.alpha(), Some(27));
    // Larger by 2^9: six bits below its own ceiling of 26, at which the others are served too.
    assert_eq!(train(&mut site, &between(-11, 20)), (20, 1));
    assert_eq!(site.history().last().map(|decision| decision.trigger), Some(Trigger::Repeat));
    for _ in 0..12 {
        assert_eq!(train(&mut site, &between(-20, 20)), (20, 0));
        assert_eq!(train(&mut site, &between(-11, 20)), (20, 0));
    }
}

/// A batch that FP16 cannot serve together with the others gets its own exponent each time, and changes nothing else.
#[test]
fn what_lies_too_far_above_is_repeated_alone() {
    let mut site = site(SiteConfig::exact());
    for _ in 0..20 {
        train(&mut site, &gradient(-60));
    }
    let before = site.state();
    assert_eq!(before.alpha, Some(47));
    for _ in 0..4 {
        // Ceiling 15, compared with 75.
        assert_eq!(train(&mut site, &gradient(0)), (-13, 1));
        assert_eq!(site.alpha(), before.alpha);
        assert_eq!(train(&mut site, &gradient(-60)), (47, 0));
        assert_eq!(train(&mut site, &gradient(-60)), (47, 0));
    }
    // From one step on all batches are this large: they set the exponent as soon as they are the majority of the
    // history.
    let repeats: Vec<u32> = (0..20).map(|_| train(&mut site, &gradient(0)).1).collect();
    let last = repeats.iter().rposition(|&repeats| repeats > 0).expect("some");
    // The history has four equally large rows: with four more, and the next, they are the majority.
    assert_eq!((last, repeats.iter().sum()), (4, 5), "{repeats:?}");
    assert_eq!(site.alpha(), Some(-13));
    // And back: flushed values are detected at once, and each batch is served from the second on.
    let alphas: Vec<i32> = (0..20).map(|_| train(&mut site, &gradient(-60)).0).collect();
    assert_eq!(alphas, [vec![-13], vec![47; 19]].concat());
}

/// If there are as many large batches as small ones, the small ones are served, because flushed values cannot be
/// recovered.
#[test]
fn of_as_many_the_smaller_are_served() {
    let mut site = site(SiteConfig::exact());
    for _ in 0..2 {
        train(&mut site, &gradient(-60));
    }
    assert_eq!(site.alpha(), Some(47));
    for _ in 0..2 {
        assert_eq!(train(&mut site, &gradient(0)), (-13, 1));
        assert_eq!(site.alpha(), Some(47));
    }
    // With a third one they are the majority.
    assert_eq!(train(&mut site, &gradient(0)), (-13, 1));
    assert_eq!(site.alpha(), Some(-13));
}

#[test]
fn nothing_is_learnt_from_what_no_exponent_mends() {
    for failed in [false, true] {
        let mut site = site(SiteConfig::exact());
        for _ in 0..3 {
            train(&mut site, &gradient(-30));
        }
        let before = site.state();
        let row = full(17, &[f32::NAN, 1.0]);
        if failed {
            site.repeat(&row);
            assert!(site.request().at_once);
            site.decide(site.exact(&full(0, &gradient(-5))), 0);
            assert_ne!(site.alpha(), before.alpha);
        }
        site.finish(&row, SiteOutcome::RolledBack);
        assert_eq!(site.state(), before);
    }
}

#[test]
fn batches_far_above_can_be_left_out() {
    let config = SiteConfig { outliers: Some(24), ..SiteConfig::exact() };
    let mut site = site(config);
    let row = |site: &Site, m: i32| stored(&gradient(m), site.alpha().expect("decided"), Detail::Counts);
    for _ in 0..2 {
        train(&mut site, &gradient(-30));
        assert!(!site.is_outlier(&row(&site, 60)), "too few rows to tell");
    }
    for _ in 0..9 {
        train(&mut site, &gradient(-30));
    }
    // Ceiling 45. The exponent is at least 21, so that everything further above overflows.
    assert_eq!(site.alpha(), Some(21));
    for (m, outlier) in [(-6, false), (-5, true), (60, true)] {
        let row = row(&site, m);
        assert_eq!(
            (row.counts().overflowed > 0 || row.counts().infinite > 0, site.is_outlier(&row)),
            (outlier, outlier)
        );
    }
    // Without the option no batch is skipped.
    let mut site = common::site(SiteConfig::exact());
    for _ in 0..9 {
        train(&mut site, &gradient(-30));
    }
    assert!(!site.is_outlier(&stored(&gradient(60), 17, Detail::Counts)));
    for bits in [7, 101, -3] {
        let config = SiteConfig { outliers: Some(bits), ..SiteConfig::exact() };
        assert_eq!(Site::new(config).map(|_| ()), Err(ConfigError::Outliers(bits)));
    }
}

/// A cell that is called repeatedly, with a larger gradient each time. The site stores all calls at one exponent, which
/// the first call decides in an attempt, and an overflow is ∞ for the calls after it.
#[test]
fn a_shared_site_fits_after_three_repeats_at_most() {
    for growth in 0..=6 {
        let calls: Vec<i32> = (0..10).map(|call| -40 + growth * call).collect();
        let mut site = site(SiteConfig { calls: Calls::Several, ..SiteConfig::exact() });
        let mut repeats = 0;
        loop {
            if site.request().at_once {
                site.decide(site.exact(&full(0, &gradient(calls[0]))), 0);
            }
            let alpha = site.alpha().expect("decided");
            let mut seen = Stats::new(gradscale_core::stats::Convention::FP16, alpha, site.request().detail);
            let mut lost = false;
            for &m in &calls {
                let row = stored(&if lost { vec![f32::INFINITY] } else { gradient(m) }, alpha, seen.detail());
                lost |= row.counts().overflowed > 0;
                seen = seen.merge(&row).expect("of one kind");
            }
            if !lost {
                site.finish(&seen, SiteOutcome::Stepped);
                break;
            }
            site.repeat(&seen);
            repeats += 1;
        }
        println!("growth 2^{growth}: {repeats} repeats, then 2^{:?}", site.alpha());
        assert!(repeats <= 3, "growth {growth}: {repeats}");
        assert_eq!(repeats > 0, growth > 3, "growth {growth}");
    }
}

/// A runtime that cannot repeat: a batch that overflows is lost.
fn lossy(site: &mut Site, values: &[f32]) -> bool {
    if site.request().at_once {
        site.decide(site.exact(&full(0, values)), 0);
    }
    let row = stored(values, site.alpha().expect("decided"), site.request().detail);
    let lost = row.counts().overflowed > 0;
    site.finish(&row, if lost { SiteOutcome::Skipped } else { SiteOutcome::Stepped });
    lost
}

#[test]
fn a_guard_remembers_what_was_lost() {
    let mut site = site(SiteConfig::exact());
    let small = |site: &mut Site, steps: u32| (0..steps).filter(|_| lossy(site, &wide(-20))).count();
    assert_eq!(small(&mut site, 20), 0);
    assert_eq!(site.alpha(), Some(33), "two bits below 35");
    // Larger by 2^10: lost once.
    assert!(lossy(&mut site, &wide(-10)));
    let guard = site.state().guard;
    assert_eq!((guard.limit, guard.remaining_steps, guard.duration_steps), (23, GUARD_STEPS, GUARD_STEPS));
    // The ring forgets it after 16 steps, the guard does not.
    assert_eq!(small(&mut site, 200), 0);
    assert!(site.alpha() <= Some(25), "{:?}", site.alpha());
    assert!(!lossy(&mut site, &wide(-10)));
    assert_eq!(site.state().guard.remaining_steps, GUARD_STEPS, "renewed");
    assert_eq!(small(&mut site, GUARD_STEPS + 20), 0);
    assert_eq!((site.state().guard.remaining_steps, site.alpha()), (0, Some(33)), "over");
    // It returns, and the guard lasts twice as long.
    assert!(lossy(&mut site, &wide(-10)));
    assert_eq!(site.state().guard.remaining_steps, 2 * GUARD_STEPS);
    for _ in 0..12 {
        let lasts = site.state().guard.duration_steps;
        small(&mut site, lasts + 20);
        assert!(lossy(&mut site, &wide(-10)));
    }
    assert_eq!(site.state().guard.duration_steps, MAX_GUARD_STEPS);
}

/// Blocks longer than the ring: it is full of large rows, then of small ones. The guard ends by age alone, so one block
/// costs a batch, and no other does.
#[test]
fn blocks_longer_than_the_ring_cost_one_batch() {
    let mut site = site(SiteConfig::exact());
    let lost: usize = (0..40)
        .flat_map(|block| (0..24).map(move |_| if block % 2 == 0 { -20 } else { -10 }))
        .map(|m| usize::from(lossy(&mut site, &wide(m))))
        .sum();
    assert_eq!(lost, 1);
    // Without the guard, one batch in every block.
    let mut site = common::site(SiteConfig::exact_alone());
    let lost: usize = (0..40)
        .flat_map(|block| (0..24).map(move |_| if block % 2 == 0 { -20 } else { -10 }))
        .map(|m| usize::from(lossy(&mut site, &wide(m))))
        .sum();
    assert_eq!(lost, 20);
}

/// Sites downstream of the overflow observe ∞; they learn from the excess of the batch.
#[test]
fn sites_behind_learn_from_the_excess() {
    let start = || {
        let mut site = site(SiteConfig::exact());
        (0..5).for_each(|_| assert!(!lossy(&mut site, &wide(-20))));
        site
    };
    let (blamed, mut behind) = (start(), start());
    let excess = blamed.bits_above_history(&stored(&wide(-10), 29, Detail::Counts));
    assert_eq!(excess, 10);
    assert_eq!(blamed.bits_above_history(&stored(&wide(-25), 29, Detail::Counts)), 0);
    behind.limit_from_upstream(excess);
    behind.finish(&full(29, &[f32::INFINITY]), SiteOutcome::SkippedDownstream);
    assert_eq!(behind.state().guard.limit, 35 - 10 - 2);
    for _ in 0..100 {
        assert!(!lossy(&mut behind, &wide(-20)));
    }
    assert!(!lossy(&mut behind, &wide(-10)));
    // An excess beyond the range that FP16 serves teaches nothing; neither does no excess.
    for nothing in [0, -1, MAX_CEILING_SPREAD + 1, i64::MAX, i64::MIN] {
        let mut site = start();
        site.limit_from_upstream(nothing);
        assert_eq!(site.state().guard.remaining_steps, 0);
    }
}
