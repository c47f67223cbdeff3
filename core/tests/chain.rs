//! Tests of a chain of cast sites with tuple propagation: every gradient is stored as half at its own exponent and
//! passed on as ⟨α, data⟩, and every parameter gradient is stored unscaled.

mod common;

use common::{SplitMix64, assert_bits, cases, narrow, pow2, row};
use gradscale_core::{
    cast::{Round, f16_from_f32},
    gradient_rules::parameter_gradient,
    scale::Factor,
    site::{Calls, Memory, Site, SiteConfig, SiteOutcome, SiteState},
    solve::LimitedBy,
    stats::{Convention, Counts, Detail, Stats},
    step_outcome::{FirstNonFinite, NonFiniteKind, Outcome, find_first_non_finite, found_inf, may_repeat},
};
use proptest::{collection::vec, prelude::*};

const WIDTH: usize = 16;
const BATCH: usize = 24;
const SITES: usize = 6;

/// Layers before a loss, in backward order. The first site is the cast from f32, the others are data gradients.
struct Chain {
    sites: Vec<Site>,
    weights: Vec<Vec<f32>>,
    inputs: Vec<Vec<f32>>,
}

/// Record of one step.
struct Trace {
    exponents: Vec<i32>,
    data: Vec<Vec<u16>>,
    parameters: Vec<Vec<f32>>,
    flushed: Vec<f64>,
    outcome: Outcome,
}

impl Chain {
    fn new(config: SiteConfig) -> Self {
        let mut random = SplitMix64(7);
        let mut normal = |n: usize, s: f64| -> Vec<f32> { (0..n).map(|_| narrow(random.normal() * s)).collect() };
        Self {
            sites: (0..SITES).map(|_| Site::new(config).expect("an interval")).collect(),
            // Each layer shrinks the gradient further, as deep networks do.
            weights: (0..SITES).map(|_| normal(WIDTH * WIDTH, 0.03)).collect(),
            inputs: (0..SITES).map(|_| normal(BATCH * WIDTH, 1.0)).collect(),
        }
    }

    /// Runs one training step from the f32 gradient `loss`, which is ⟨0, ∂L⟩; a step that overflows is skipped.
    fn step(&mut self, loss: &[f32]) -> Trace {
        self.attempt(loss, None)
    }

    /// Runs one training step with repeats and returns all attempts.
    fn repeating(&mut self, loss: &[f32]) -> Vec<Trace> {
        let mut all: Vec<Trace> = Vec::new();
        loop {
            let failed = u32::try_from(all.len()).expect("few");
            all.push(self.attempt(loss, Some(failed)));
            if !matches!(all.last().map(|last| last.outcome), Some(Outcome::Repeated(_))) {
                return all;
            }
        }
    }

