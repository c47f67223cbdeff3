//! The promise of a rule that repeats, under any history: every finite batch is stepped, after one repeat at most (of a
//! site that several calls share: three), and it does not matter how large the loss is.

mod common;

use common::{cases, full, gradient, site, stored};
use gradscale_core::{
    site::{Calls, Site, SiteConfig, StepEnd},
    stats::{Convention, Stats},
};
use proptest::{collection::vec, prelude::*};

/// A batch's gradient at a site.
#[derive(Clone, Debug)]
enum Batch {
    /// Nothing but zeros: masked.
    Zeros,
    /// From 2^most down to 2^(most − span).
    Values { most: i32, span: i32 },
    /// Left out, for a reason that no exponent mends.
    NotFinite,
}

fn batch() -> impl Strategy<Value = Batch> {
    // Most are of a kind, some are anything that f32 holds.
    prop_oneof![
        6 => (-30..-20, 0..30).prop_map(|(most, span)| Batch::Values { most, span }),
        4 => (-60..60, 0..25).prop_map(|(most, span)| Batch::Values { most, span }),
        1 => Just(Batch::Zeros),
        1 => Just(Batch::NotFinite),
    ]
}

impl Batch {
    /// Times 2^shift.
    fn values(&self, shift: i32) -> Vec<f32> {
        match *self {
            Self::Zeros => vec![0.0, -0.0],
            Self::Values { most, span } => {
                let low = 2f32.powi(most + shift - span);
                [vec![1.9 * 2f32.powi(most + shift), -low], vec![low; 60]].concat()
            }
            Self::NotFinite => vec![f32::NAN, 1.0],
        }
    }
}

/// What became of a step: attempts that failed, the exponent at which it was stored, the one for the next.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    repeats: u32,
    stored: i32,
    next: i32,
}

/// A step as the engine takes it.
fn step(site: &mut Site, batch: &Batch, shift: i32) -> Result<Step, TestCaseError> {
    let values = batch.values(shift);
    for repeats in 0..=1 {
        if site.request().at_once {
            site.decide(site.exact(&full(0, &values)), 0);
        }
        let alpha = site.alpha().unwrap_or(0);
        let row = stored(&values, alpha, site.request().detail);
        if row.counts().non_finite() == 0 && row.counts().overflowed == 0 {
            site.finish(&row, StepEnd::Stepped);
        } else if repeats == 0 {
            // Also what is not finite: too large a factor can make that.
            site.repeat(&row);
            continue;
        } else if matches!(batch, Batch::NotFinite) {
            site.finish(&row, StepEnd::Void);
        } else {
            break;
        }
        return Ok(Step { repeats, stored: alpha, next: site.alpha().unwrap_or(0) });
    }
    Err(TestCaseError::fail(format!("{batch:?} overflowed when it was repeated")))
}

proptest! {
    #![proptest_config(cases(256))]

    /// One repeat is enough, whatever came before.
    #[test]
    fn a_repeat_needs_no_second_one(
        interval in 1..12u32, room in 2..8i32, window in 0..30i32, outliers in any::<bool>(), batches in vec(batch(), 1..60),
    ) {
        let exact = SiteConfig::exact().exact.with_room(room).expect("in range").with_window(window).expect("in range");
        // Left-out batches are the caller's decision; here none is.
        let outliers = outliers.then_some(24);
        let mut site = site(SiteConfig { interval, exact, outliers, ..SiteConfig::exact() });
        for batch in &batches {
            step(&mut site, batch, 0)?;
        }
    }

    /// Gradients 2^shift times as large: exponents lower by just that, and the same repeats.
    #[test]
    fn repeats_are_the_same_at_any_scale(
        interval in 1..12u32, shift in -30..30i32, batches in vec(batch(), 1..60),
    ) {
        let config = SiteConfig { interval, ..SiteConfig::exact() };
        let (mut one, mut other) = (site(config), site(config));
        let mut decided = false;
        for batch in &batches {
            let (here, there) = (step(&mut one, batch, 0)?, step(&mut other, batch, shift)?);
            decided |= matches!(batch, Batch::Values { .. });
            if decided {
                let Step { repeats, stored, next } = here;
                prop_assert_eq!(there, Step { repeats, stored: stored - shift, next: next - shift });
            }
        }
    }

    /// A cell that is called again and again: three repeats bring all calls into range, from any history, as long as a
    /// gradient grows by no more than 2^6 from call to call.
    #[test]
    fn calls_that_share_a_site_fit_after_three(
        before in vec(-60..20i32, 0..20), first in -60..-40i32, growth in vec(-6..=6i32, 1..12),
    ) {
        let mut site = site(SiteConfig { calls: Calls::Several, ..SiteConfig::exact() });
        let mut batches: Vec<Vec<i32>> = before.iter().map(|&m| vec![m, m - 1, m]).collect();
        batches.push(growth.iter().scan(first, |m, by| { *m += by; Some(*m) }).collect());
        for calls in &batches {
            let mut repeats = 0;
            while let Some(row) = attempt(&mut site, calls) {
                site.repeat(&row);
                repeats += 1;
                prop_assert!(repeats <= 3, "{:?}", calls);
            }
        }
    }
}

/// All calls of a batch at one exponent; the merged row, if something overflowed. What comes behind that is ∞.
fn attempt(site: &mut Site, calls: &[i32]) -> Option<Stats> {
    if site.request().at_once {
        site.decide(site.exact(&full(0, &gradient(calls[0]))), 0);
    }
    let alpha = site.alpha().unwrap_or(0);
    let mut seen = Stats::new(Convention::FP16, alpha, site.request().detail);
    for &m in calls {
        let lost = seen.counts().overflowed > 0;
        let row = stored(&if lost { vec![f32::INFINITY] } else { gradient(m) }, alpha, seen.detail());
        seen = seen.merge(&row).expect("of one kind");
    }
    if seen.counts().overflowed > 0 {
        return Some(seen);
    }
    site.finish(&seen, StepEnd::Stepped);
    None
}
