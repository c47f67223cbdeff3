//! Tests of traces of one cast site, written by hand.
//!
//! Most gradients here have one magnitude 2^m. Such a tensor just survives at α = −m − 24, is at the smallest normal
//! exponent 11 above, and has its ceiling far above that. The exact rule therefore gives α = −m − 13, so all numbers
//! can be computed by hand. `ring.rs` tests the history.

mod common;

use common::{FP16, Fate, full, gradient, pow2, row, site, step, stored};
use gradscale_core::{
    site::{Calls, DECISION_HISTORY_LEN, Memory, Site, SiteConfig, SiteOutcome, SiteState, Trigger, When},
    solve::{Choice, LimitedBy},
    stats::{Convention, Detail, FlushRule, Stats},
    step_outcome::{NonFiniteKind, find_first_non_finite},
};

/// Returns the exponent that the rule gives to such a gradient.
fn alpha_of(m: i32) -> i32 {
    -m - 13
}

fn triggers(site: &Site) -> Vec<Trigger> {
    site.history().map(|decision| decision.trigger).collect()
}

#[test]
fn between_steps_a_row_decides_for_the_next_step() {
    let mut site = site(SiteConfig::exact());
    // The gradient halves in every step, so the exponent shows which step's row decided it.
    let (mut alphas, mut details) = (Vec::new(), Vec::new());
    for t in 1..=25 {
        details.push((t, site.request().at_once, site.request().detail));
        alphas.extend(step(&mut site, &gradient(-30 - t)));
    }
    // Step 1 decides inside the step. The rows of steps 11 and 21, each ten optimizer steps later, decide for the steps
    // after them.
    let want = [[alpha_of(-31); 11].as_slice(), &[alpha_of(-41); 10], &[alpha_of(-51); 4]].concat();
    assert_eq!(alphas, want);
    assert_eq!(want[..12], [18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 18, 28]);
    // Only those three steps need a histogram.
    for (t, at_once, detail) in details {
        assert_eq!(at_once, t == 1, "step {t}");
        assert_eq!(detail, if t % 10 == 1 { Detail::Full } else { Detail::Counts }, "step {t}");
    }
    assert_eq!(triggers(&site), [Trigger::First, Trigger::Interval, Trigger::Interval]);
}

#[test]
fn at_once_a_row_decides_for_its_own_step() {
    let mut site = site(SiteConfig { interval: 3, ..SiteConfig::paper() });
    assert_eq!((site.config().when, SiteConfig::paper().interval), (When::AtOnce, 100));
    let mut trace = Vec::new();
    for t in 1..=8 {
        let request = site.request();
        trace.push((
            request.at_once,
            request.detail == Detail::Moments,
            step(&mut site, &gradient(-30 - t)).expect("decided"),
        ));
    }
    let want = [(true, 18), (false, 18), (false, 18), (true, 21), (false, 21), (false, 21), (true, 24), (false, 24)];
    assert_eq!(trace, want.map(|(decides, alpha)| (decides, decides, alpha)));
}

#[test]
fn a_site_without_state_waits_for_its_first_non_zero_tensor() {
    let mut site = site(SiteConfig::exact());
    // Zero-initialised residual branches give zeros for some steps, perhaps for longer than an interval.
    for _ in 0..13 {
        assert!(site.request().at_once);
        assert_eq!(step(&mut site, &[0.0, -0.0]), None);
    }
    assert_eq!(step(&mut site, &gradient(-20)), Some(7));
    assert_eq!(triggers(&site), [Trigger::First]);
    // From here its interval counts: decided in this step, and again ten steps later.
    let alphas: Vec<_> = (1..=11).map(|_| step(&mut site, &gradient(-30))).collect();
    assert_eq!(alphas, [[Some(7); 10].as_slice(), &[Some(17)]].concat());
}

#[test]
fn rows_that_decide_nothing_leave_the_state() {
    for nothing in [vec![0.0; 4], vec![f32::NAN, 1e-9], vec![f32::INFINITY, 1e-9]] {
        let mut site = site(SiteConfig { interval: 2, ..SiteConfig::exact() });
        assert_eq!(step(&mut site, &gradient(-30)), Some(17));
        step(&mut site, &gradient(-30));
        assert_eq!(site.request().detail, Detail::Full, "the interval is over");
        site.finish(&full(17, &nothing), SiteOutcome::Stepped);
        assert_eq!((site.alpha(), triggers(&site)), (Some(17), vec![Trigger::First]));
        // The next row that can decide does so.
        step(&mut site, &gradient(-40));
        assert_eq!(site.alpha(), Some(27));
    }
}

