//! Property of a rule that repeats, under any history: every finite batch is applied after at most one repeat (for a
//! site that several calls share, three), independent of the scale of the loss.

mod common;

use common::{cases, full, gradient, site, stored};
use gradscale_core::{
    site::{Calls, Site, SiteConfig, SiteOutcome},
    stats::{Convention, Stats},
};
use proptest::{collection::vec, prelude::*};

/// Gradient of a batch at a site.
#[derive(Clone, Debug)]
enum Batch {
    /// Only zeros: masked.
    Zeros,
    /// Values from 2^most down to 2^(most − span).
    Values { most: i32, span: i32 },
    /// Skipped for a reason that no exponent cures.
    NotFinite,
}

fn batch() -> impl Strategy<Value = Batch> {
    // Most batches are of one kind, some are any values that f32 can represent.
    prop_oneof![
        6 => (-30..-20, 0..30).prop_map(|(most, span)| Batch::Values { most, span }),
        4 => (-60..60, 0..25).prop_map(|(most, span)| Batch::Values { most, span }),
        1 => Just(Batch::Zeros),
        1 => Just(Batch::NotFinite),
    ]
}

impl Batch {
    /// Returns the values times 2^shift.
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

/// Result of a step: number of failed attempts, exponent of the store, exponent for the next step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    repeats: u32,
    stored: i32,
    next: i32,
}

/// Runs a step as the engine does.
fn step(site: &mut Site, batch: &Batch, shift: i32) -> Result<Step, TestCaseError> {
    let values = batch.values(shift);
    for repeats in 0..=1 {
        if site.request().at_once {
            site.decide(site.exact(&full(0, &values)), 0);
        }
        let alpha = site.alpha().unwrap_or(0);
        let row = stored(&values, alpha, site.request().detail);
        if row.counts().non_finite() == 0 && row.counts().overflowed == 0 {
            site.finish(&row, SiteOutcome::Stepped);
        } else if repeats == 0 {
            // Values that are not finite are repeated too, because too large a factor can cause them.
            site.repeat(&row);
            continue;
        } else if matches!(batch, Batch::NotFinite) {
            site.finish(&row, SiteOutcome::RolledBack);
        } else {
            break;
        }
        return Ok(Step { repeats, stored: alpha, next: site.alpha().unwrap_or(0) });
    }
    Err(TestCaseError::fail(format!("{batch:?} overflowed when it was repeated")))
}

proptest! {
    #![proptest_config(cases(256))]

    /// One repeat is enough, whatever the history.
    #[test]
    fn a_repeat_needs_no_second_one(
        interval in 1..12u32, room in 2..8i32, window in 0..30i32, outliers in any::<bool>(), batches in vec(batch(), 1..60),
    ) {
        let exact = SiteConfig::exact().exact.with_headroom(room).expect("in range").with_window(window).expect("in range");
        // Skipped outliers are the caller's decision; here there are none.
        let outliers = outliers.then_some(24);
        let mut site = site(SiteConfig { interval, exact, outliers, ..SiteConfig::exact() });
        for batch in &batches {
            step(&mut site, batch, 0)?;
        }
    }

    /// Gradients 2^shift times as large: exponents lower by exactly that, and the same repeats.
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

    /// A cell that is called repeatedly: three repeats bring all calls into range, from any history, if a gradient
    /// grows by at most 2^6 from call to call.
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

/// Runs all calls of a batch at one exponent and returns the merged row if something overflowed. All values downstream
/// of an overflow are ∞.
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
    site.finish(&seen, SiteOutcome::Stepped);
    None
}
