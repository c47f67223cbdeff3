//! Tests of the statements of `docs/guide/control.md` as properties, each under exactly its conditions, and of their
//! opposite just outside of these.

mod common;

use common::{SplitMix64, cases, full, site, stored};
use gradscale_core::{
    loss_scale::{Bounds, Dynamic, DynamicConfig},
    site::{Calls, Site, SiteConfig, SiteOutcome, SiteState},
    stats::Stats,
    step_outcome::{self, FirstNonFinite},
};
use proptest::{collection::vec, prelude::*};

/// Batch under one dynamic loss scale: the largest exponent at which its gradients are finite; `None` if there is none.
type Batch = Option<i32>;

fn dynamic(start: i32, interval: u32) -> Dynamic {
    // The maximum range of a scale, so that no statement holds because of a bound.
    let bounds = Bounds::new(-126, 126).expect("limits");
    Dynamic::new(DynamicConfig { start, interval, bounds, ..DynamicConfig::default() }).expect("a schedule")
}

/// Returns true if the batch is applied.
fn take(scale: &mut Dynamic, batch: Batch) -> bool {
    let fits = batch.is_some_and(|ceiling| scale.exponent() <= ceiling);
    scale.update(!fits);
    fits
}

/// Returns the number of whole growth intervals that fit into each of these gaps.
fn whole_intervals(gaps: &[u32], interval: u32) -> i32 {
    gaps.iter().map(|gap| i32::try_from(gap / interval).expect("few")).sum()
}

proptest! {
    #![proptest_config(cases(256))]

    /// Statement 1: for any finite batches, the exponent is at most its start, minus the batches that are not finite,
    /// plus the whole intervals that fit between them. If every finite batch fits, it is equal.
    #[test]
    fn a_scale_is_bounded_by_what_fits_between_bad_batches(
        start in -20..20i32, interval in 2..30u32, gaps in vec((0..30u32, any::<u64>()), 1..7), all_fit in any::<bool>(),
    ) {
        let mut scale = dynamic(start, interval);
        let mut before = Vec::new();
        for (bad, &(gap, seed)) in (0i32..).zip(&gaps) {
            let mut random = SplitMix64(seed);
            for _ in 0..gap {
                let ceiling = i32::try_from(random.below(60)).expect("small") - 30;
                take(&mut scale, Some(if all_fit { 126 } else { ceiling }));
            }
            before.push(gap);
            let bound = start - bad + whole_intervals(&before, interval);
            prop_assert!(scale.exponent() <= bound);
            if all_fit {
                prop_assert_eq!(scale.exponent(), bound);
            }
            prop_assert!(!take(&mut scale, None), "a batch that is not finite is never applied");
        }
    }

    /// Statement 1, corollary: one bad batch in every `period` steps lowers the scale by one each time if and only if
    /// no whole interval fits between two.
    #[test]
    fn one_bad_batch_more_often_than_the_interval_is_collapse(interval in 1..40u32, period in 1..80u32) {
        let mut scale = dynamic(16, interval);
        let mut seen = Vec::new();
        for _ in 0..40 {
            take(&mut scale, None);
            (1..period).for_each(|_| { take(&mut scale, Some(126)); });
            seen.push(scale.exponent());
        }
        if period - 1 < interval {
            prop_assert!(seen.iter().zip(0..).all(|(&exponent, bad)| exponent == 15 - bad), "{:?}", seen);
        } else {
            prop_assert!(seen.is_sorted() && seen[0] >= 16, "{:?}", seen);
        }
    }

    /// Statement 2: large batches with a ceiling `excess` ≥ 1 below that of the others are never applied, if the scale
    /// starts above their ceiling and a whole interval of other batches precedes each one except the first.
    #[test]
    fn rare_large_batches_are_never_applied(
        interval in 1..20u32, ceiling in -10..30i32, excess in 1..30i32, above in 1..40i32,
        more in vec(0..60u32, 1..30),
    ) {
        let mut scale = dynamic(ceiling - excess + above, interval);
        for more in more {
            prop_assert!(!take(&mut scale, Some(ceiling - excess)), "2^{}", scale.exponent());
            (0..interval + more).for_each(|_| { take(&mut scale, Some(ceiling)); });
        }
    }

    /// Just outside of statement 2: with one batch less in each gap, or without an excess, they are eventually applied.
    #[test]
    fn conditions_of_starvation_are_exact(interval in 2..20u32, ceiling in -10..20i32, excess in 1..20i32) {
        let mut scale = dynamic(ceiling, interval);
        let applied = (0..=excess).filter(|_| {
            let fits = take(&mut scale, Some(ceiling - excess));
            (1..interval).for_each(|_| { take(&mut scale, Some(ceiling)); });
            fits
        });
        prop_assert_eq!(applied.count(), 1, "after one drop for each bit of the excess");
        let mut scale = dynamic(ceiling, interval);
        prop_assert!(take(&mut scale, Some(ceiling)), "without an excess it fits at once");
        let mut scale = dynamic(ceiling - excess, interval);
        prop_assert!(take(&mut scale, Some(ceiling - excess)), "and from a start at its ceiling");
    }
}

