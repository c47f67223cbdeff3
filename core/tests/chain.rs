//! A chain of cast sites with true tuple propagation: every gradient is stored as half at its own exponent, handed
//! on as ⟨α, data⟩, and every parameter gradient is unscaled at birth.

mod common;

use common::{SplitMix64, assert_bits, narrow, pow2, row};
use gradscale_core::{
    cast::{Round, f16_from_f32},
    rules::parameter_gradient,
    scale::Factor,
    site::{End, Site, SiteConfig},
    stats::{Convention, Counts, Detail, Stats},
    step::{Blame, Kind, Outcome, blame, found_inf},
};

const WIDTH: usize = 16;
const BATCH: usize = 24;
const SITES: usize = 6;

/// Layers behind a loss, in backward order; the first site is the cast from f32, the others are data gradients.
struct Chain {
    sites: Vec<Site>,
    weights: Vec<Vec<f32>>,
    inputs: Vec<Vec<f32>>,
}

/// What one step left behind.
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

    /// One training step behind the f32 gradient `loss`, which is ⟨0, ∂L⟩.
    fn step(&mut self, loss: &[f32]) -> Trace {
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
            let wish = site.wish();
            if wish.at_once {
                site.decide(site.exact(&row(Convention::FP16, from, wish.detail, &v)), from);
            }
            let to = site.alpha().unwrap_or(from);
            let u: Vec<f32> = v.iter().map(|&v| Factor::between(from, to).apply(v)).collect();
            let seen = row(Convention::FP16, to, wish.detail, &u);
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
        let first = blame(rows.iter().map(Stats::counts));
        let skipped = found_inf(&guards);
        for (i, (site, row)) in self.sites.iter_mut().zip(&rows).enumerate() {
            let end = match (skipped, first) {
                (false, _) => End::Stepped,
                (true, Some(first)) if i > first.site => End::SkippedAfter,
                (true, _) => End::SkippedHere,
            };
            site.finish(row, end);
        }
        if skipped {
            trace.outcome = Outcome::Skipped(first);
        }
        trace
    }
}

/// dx[b, i] = Σ_o dy[b, o] · w[o, i] in f32, in one order.
fn product(dy: &[f32], w: &[f32]) -> Vec<f32> {
    let mut dx = vec![0f32; dy.len()];
    for (dx, dy) in dx.chunks_mut(WIDTH).zip(dy.chunks(WIDTH)) {
        for (dy, w) in dy.iter().zip(w.chunks(WIDTH)) {
            dx.iter_mut().zip(w).for_each(|(dx, w)| *dx += dy * w);
        }
    }
    dx
}

/// Heavy-tailed like what comes out of a softmax, different in every step, slowly shrinking.
fn loss(t: i32, k: i32) -> Vec<f32> {
    let mut random = SplitMix64(t.unsigned_abs().into());
    let mut one = || random.normal().signum() * (2.5 * random.normal() - 12.0 - 0.1 * f64::from(t)).exp();
    (0..BATCH * WIDTH).map(|_| narrow(f64::from(narrow(one())) * pow2(k))).collect()
}

/// Loss × 2^-30 leaves every stored bit as it was, every exponent is 30 higher, every parameter gradient 2^-30 of
/// what it was: under no loss scaling could the last two hold together.
#[test]
fn a_loss_of_any_size_trains_alike() {
    for config in [
        SiteConfig::exact(),
        SiteConfig { interval: 1, ..SiteConfig::exact() },
        SiteConfig { interval: 3, amax_history: true, ..SiteConfig::exact() },
    ] {
        for shift in [-30, 30] {
            let (mut plain, mut other, mut skipped) = (Chain::new(config), Chain::new(config), Vec::new());
            for t in 0..25 {
                // Two jumps up, so that overflow, skip and recovery are in the trace too.
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

/// A persistent jump of 2^20 costs one step: the first site to overflow is named, all decide at once in the next,
/// and nothing overflows or underflows beyond the threshold from there on.
#[test]
fn a_persistent_jump_costs_one_step() {
    let mut chain = Chain::new(SiteConfig::exact());
    let mut skipped = Vec::new();
    for t in 0..40 {
        let before: Vec<_> = chain.sites.iter().map(Site::alpha).collect();
        let trace = chain.step(&loss(t, if t < 13 { 0 } else { 20 }));
        if let Outcome::Skipped(blamed) = trace.outcome {
            assert_eq!(blamed, before[0].map(|exponent| Blame { site: 0, kind: Kind::Overflow, exponent }));
            assert!(chain.sites.iter().all(|site| site.wish().at_once));
            skipped.push(t);
        } else if t == 14 {
            assert!(trace.flushed.iter().all(|&share| share <= 1e-3), "decided at once, each from its own values");
            let lower = before.iter().zip(&trace.exponents).skip(1).all(|(before, now)| before.unwrap_or(0) - now > 12);
            assert!(lower, "{before:?} became {:?}", trace.exponents);
        }
    }
    assert_eq!(skipped, [13]);
}

/// data · 2^-α is the true gradient: along the whole chain within the roundings so far, 2^-11 each, in the mean.
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
