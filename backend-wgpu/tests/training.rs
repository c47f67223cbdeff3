//! The engine on a GPU: steps agree with the CPU's, shift invariance holds, recorded steps are eager ones.
//!
//! Without an adapter the tests say so and pass; with `GRADSCALE_REQUIRE_DEVICE=1` they fail.

#[path = "../../tests/tests/shift/nets.rs"]
mod nets;

use gradscale::{
    Batch, Cpu, CrossEntropy, Isa, Method, Parameters, Trainer,
    core::{backend::Backend, descriptor::Divisor},
    models::SegNet,
    nn::Module,
    optim::Optimizer,
};
use gradscale_wgpu::Wgpu;
use nets::{Setting, Trained, mlp, segnet, sequence};

const SHIFT: i32 = 30;

fn device() -> Option<Wgpu> {
    match Wgpu::new(0) {
        Ok(device) => Some(device),
        Err(error) => {
            let required = std::env::var("GRADSCALE_REQUIRE_DEVICE").is_ok_and(|value| value == "1");
            assert!(!required, "no device, and one is required: {error}");
            println!("SKIPPED: {error}");
            None
        }
    }
}

fn method(name: &str) -> Method {
    name.parse().expect("a method")
}

fn same_weights(a: &Trained, b: &Trained) {
    for ((name, a), (_, b)) in a.weights.iter().zip(&b.weights) {
        let differing = a.iter().zip(b).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
        assert_eq!(differing, 0, "{differing} of {} weights of {name} differ", a.len());
    }
}

type Train = fn(Wgpu, &Method, Setting) -> Trained;

const NETS: [(&str, Train); 3] =
    [("MLP", mlp::<Wgpu>), ("SegNet", segnet::<Wgpu>), ("tokens, attention and cells", sequence::<Wgpu>)];

/// Loss, weight decay and clipping threshold times 2^-30, learning rate times 2^30: the same weights, bit for bit, and
/// exponents 30 higher (spec, section 6).
#[test]
fn shift_invariance() {
    for (name, train) in NETS {
        let (Some(a), Some(b)) = (device(), device()) else { return };
        let plain = train(a, &method("gs:exact"), Setting { shift: 0, recording: true });
        let shifted = train(b, &method("gs:exact"), Setting { shift: SHIFT, recording: true });
        assert!(plain.moved, "{name} did not train");
        assert_eq!(plain.skipped, shifted.skipped);
        same_weights(&plain, &shifted);
        for (step, (plain, shifted)) in plain.exponents.iter().zip(&shifted.exponents).enumerate() {
            assert!(!plain.is_empty(), "{name} has no sites");
            for ((site, a), (_, b)) in plain.iter().zip(shifted) {
                assert_eq!(a + SHIFT, *b, "{name}, step {step}: {site}");
            }
        }
    }
}

/// A recorded step, encoded again, gives the bits of one that runs launch by launch; also where the decisions need sums.
#[test]
fn recorded_steps_are_eager_ones() {
    for name in ["gs:exact,interval=4", "gs:paper,interval=6", "dynamic:3"] {
        for (_, train) in NETS {
            let (Some(a), Some(b)) = (device(), device()) else { return };
            let eager = train(a, &method(name), Setting { shift: 0, recording: false });
            let recorded = train(b, &method(name), Setting { shift: 0, recording: true });
            assert_eq!((&eager.skipped, &eager.exponents), (&recorded.skipped, &recorded.exponents), "{name}");
            same_weights(&eager, &recorded);
        }
    }
}

/// What twenty steps of SegNet leave: losses, exponents of all sites after each step, last weights.
struct Run {
    losses: Vec<f32>,
    /// Name, exponent, values of each site.
    exponents: Vec<Vec<(String, i32, u64)>>,
    weights: Vec<(String, Vec<f32>)>,
}