    /// `failed` is the number of attempts at this step before, if attempts are repeated.
    fn attempt(&mut self, loss: &[f32], failed: Option<u32>) -> Trace {
        let (mut incoming, mut from) = (loss.to_vec(), 0);
        let (mut rows, mut guards): (Vec<Stats>, Vec<Counts>) = (Vec::new(), Vec::new());
        let mut trace = Trace {
            exponents: Vec::new(),
            data: Vec::new(),
            parameters: Vec::new(),
            flushed: Vec::new(),
            outcome: Outcome::Stepped,
        };
        for (i, site) in self.sites.iter_mut().enumerate() {
            let v = if i == 0 { incoming } else { product(&incoming, &self.weights[i]) };
            let request = site.request();
            if request.at_once {
                site.decide(site.exact(&row(Convention::FP16, from, request.detail, &v)), from);
            }
            let to = site.alpha().unwrap_or(from);
            let u: Vec<f32> = v.iter().map(|&v| Factor::between(from, to).apply(v)).collect();
            let seen = row(Convention::FP16, to, request.detail, &u);
            let half: Vec<_> = u.iter().map(|&u| f16_from_f32(u, Round::NearestEven)).collect();
            let stored: Vec<f32> = half.iter().map(|half| half.to_f32()).collect();
            // f32 accumulators, one factor, stored as f32.
            let mut parameters = vec![0f32; WIDTH * WIDTH];
            for (dy, x) in stored.chunks(WIDTH).zip(self.inputs[i].chunks(WIDTH)) {
                for (dw, dy) in parameters.chunks_mut(WIDTH).zip(dy) {
                    dw.iter_mut().zip(x).for_each(|(dw, x)| *dw += dy * x);
                }
            }
            parameters.iter_mut().for_each(|dw| *dw = parameter_gradient(to).apply(*dw));
            guards.push(*row(Convention::FP16, 0, Detail::Counts, &parameters).counts());
            trace.flushed.push(seen.counts().flushed as f64 / seen.counts().nonzero() as f64);
            trace.exponents.push(to);
            trace.data.push(half.iter().map(|half| half.to_bits()).collect());
            trace.parameters.push(parameters);
            rows.push(seen);
            (incoming, from) = (stored, to);
        }
        let first = find_first_non_finite(rows.iter().map(Stats::counts));
        let skipped = found_inf(&guards);
        trace.outcome = match (skipped, first, failed) {
            (false, ..) => Outcome::Stepped,
            (true, Some(blame), Some(failed)) if may_repeat(Calls::One, failed) => Outcome::Repeated(blame),
            (true, ..) => Outcome::Skipped(first),
        };
        for (i, (site, row)) in self.sites.iter_mut().zip(&rows).enumerate() {
            match (trace.outcome, first) {
                (Outcome::Stepped, _) => site.finish(row, SiteOutcome::Stepped),
                (Outcome::Repeated(_), _) => site.repeat(row),
                (Outcome::Skipped(_), _) if failed.is_some() => site.finish(row, SiteOutcome::RolledBack),
                (Outcome::Skipped(_), Some(first)) if i > first.site => {
                    site.finish(row, SiteOutcome::SkippedDownstream)
                }
                (Outcome::Skipped(_), _) => site.finish(row, SiteOutcome::Skipped),
            }
        }
        trace
    }
}

/// Computes dx[b, i] = Σ_o dy[b, o] · w[o, i] in f32, in one order.
fn product(dy: &[f32], w: &[f32]) -> Vec<f32> {
    let mut dx = vec![0f32; dy.len()];
    for (dx, dy) in dx.chunks_mut(WIDTH).zip(dy.chunks(WIDTH)) {
        for (dy, w) in dy.iter().zip(w.chunks(WIDTH)) {
            dx.iter_mut().zip(w).for_each(|(dx, w)| *dx += dy * w);
        }
    }
    dx
}

/// Returns a heavy-tailed gradient like that of a softmax, different in every step and slowly shrinking.
fn loss(t: i32, k: i32) -> Vec<f32> {
    let mut random = SplitMix64(t.unsigned_abs().into());
    let mut one = || random.normal().signum() * (2.5 * random.normal() - 12.0 - 0.1 * f64::from(t)).exp();
    (0..BATCH * WIDTH).map(|_| narrow(f64::from(narrow(one())) * pow2(k))).collect()
}

/// Loss × 2^-30 leaves every stored bit unchanged, every exponent is 30 higher, and every parameter gradient is 2^-30
/// times as large. No loss scaling satisfies the last two together.
#[test]
fn a_loss_of_any_size_trains_alike() {
    for config in [
        SiteConfig::exact(),
        SiteConfig::exact_alone(),
        SiteConfig { interval: 1, ..SiteConfig::exact() },
        SiteConfig { interval: 3, memory: Memory::Least, ..SiteConfig::exact() },
    ] {
        for shift in [-30, 30] {
            let (mut plain, mut other, mut skipped) = (Chain::new(config), Chain::new(config), Vec::new());
            for t in 0..25 {
                // Two jumps upwards, so that the trace contains overflow, skip and recovery too.
                let jump = if t > 18 {
                    40
                } else if t > 7 {
                    20
                } else {
                    0
                };
                let a = plain.step(&loss(t, jump));
                let b = other.step(&loss(t, jump + shift));
                let higher: Vec<i32> = a.exponents.iter().map(|alpha| alpha - shift).collect();
                assert_eq!(b.exponents, higher, "step {t}");
                assert_eq!(b.data, a.data, "step {t}");
                for (&a, &b) in a.parameters.iter().flatten().zip(b.parameters.iter().flatten()) {
                    assert_bits(b, narrow(f64::from(a) * pow2(shift)), format!("a parameter gradient of step {t}"));
                }
                let both = [a, b].map(|trace| matches!(trace.outcome, Outcome::Skipped(_)));
                assert_eq!(both[0], both[1], "step {t}");
                skipped.extend(both[0].then_some(t));
            }
            assert_eq!(skipped, [8, 19]);
        }
    }
}