/// Number of events in the simulation of the review's section 3.4.
const EVENTS: u32 = 386;

/// Returns the percentage of large batches that are dropped, as a mean over `seeds` seeds. Each batch is large with
/// probability 1/n, 12 bits above the others, and the scale starts where the others just fit.
fn dropped(n: usize, seeds: u64) -> f64 {
    const CEILING: i32 = 30;
    const EXCESS: i32 = 12;
    let mut lost = 0u32;
    for seed in 0..seeds {
        let (mut scale, mut random, mut events) = (dynamic(CEILING, 2000), SplitMix64(seed), 0);
        while events < EVENTS {
            let large = random.below(n) == 0;
            let fits = take(&mut scale, Some(if large { CEILING - EXCESS } else { CEILING }));
            events += u32::from(large);
            lost += u32::from(large && !fits);
        }
    }
    100.0 * f64::from(lost) / f64::from(EVENTS) / seeds as f64
}

/// The table of dropped batches at irregular gaps. The review ran one seed. Between seeds the fraction of one run has a
/// standard deviation of 4 points at n = 2000 and less elsewhere, so a mean over eight seeds must be within 5 points of
/// its table.
#[test]
fn irregular_gaps_give_the_table_of_dropped_batches() {
    for (n, published) in [(50, 6.0), (200, 12.0), (500, 24.0), (1000, 41.0), (2000, 75.0), (4000, 100.0)] {
        let share = dropped(n, 8);
        assert!((share - published).abs() <= 5.0, "one in {n}: {share:.1} % dropped, {published} % in the table");
    }
    // Regular gaps do not have this effect: at fixed gaps of 1999 half of the large batches are applied.
    let mut scale = dynamic(18, 2000);
    let large = (0..40).filter(|_| {
        let fits = take(&mut scale, Some(18));
        (0..1999).for_each(|_| {
            take(&mut scale, Some(30));
        });
        fits
    });
    assert_eq!(large.count(), 20);
}

/// Backward pass through sites of one call each: the gradient of each is that of the one before, times a power of two.
struct Chain {
    sites: Vec<Site>,
    /// Powers of two by which the gradient at each site is larger than the loss.
    gains: Vec<i32>,
}

/// Gradients of a batch: powers of two of the largest and the smallest value, and the first site that is not finite.
#[derive(Clone, Debug)]
struct Gradients {
    most: i32,
    span: i32,
    broken: Option<(usize, f32)>,
}

/// Result of a batch.
#[derive(Debug, PartialEq)]
struct End {
    applied: u32,
    repeats: u32,
}

impl Chain {
    fn new(gains: &[i32], interval: u32) -> Self {
        let config = SiteConfig { interval, ..SiteConfig::exact() };
        Self { sites: gains.iter().map(|_| site(config)).collect(), gains: gains.to_vec() }
    }

    fn states(&self) -> Vec<SiteState> {
        self.sites.iter().map(Site::state).collect()
    }

    fn exponents(&self) -> Vec<Option<i32>> {
        self.sites.iter().map(Site::alpha).collect()
    }