/// SegNet of width 8, two images of 32×48.
fn twenty_steps<B: Backend<Error: 'static>>(device: B, method: &Method) -> Run {
    let mut parameters = Parameters::seeded(4);
    let net = SegNet::new(&mut parameters.at("net"), 3, 8, 5);
    let optimizer = Optimizer::sgd(0.05).momentum(0.9).decay(5e-4);
    let mut trainer = Trainer::new(device, parameters, optimizer, method.clone()).expect("a trainer");
    let pixels = 2 * 32 * 48;
    let images: Vec<u8> = (0..pixels * 3).map(|i| u8::try_from(i * 7 % 251).expect("below 251")).collect();
    let labels: Vec<u8> = (0..pixels).map(|i| u8::try_from(i / 48 % 6).expect("below 6")).collect();
    let mut run = Run { losses: vec![], exponents: vec![], weights: vec![] };
    for _ in 0..20 {
        let batch = [Batch::u8([2, 32, 48, 3], &images), Batch::u8([2, 32, 48, 1], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| {
            let options = CrossEntropy { weights: None, ignore: Some(5), divisor: Divisor::Fixed(4096.0) };
            net.forward(x)?.cross_entropy_with(labels, &options)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        assert_eq!(outcome.skipped, None);
        run.losses.push(outcome.loss);
        run.exponents
            .push(trainer.sites().map(|site| (site.name.to_owned(), site.alpha, site.row.counts().count)).collect());
    }
    let weights = trainer.parameters().expect("parameters");
    run.weights = weights.into_iter().map(|(name, tensor)| (name, tensor.data)).collect();
    run
}

/// How far two trainings are apart.
struct Distance {
    /// Between losses.
    losses: f64,
    /// Between weights, relative to a tensor's largest: running variances of bytes are as large as 10⁴.
    weights: f64,
    /// Between exponents of sites with few values, and with many.
    few: i32,
    many: i32,
}

/// A site may flush one value in a thousand. Where that is less than a few values, its exponent hangs on the smallest,
/// which is what rounding leaves of it.
const MANY: u64 = 4096;

fn distance(what: &str, a: &Run, b: &Run) -> Distance {
    let losses = a.losses.iter().zip(&b.losses).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
    let weights = a.weights.iter().zip(&b.weights).map(|((_, a), (_, b))| {
        let largest = b.iter().fold(f32::MIN_POSITIVE, |most, b| most.max(b.abs()));
        a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs() / largest)).fold(0.0, f64::max)
    });
    let mut distance = Distance { losses, weights: weights.fold(0.0, f64::max), few: 0, many: 0 };
    println!("{what}: losses apart by {losses:e} of {}, weights by {:e}", b.losses[0], distance.weights);
    println!("  first losses {:?} and {:?}", &a.losses[..3], &b.losses[..3]);
    for (step, (a, b)) in a.exponents.iter().zip(&b.exponents).enumerate() {
        for ((site, a, count), (_, b, _)) in a.iter().zip(b).filter(|(a, b)| a.1 != b.1) {
            println!("  step {step}: {site}, {count} values, at 2^{a} and 2^{b}");
            let most = if *count < MANY { &mut distance.few } else { &mut distance.many };
            *most = (*most).max((a - b).abs());
        }
    }
    distance
}

/// The order of sums is another on each device, so values may differ in their last digits, and a decision by one. Half
/// makes more of that: two instruction sets of the CPU are the measure.
#[test]
fn twenty_segnet_steps_agree_with_the_cpu() {
    for name in ["fp32", "gs:exact"] {
        let Some(gpu) = device() else { return };
        let gpu = twenty_steps(gpu, &method(name));
        let cpu = twenty_steps(Cpu::new(0).expect("threads"), &method(name));
        let other = twenty_steps(Cpu::with_isa(0, Isa::Portable).expect("threads"), &method(name));
        distance(&format!("{name}, two instruction sets"), &other, &cpu);
        let seen = distance(&format!("{name}, GPU and CPU"), &gpu, &cpu);
        let (losses, weights) = if name == "fp32" { (1e-5, 1e-3) } else { (0.06, 0.5) };
        assert!(seen.losses < losses && seen.weights < weights, "{name}: {:e}, {:e}", seen.losses, seen.weights);
        assert!(seen.many <= 1 && seen.few <= 4, "{name}: exponents differ by {} and {}", seen.many, seen.few);
    }
}