#[test]
fn an_overflow_hidden_by_a_mask_decides_again_without_a_skip() {
    let start = || {
        let mut site = site(SiteConfig::exact_alone());
        assert_eq!(step(&mut site, &gradient(-30)), Some(17));
        step(&mut site, &gradient(-30));
        site
    };
    // A full row decides: 2^5 · 2^17 overflows, 2^5 · 2^-18 is twice the smallest normal number.
    let mut site = start();
    site.finish(&stored(&gradient(5), 17, Detail::Full), SiteOutcome::Stepped);
    assert_eq!((site.alpha(), site.request().at_once), (Some(-18), false));
    assert_eq!(triggers(&site), [Trigger::First, Trigger::Overflow]);
    // Its interval restarts: the row of the tenth step from that one on is the next to decide.
    for _ in 0..9 {
        assert_eq!(site.request().detail, Detail::Counts);
        step(&mut site, &gradient(5));
    }
    assert_eq!(site.request().detail, Detail::Full);

    // A row without histogram has only amax: the exponent is lowered until six bits are free (2^22 · 2^-7 is the last
    // that fits), and the next row decides.
    let mut site = start();
    site.finish(&stored(&gradient(5), 17, Detail::Counts), SiteOutcome::Stepped);
    assert_eq!((site.alpha(), site.request().at_once), (Some(17 - 7 - 6), false));
    assert_eq!(site.request().detail, Detail::Full);
    step(&mut site, &gradient(5));
    assert_eq!(site.alpha(), Some(-18));
    assert_eq!(triggers(&site), [Trigger::First, Trigger::Overflow, Trigger::Interval]);
}

#[test]
fn at_once_a_hidden_overflow_decides_in_the_next_step() {
    // The paper's models need more than this row; the operands of the next step provide it.
    let mut site = site(SiteConfig::paper());
    assert_eq!(step(&mut site, &gradient(-30)), Some(17));
    site.finish(&stored(&gradient(5), 17, Detail::Counts), SiteOutcome::Stepped);
    assert_eq!((site.alpha(), site.request().at_once), (Some(17), true));
    assert_eq!((step(&mut site, &gradient(5)), site.request().at_once), (Some(-18), false));
}

/// A finite v whose u is ±∞ is counted as ±∞. It is still a site overflow, and if a mask hides it, the site must not
/// keep its exponent forever.
#[test]
fn an_infinite_product_hidden_by_a_mask_does_not_trap_the_site() {
    let mut site = site(SiteConfig::exact());
    assert_eq!(step(&mut site, &gradient(-60)), Some(47));
    // 2^100 is finite, 2^100 · 2^47 is not; the mask never ends.
    for _ in 0..40 {
        step(&mut site, &gradient(100));
    }
    assert_eq!(site.alpha(), Some(alpha_of(100)));
}

/// The same without a mask, at a site that several calls share: it cannot decide inside the step, and its merged row is
/// not finite. The exponent must fall nevertheless, or training is skipped forever.
#[test]
fn an_infinite_product_does_not_trap_a_shared_site() {
    let mut site = site(SiteConfig { calls: Calls::Several, ..SiteConfig::exact() });
    assert_eq!(step(&mut site, &gradient(-60)), Some(47));
    let mut skips = 0;
    while skips < 20 && !site.request().at_once {
        let row = stored(&gradient(100), site.alpha().expect("decided"), Detail::Counts);
        if row.counts().non_finite() == 0 {
            break;
        }
        site.finish(&row, SiteOutcome::Skipped);
        skips += 1;
    }
    assert!(skips < 20, "still at 2^{:?}", site.alpha());
}

#[test]
fn after_a_skip_the_first_overflow_and_what_came_before_decide_from_their_rows() {
    // Backward order. The gradients jump by 2^35; the second site overflows, so the third has no valid gradient.
    let mut sites = [-30, -25, -40].map(|m| {
        let mut site = site(SiteConfig::exact_alone());
        step(&mut site, &gradient(m));
        site
    });
    assert_eq!(sites.each_ref().map(Site::alpha), [Some(17), Some(12), Some(27)]);
    let rows = [
        stored(&gradient(-20), 17, Detail::Counts),
        stored(&gradient(10), 12, Detail::Counts),
        row(Convention::FP16, 27, Detail::Counts, &[f32::INFINITY, f32::NAN]),
    ];
    let first = find_first_non_finite(rows.iter().map(Stats::counts)).expect("an overflow");
    assert_eq!((first.site, first.kind, first.exponent), (1, NonFiniteKind::Overflow, 12));
    for (i, (site, row)) in sites.iter_mut().zip(&rows).enumerate() {
        site.finish(row, if i <= first.site { SiteOutcome::Skipped } else { SiteOutcome::SkippedDownstream });
    }
    // Rows without histogram can only lower exponents: 2^-20 · 2^17 has headroom, 2^10 · 2^12 must be lowered by 7 and
    // 6.
    assert_eq!(sites.each_ref().map(Site::alpha), [Some(17), Some(-1), Some(27)]);
    // All decide inside the next step, each from its own f32 values.
    assert!(sites.iter().all(|site| site.request().at_once));
    let alphas: Vec<_> = sites.iter_mut().zip([-20, 10, -5]).map(|(site, m)| step(site, &gradient(m))).collect();
    assert_eq!(alphas, [Some(7), Some(-23), Some(-8)]);
    assert!(sites.iter().all(|site| !site.request().at_once && triggers(site).last() == Some(&Trigger::AfterSkip)));
}

