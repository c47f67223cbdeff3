//! Comparison of a device with the CPU: SegNet, each step from the same state on both.
//!
//! Two trainings in half would diverge if they ran independently. Each device sums in another order, so a value between
//! two halves rounds up on one and down on the other, and the following steps amplify that. Therefore the device
//! continues from the CPU's checkpoint after each step, and the results of single steps are compared.

use gradscale::{
    Cpu, CrossEntropy, Input, Method, Parameters, SiteReport, Trainer, TrainerOptions,
    gradscale_core::{backend::Backend, ops::Divisor, stats::Rate},
    models::SegNet,
    nn::Module,
    optim::Sgd,
};
use std::collections::BTreeMap;

const STEPS: usize = 20;
const PIXELS: usize = 2 * 32 * 48;
/// Default γ′ of the exact rule.
const GAMMA: f64 = 1e-3;

/// Maximum distance of one step's results: at most four times the largest that was measured.
#[derive(Debug, Default)]
struct Distance {
    loss: f64,
    /// Gradients of intermediate values: the furthest, of the tensor's largest magnitude.
    stored: f64,
    /// The same, root mean square of the differences, of the values'.
    stored_rms: f64,
    /// Gradients of parameters: the furthest, of the tensor's largest magnitude.
    parameters: f64,
}

const SINGLE: Distance = Distance { loss: 5e-7, stored: 1.2e-5, stored_rms: 6e-6, parameters: 2e-5 };
/// FP16 rounds by up to 4.9e-4, and about twenty casts follow one another.
const HALF: Distance = Distance { loss: 8e-5, stored: 8e-3, stored_rms: 6e-3, parameters: 1.6e-2 };
/// If neighbours are equal as halves but for one rounding, another one may be the maximum. Then pooling passes the
/// gradient to another pixel, and SegNet's unpooling writes the value there. The loss hardly changes, but gradients do
/// as a whole. Devices that add in the CPU's order never differ so; with tensor cores 5 of 20 steps did.
const MOVED_LOSS: f64 = 8e-3;

impl Distance {
    fn within(&self, bounds: &Self) -> bool {
        self.loss <= bounds.loss
            && self.stored <= bounds.stored
            && self.stored_rms <= bounds.stored_rms
            && self.parameters <= bounds.parameters
    }

    fn max(self, other: Self) -> Self {
        Self {
            loss: self.loss.max(other.loss),
            stored: self.stored.max(other.stored),
            stored_rms: self.stored_rms.max(other.stored_rms),
            parameters: self.parameters.max(other.parameters),
        }
    }
}

/// Trains SegNet of width 8 on two images of 32×48, in f32 and with gradient scaling that decides after every step.
pub fn segnet_beside_the_cpu<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    let (apart, decided) = compare(open(), "fp32", &SINGLE);
    assert_eq!((apart, decided), (0, 0), "f32 has no sites");
    let (apart, decided) = compare(open(), "gs:exact,interval=1", &HALF);
    assert!(decided > 300 && apart * 2 < decided, "{apart} of {decided} decisions differ");
}

/// Returns how many decisions differ, and how many there were.
fn compare<B: Backend<Error: 'static>>(device: B, name: &str, bounds: &Distance) -> (usize, usize) {
    let method: Method = name.parse().expect("a method");
    let (mut here, mut cpu) = (Training::new(device, &method), Training::new(Cpu::new(0).expect("threads"), &method));
    let (mut most, mut moved, mut apart, mut decided) = (Distance::default(), 0, 0, 0);
    for step in 0..STEPS {
        if step > 0 {
            let state = cpu.trainer.save(&BTreeMap::new()).expect("a checkpoint");
            here.trainer.load(&state).expect("the same training");
        }
        let (a, b) = (here.step(), cpu.step());
        let stored: Vec<_> = a.stored.iter().zip(&b.stored).map(|(a, b)| Difference::of(a, b)).collect();
        let parameters = a.parameters.iter().zip(&b.parameters).map(|(a, b)| Difference::of(a, b).relative());
        let seen = Distance {
            loss: f64::from(a.loss - b.loss).abs(),
            stored: stored.iter().map(Difference::relative).fold(0.0, f64::max),
            stored_rms: stored.iter().map(|one| one.rms / one.values).fold(0.0, f64::max),
            parameters: parameters.fold(0.0, f64::max),
        };
        if seen.within(bounds) {
            most = most.max(seen);
        } else {
            println!("  step {step}: a maximum elsewhere, {seen:?}");
            assert!(seen.loss <= MOVED_LOSS, "{name}, step {step}: {seen:?}");
            moved += 1;
        }
        for (a, b) in here.trainer.sites().zip(cpu.trainer.sites()) {
            decided += 1;
            if a.alpha != b.alpha {
                apart += 1;
                println!("  step {step}: {}", excuse(&a, &b, &stored));
            }
        }
    }
    println!("{name}: {apart} of {decided} decisions differ, {moved} steps with a maximum elsewhere; others {most:?}");
    let may_move = if name == "fp32" { 0 } else { STEPS / 2 };
    assert!(moved <= may_move, "{name}: {moved} of {STEPS} steps are far apart");
    (apart, decided)
}