/// A persistent jump of 2^20 costs one step: the first site that overflows is named, all decide inside the next step,
/// and after it nothing overflows, or underflows beyond the threshold.
#[test]
fn a_persistent_jump_costs_one_step() {
    let mut chain = Chain::new(SiteConfig::exact_alone());
    let mut skipped = Vec::new();
    for t in 0..40 {
        let before: Vec<_> = chain.sites.iter().map(Site::alpha).collect();
        let trace = chain.step(&loss(t, if t < 13 { 0 } else { 20 }));
        if let Outcome::Skipped(blamed) = trace.outcome {
            assert_eq!(
                blamed,
                before[0].map(|exponent| FirstNonFinite { site: 0, kind: NonFiniteKind::Overflow, exponent })
            );
            assert!(chain.sites.iter().all(|site| site.request().at_once));
            skipped.push(t);
        } else if t == 14 {
            assert!(trace.flushed.iter().all(|&share| share <= 1e-3), "decided at once, each from its own values");
            let lower = before.iter().zip(&trace.exponents).skip(1).all(|(before, now)| before.unwrap_or(0) - now > 12);
            assert!(lower, "{before:?} became {:?}", trace.exponents);
        }
    }
    assert_eq!(skipped, [13]);

    // If batches are repeated it costs one more pass, and no batch is lost.
    let mut chain = Chain::new(SiteConfig::exact());
    let attempts = (0..40).map(|t| chain.repeating(&loss(t, if t < 13 { 0 } else { 20 })));
    let outcomes: Vec<Vec<Outcome>> = attempts.map(|all| all.iter().map(|one| one.outcome).collect()).collect();
    for (t, outcomes) in outcomes.iter().enumerate() {
        assert_eq!(outcomes.len(), 1 + usize::from(t == 13), "step {t}");
        assert_eq!(outcomes.last(), Some(&Outcome::Stepped));
    }
}

/// data · 2^-α is the true gradient, along the whole chain within the roundings so far, 2^-11 each, on average.
#[test]
fn tuples_stand_for_the_true_gradient() {
    let mut chain = Chain::new(SiteConfig::exact());
    for t in 0..12 {
        let trace = chain.step(&loss(t, 0));
        let mut truth: Vec<f64> = loss(t, 0).iter().map(|&x| f64::from(x)).collect();
        for (i, (data, alpha)) in trace.data.iter().zip(&trace.exponents).enumerate() {
            if i > 0 {
                let mut next = vec![0f64; truth.len()];
                for (dx, dy) in next.chunks_mut(WIDTH).zip(truth.chunks(WIDTH)) {
                    for (dy, w) in dy.iter().zip(chain.weights[i].chunks(WIDTH)) {
                        dx.iter_mut().zip(w).for_each(|(dx, &w)| *dx += dy * f64::from(w));
                    }
                }
                truth = next;
            }
            let value = |&bits: &u16| f64::from(half::f16::from_bits(bits).to_f32()) * pow2(-alpha);
            let error: f64 = data.iter().zip(&truth).map(|(bits, x)| (value(bits) - x).powi(2)).sum();
            let power: f64 = truth.iter().map(|x| x * x).sum();
            assert!(error.sqrt() <= (i + 1) as f64 * pow2(-11) * power.sqrt(), "step {t}, site {i}");
        }
    }
}

/// Returns the state of each site, with exponents from which the shift was subtracted.
fn states(chain: &Chain, shift: i32) -> Vec<SiteState> {
    let moved = |site: &Site| {
        let mut state = site.state();
        state.alpha = state.alpha.map(|alpha| alpha + shift);
        state.ceilings.iter_mut().for_each(|ceiling| *ceiling += i64::from(shift));
        state
    };
    chain.sites.iter().map(moved).collect()
}

