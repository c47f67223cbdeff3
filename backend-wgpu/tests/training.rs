//! The engine on a GPU: steps agree with the CPU's, shift invariance holds, recorded steps are eager ones.
//!
//! Without an adapter the tests say so and pass; with `GRADSCALE_REQUIRE_DEVICE=1` they fail.

#[path = "../../tests/tests/shift/nets.rs"]
mod nets;

use gradscale::{
    Batch, Cpu, CrossEntropy, Method, Parameters, Trainer,
    core::{backend::Backend, descriptor::Divisor},
    models::SegNet,
    nn::Module,
    optim::Optimizer,
};
use gradscale_wgpu::Wgpu;
use nets::{Setting, Trained, mlp, segnet};

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

const NETS: [(&str, Train); 2] = [("MLP", mlp::<Wgpu>), ("SegNet", segnet::<Wgpu>)];

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
    exponents: Vec<Vec<(String, i32)>>,
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
        run.exponents.push(trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect());
    }
    let weights = trainer.parameters().expect("parameters");
    run.weights = weights.into_iter().map(|(name, tensor)| (name, tensor.data)).collect();
    run
}

/// The order of sums is another on each device, so values may differ in their last digits, and a decision by one.
#[test]
fn twenty_segnet_steps_agree_with_the_cpu() {
    for name in ["fp32", "gs:exact"] {
        let Some(gpu) = device() else { return };
        let gpu = twenty_steps(gpu, &method(name));
        let cpu = twenty_steps(Cpu::new(0).expect("threads"), &method(name));
        let losses = gpu.losses.iter().zip(&cpu.losses).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        // Of a tensor's largest element: running variances of bytes are as large as 10⁴.
        let distance = |(a, b): (&Vec<f32>, &Vec<f32>)| {
            let largest = b.iter().fold(f32::MIN_POSITIVE, |most, b| most.max(b.abs()));
            a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs() / largest)).fold(0.0, f64::max)
        };
        let tensors = gpu.weights.iter().zip(&cpu.weights).map(|((name, a), (_, b))| (distance((a, b)), name));
        let (weights, furthest) = tensors.max_by(|a, b| a.0.total_cmp(&b.0)).expect("parameters");
        println!(
            "{name}: losses differ by at most {losses:e} of {}, weights by {weights:e}, in {furthest}",
            cpu.losses[0]
        );
        let mut apart = 0;
        for (step, (gpu, cpu)) in gpu.exponents.iter().zip(&cpu.exponents).enumerate() {
            for ((site, a), (_, b)) in gpu.iter().zip(cpu) {
                if a != b {
                    println!("  step {step}: {site} at 2^{a}, on the CPU at 2^{b}");
                    apart += 1;
                    assert!((a - b).abs() <= 1, "{name}, step {step}, {site}: {a} and {b}");
                }
            }
        }
        let sites = gpu.exponents.iter().map(Vec::len).sum::<usize>();
        assert!(apart * 20 <= sites, "{apart} of {sites} exponents differ");
        let (loss_bound, weight_bound) = if name == "fp32" { (1e-4, 1e-3) } else { (1e-2, 5e-2) };
        assert!(losses < loss_bound && weights < weight_bound, "{name}: {losses:e}, {weights:e}");
    }
}