/// Returns the reason why two devices may decide differently at a site. At the lower exponent the share that flushes
/// may be within 10 % of γ′, or within one value of it, on both. Or the flushed values are smaller than the rounding
/// error of the tensor, so they carry no information. Or the values that flush on one device only are close to the
/// threshold. Panics if no reason applies.
fn excuse(a: &SiteReport<'_>, b: &SiteReport<'_>, stored: &[Difference]) -> String {
    let k = least(a).min(least(b));
    let [here, cpu] = [a, b].map(|site| flushed(site, k));
    let limit = GAMMA * cpu.whole as f64;
    let near = [here, cpu].iter().all(|share| (share.part as f64 - limit).abs() <= (0.1 * limit).max(1.0));
    // The tensor that was stored at this site: of its length and largest magnitude, before the cast and after it.
    let (counts, exponent) = (b.row.counts(), b.row.exponent());
    let amax = f64::from(counts.amax) * 2f64.powi(-exponent);
    let noise = stored.iter().find(|one| one.cpu.len() as u64 == counts.count && (one.amax / amax - 1.0).abs() < 1e-3);
    let tensor = noise.unwrap_or_else(|| panic!("no gradient belongs to {}", b.name));
    let (noise, smallest) = (tensor.rms, 2f64.powi(-25 - k));
    let at_the_edge = tensor.cpu.iter().filter(|value| (value.abs() - smallest).abs() <= 4.0 * noise).count();
    let line = format!(
        "{}: 2^{} and 2^{} on the CPU; at 2^{k} {} and {} of {} flush, γ′ allows {limit:.1}; below {smallest:.1e}, noise {noise:.1e}",
        b.name, a.alpha, b.alpha, here.part, cpu.part, cpu.whole
    );
    let turned = here.part.abs_diff(cpu.part) <= at_the_edge as u64;
    assert!(near || smallest <= 4.0 * noise || turned, "{line}; {at_the_edge} lie at the edge");
    line
}

/// The least exponent at which a site flushes no more than γ′.
fn least(site: &SiteReport<'_>) -> i32 {
    let fits = |k: &i32| {
        let share = flushed(site, *k);
        share.part as f64 <= GAMMA * share.whole as f64
    };
    (site.alpha - 40..=site.alpha).find(fits).expect("the exponent in force fits")
}

fn flushed(site: &SiteReport<'_>, exponent: i32) -> Rate {
    site.row.flushed_at(exponent - site.row.exponent()).expect("a histogram")
}

struct Difference {
    /// The CPU's values.
    cpu: Vec<f64>,
    /// The CPU's largest magnitude, and the root mean square of its values.
    amax: f64,
    values: f64,
    /// Largest difference; `rms` is the root mean square of all differences.
    worst: f64,
    rms: f64,
}

impl Difference {
    fn of(here: &[f64], cpu: &[f64]) -> Self {
        assert_eq!(here.len(), cpu.len());
        let apart: Vec<f64> = here.iter().zip(cpu).map(|(a, b)| a - b).collect();
        let amax = |values: &[f64]| values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let rms = |values: &[f64]| (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt();
        Self { amax: amax(cpu), values: rms(cpu), worst: amax(&apart), rms: rms(&apart), cpu: cpu.to_vec() }
    }

    fn relative(&self) -> f64 {
        self.worst / self.amax
    }
}

struct Training<B: Backend> {
    trainer: Trainer<B>,
    net: SegNet,
}

/// Results of one step as true values, without scales.
struct Step {
    loss: f32,
    /// Gradients of all intermediate values, in backward order.
    stored: Vec<Vec<f64>>,
    /// Gradients of the parameters.
    parameters: Vec<Vec<f64>>,
}

impl<B: Backend<Error: 'static>> Training<B> {
    fn new(device: B, method: &Method) -> Self {
        let mut parameters = Parameters::seeded(4);
        let net = SegNet::new(&mut parameters.at("net"), 3, 8, 5);
        let optimizer = Sgd { momentum: 0.9, weight_decay: 5e-4, ..Sgd::new(0.05) };
        let trainer = Trainer::new(device, parameters, optimizer, method.clone()).expect("a trainer");
        Self { trainer: trainer.with_options(TrainerOptions::new().with_all_kept()), net }
    }

    fn step(&mut self) -> Step {
        let images: Vec<u8> = (0..PIXELS * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
        let labels: Vec<u8> = (0..PIXELS).map(|i| u8::try_from(i / 48 % 6).expect("below 6")).collect();
        let batch = [Input::u8([2, 32, 48, 3], &images), Input::u8([2, 32, 48, 1], &labels)];
        let net = &self.net;
        let gradients = self.trainer.backward(batch, |[x, labels]| {
            let options = CrossEntropy { weights: None, ignore: Some(5), divisor: Divisor::Fixed(4096.0) };
            net.forward(x).cross_entropy_with(labels, &options)
        });
        let gradients = gradients.expect("gradients");
        let stored = self.trainer.scaled_gradients(&gradients).expect("kept").into_iter();
        let stored = stored.map(|(_, scaled)| {
            let unscale = 2f64.powi(-scaled.alpha);
            scaled.data.data.iter().map(|&value| f64::from(value) * unscale).collect()
        });
        let stored = stored.collect();
        let all = self.trainer.parameters().expect("readable");
        let gradient = |name: &str| self.trainer.gradient(&gradients, name).expect("readable");
        let parameters = all.iter().filter_map(|(name, _)| gradient(name));
        let parameters = parameters.map(|tensor| tensor.data.iter().map(|&value| f64::from(value)).collect()).collect();
        let outcome = self.trainer.step(gradients).expect("a step");
        assert_eq!(outcome.skipped, None);
        Step { loss: outcome.loss, stored, parameters }
    }
}