proptest! {
    #![proptest_config(cases(96))]

    /// The theorem: each batch with finite f32 gradients, whatever its magnitude, is applied once, after at most one
    /// repeat; and everything, repeats included, is the same at every scale of the loss.
    #[test]
    fn every_finite_batch_is_stepped_after_one_repeat_at_most(
        magnitudes in vec(prop_oneof![2 => Just(0), 1 => Just(20), 1 => Just(40), 2 => -45..45i32], 1..40),
        shift in -15..15i32, interval in prop_oneof![Just(10u32), 1..4u32],
    ) {
        let config = SiteConfig { interval, ..SiteConfig::exact() };
        let (mut plain, mut other) = (Chain::new(config), Chain::new(config));
        for (t, &k) in (0..).zip(&magnitudes) {
            let [one, two] = [plain.repeating(&loss(t, k)), other.repeating(&loss(t, k + shift))];
            let last = one.last().expect("an attempt");
            prop_assert_eq!(last.outcome, Outcome::Stepped);
            prop_assert!(one.len() <= 2, "{} attempts", one.len());
            prop_assert!(last.parameters.iter().flatten().all(|dw| dw.is_finite()));
            prop_assert_eq!(one.len(), two.len());
            for (one, two) in one.iter().zip(&two) {
                prop_assert_eq!(&one.data, &two.data);
                let higher: Vec<i32> = two.exponents.iter().map(|alpha| alpha + shift).collect();
                prop_assert_eq!(&one.exponents, &higher);
            }
            prop_assert_eq!(states(&plain, 0), states(&other, shift));
            // A repeat decides from its own values: the flushed fraction is the predicted one, at most the threshold if
            // FP16 has the range besides the headroom of the ring.
            for (site, &share) in plain.sites.iter().zip(&last.flushed).filter(|_| one.len() == 2) {
                let choice = site.history().last().expect("it has decided").choice;
                prop_assert!((share - choice.gamma).abs() < 1e-12, "{share}, {choice:?}");
                prop_assert!(share <= 1e-3 || choice.held == LimitedBy::Overflow, "{share}, {choice:?}");
            }
        }
    }

    /// A batch that no exponent cures is skipped and changes nothing, whatever its form.
    #[test]
    fn a_batch_that_is_not_finite_leaves_no_trace(
        magnitudes in vec(-40..40i32, 2..12), at in 0..12usize, bad in prop_oneof![Just(f32::NAN), Just(f32::INFINITY)],
    ) {
        let (mut plain, mut other) = (Chain::new(SiteConfig::exact()), Chain::new(SiteConfig::exact()));
        for (t, &k) in (0..).zip(&magnitudes) {
            let values = loss(t, k);
            plain.repeating(&values);
            if usize::try_from(t) == Ok(at % magnitudes.len()) {
                let mut broken = values.clone();
                broken[7] = bad;
                let attempts = other.repeating(&broken);
                prop_assert!(matches!(attempts.last().map(|last| last.outcome), Some(Outcome::Skipped(_))));
                prop_assert_eq!(attempts.len(), 2);
            }
            other.repeating(&values);
            prop_assert_eq!(states(&plain, 0), states(&other, 0));
        }
    }
}

/// One batch in three is larger by 2^k, up to the range of f32: f32 would apply them all, and so does this method.
#[test]
fn alternating_losses_are_all_stepped_and_repeats_are_rare() {
    for (k, most) in [(8, 2), (12, 2), (20, 3), (24, 12), (40, 34), (-8, 2), (-12, 2), (-20, 2), (-40, 67)] {
        let mut chain = Chain::new(SiteConfig::exact());
        let mut old = Chain::new(SiteConfig::exact_alone());
        let (mut repeats, mut skips) = (0, 0);
        for t in 0..100 {
            let values = loss(t / 10, if t % 3 == 2 { k } else { 0 });
            let attempts = chain.repeating(&values);
            assert_eq!(attempts.last().map(|last| last.outcome), Some(Outcome::Stepped));
            repeats += attempts.len() - 1;
            skips += usize::from(old.step(&values).outcome != Outcome::Stepped);
        }
        println!("2^{k}: {repeats} repeats, where {skips} of 100 were skipped");
        assert!(repeats <= most, "2^{k}: {repeats}");
        if k > 10 {
            assert!(skips > 30, "the rule before starved here: {skips}");
        }
    }
}