    /// Returns the rows of an attempt, in the order of the stores. Values downstream of an overflow are ∞.
    fn attempt(&mut self, batch: &Gradients) -> Vec<Stats> {
        let mut lost = false;
        let mut rows = Vec::new();
        for (at, (site, gain)) in self.sites.iter_mut().zip(&self.gains).enumerate() {
            let low = 2f32.powi(batch.most + gain - batch.span);
            let mut values = vec![1.5 * 2f32.powi(batch.most + gain), -low, low, 0.0];
            if let Some((from, value)) = batch.broken
                && at >= from
            {
                values[1] = value;
            }
            if lost {
                values[0] = f32::INFINITY;
            }
            if site.request().at_once {
                site.decide(site.exact(&full(0, &values)), 0);
            }
            let row = stored(&values, site.alpha().unwrap_or(0), site.request().detail);
            lost |= row.counts().overflowed != 0;
            rows.push(row);
        }
        rows
    }

    /// Runs a step as the engine does ([`gradscale_core::step_outcome`]).
    fn step(&mut self, batch: &Gradients) -> End {
        for repeats in 0.. {
            let rows = self.attempt(batch);
            let blame: Option<FirstNonFinite> = step_outcome::find_first_non_finite(rows.iter().map(Stats::counts));
            if blame.is_some() && step_outcome::may_repeat(Calls::One, repeats) {
                self.sites.iter_mut().zip(&rows).for_each(|(site, row)| site.repeat(row));
                continue;
            }
            for (at, (site, row)) in self.sites.iter_mut().zip(&rows).enumerate() {
                let end = step_outcome::site_outcome(blame.is_none(), true, blame, at);
                assert_eq!(end == SiteOutcome::RolledBack, blame.is_some());
                site.finish(row, end);
            }
            return End { applied: u32::from(blame.is_none()), repeats };
        }
        unreachable!("a batch is repeated once at most")
    }
}

fn gradients() -> impl Strategy<Value = Gradients> {
    // Any magnitude that f32 can represent at every site of the chain, however different from that of the batch before.
    (-70..70i32, 0..24i32).prop_map(|(most, span)| Gradients { most, span, broken: None })
}

fn with_broken() -> impl Strategy<Value = Gradients> {
    let value = prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)];
    (gradients(), prop::option::weighted(0.3, (0..4usize, value)))
        .prop_map(|(batch, broken)| Gradients { broken, ..batch })
}

proptest! {
    #![proptest_config(cases(256))]

    /// Statement 3: with repeats, at sites of one call each, every batch with finite f32 gradients is applied exactly
    /// once, after at most one repeat, whatever preceded it.
    #[test]
    fn every_finite_batch_is_applied_once(
        gains in vec(-30..30i32, 1..5), interval in 1..12u32, batches in vec(with_broken(), 1..40),
    ) {
        let mut chain = Chain::new(&gains, interval);
        for batch in batches {
            let finite = batch.broken.is_none_or(|(from, _)| from >= gains.len());
            let end = chain.step(&batch);
            prop_assert_eq!(end.applied, u32::from(finite), "{:?}", &batch);
            prop_assert!(end.repeats <= 1);
        }
    }

    /// Statement 4: a batch that is not finite leaves every site unchanged: exponents, and all state on which later
    /// ones depend.
    #[test]
    fn a_batch_that_is_not_finite_moves_nothing(
        gains in vec(-30..30i32, 1..5), interval in 1..12u32, batches in vec(with_broken(), 1..40),
    ) {
        let (mut chain, mut without) = (Chain::new(&gains, interval), Chain::new(&gains, interval));
        for batch in batches {
            let before = chain.exponents();
            let end = chain.step(&batch);
            if batch.broken.is_some_and(|(from, _)| from < gains.len()) {
                prop_assert_eq!(end.applied, 0);
                prop_assert_eq!(chain.exponents(), before);
            } else {
                without.step(&batch);
            }
            prop_assert_eq!(chain.states(), without.states(), "as if it had never come");
        }
    }
}