#[test]
fn a_skipped_step_is_no_step_of_an_interval() {
    let mut site = site(SiteConfig { interval: 3, ..SiteConfig::exact() });
    step(&mut site, &gradient(-30));
    step(&mut site, &gradient(-30));
    let before = site.state();
    site.finish(&full(17, &[f32::NAN]), SiteOutcome::SkippedDownstream);
    assert_eq!(site.state(), SiteState { at_once: true, ..before });
}

#[test]
fn several_calls_share_one_exponent_and_one_row() {
    let mut site = site(SiteConfig { calls: Calls::Several, ..SiteConfig::exact() });
    // The first call of the first step decides inside the step; the later ones of that step do not.
    assert!(site.request().at_once);
    site.decide(site.exact(&full(0, &gradient(-30))), 0);
    assert!(!site.request().at_once);
    let calls = |site: &Site, ms: [i32; 3], detail| {
        let alpha = site.alpha().expect("decided");
        let rows = ms.map(|m| stored(&gradient(m), alpha, detail));
        rows[0].merge(&rows[1]).expect("of one kind").merge(&rows[2]).expect("of one kind")
    };
    // Ten steps of three calls are ten steps.
    for t in 1..=10 {
        assert_eq!(site.request().detail, Detail::Counts, "step {t}");
        site.finish(&calls(&site, [-30, -32, -28], Detail::Counts), SiteOutcome::Stepped);
        assert_eq!(site.alpha(), Some(17));
    }
    assert_eq!(site.request().detail, Detail::Full);
    site.finish(&calls(&site, [-30, -32, -28], Detail::Full), SiteOutcome::Stepped);
    assert_eq!(site.alpha(), Some(alpha_of(-32)), "the smallest of the three calls needs most");
    // After a skip the merged row decides, and nothing is decided inside a step.
    site.finish(&calls(&site, [0, -2, 5], Detail::Full), SiteOutcome::Skipped);
    assert_eq!((site.alpha(), site.request().at_once), (Some(alpha_of(-2)), false));
    site.finish(&calls(&site, [0, -2, 5], Detail::Counts), SiteOutcome::SkippedDownstream);
    assert_eq!((site.alpha(), site.request().at_once), (Some(alpha_of(-2)), false));
}

#[test]
fn the_amax_history_remembers_sixteen_steps() {
    let config = SiteConfig { interval: 1, memory: Memory::Least, ..SiteConfig::exact() };
    let mut site = site(config);
    let mut plain = Site::new(SiteConfig { memory: Memory::None, ..config }).expect("an interval");
    let quiet = vec![2f32.powi(-10); 2000];
    let spike = [quiet.clone(), vec![65536.0]].concat();
    let (mut alphas, mut plains) = (Vec::new(), Vec::new());
    for t in 1..=22 {
        let values = if t == 3 { &spike } else { &quiet };
        alphas.push(step(&mut site, values));
        plains.push(step(&mut plain, values));
    }
    // 2^-10 alone gets −3. 2^16 overflows from α = 0 on, so six free bits below −1 give −7. With a history it is −7 in
    // the spike's step and fifteen more, each deciding for the next; without one only once.
    assert_eq!(alphas, [[Some(-3); 3].as_slice(), &[Some(-7); 16], &[Some(-3); 3]].concat());
    assert_eq!(plains, [[Some(-3); 3].as_slice(), &[Some(-7)], &[Some(-3); 18]].concat());
}

#[test]
fn the_history_tells_why() {
    let mut site = site(SiteConfig { interval: 1, ..SiteConfig::exact() });
    for t in 0..20 {
        step(&mut site, &gradient(-30 - t));
    }
    let history: Vec<_> = site.history().copied().collect();
    assert_eq!(history.len(), DECISION_HISTORY_LEN);
    let last = history.last().expect("decided");
    assert_eq!((last.before, last.alpha, last.trigger), (Some(alpha_of(-48)), alpha_of(-49), Trigger::Interval));
    assert_eq!(last.choice, Choice { k: 1, held: LimitedBy::NormalRange, gamma: 0.0 });
    assert_eq!(last.to_string(), "2^35 → 2^36 (interval; bound by normal range; γ 0.0e0)");
    // The result of the store is as predicted.
    assert_eq!(FP16.fate(FlushRule::Nearest, pow2(-49) * pow2(last.alpha)), Fate::Normal);
}
