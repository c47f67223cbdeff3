//! The engine on this backend: SegNet trained for some steps. Recorded steps have the bits of eager ones. A loss times
//! 2^-30 gives the same weights, with exponents that are 30 higher. Steps agree with the CPU's, and batches may be
//! prefetched.

#![allow(clippy::cast_possible_truncation, reason = "a test: small sizes")]

#[path = "../../../tests/engine/tests/ahead/mod.rs"]
mod ahead;
#[path = "../../../tests/engine/tests/beside/mod.rs"]
mod beside;
#[path = "../../../tests/engine/tests/timed/mod.rs"]
mod timed;
#[path = "../../../tests/engine/tests/weights/mod.rs"]
mod weights;

use gradscale::{
    Cpu, CrossEntropy, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::{backend::Backend, ops::Divisor},
    models::SegNet,
    nn::Module,
    optim::Sgd,
};

const STEPS: usize = 20;
/// Number of steps in eight bits, enough for a decision after the first one.
const STEPS_IN_EIGHT_BITS: usize = 12;
// Small, but at the innermost level still 2 × 2: a batch norm over few values amplifies the last digits.
const SIDE: usize = 24;
const IMAGES: [usize; 4] = [2, SIDE, SIDE, 3];

/// Results of a training.
#[derive(Debug, PartialEq)]
struct Trained {
    losses: Vec<f32>,
    weights: Vec<Vec<u32>>,
    exponents: Vec<Vec<i32>>,
    skipped: usize,
}

/// Bytes that look like little structure and much noise.
fn noise(len: usize, below: u32) -> Vec<u8> {
    let mut state = 7u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % below
    };
    (0..len).map(|_| u8::try_from(next()).expect("below 256")).collect()
}

/// Trains SegNet of width 8: loss times 2^-shift, decay times 2^-shift, learning rate times 2^shift.
fn train<B: Backend<Error: 'static>>(device: B, method: &str, steps: usize, recorded: bool, shift: i32) -> Trained {
    train_width(device, 8, method, steps, recorded, shift)
}

/// Trains SegNet with that many channels in every layer.
fn train_width<B: Backend<Error: 'static>>(
    device: B, width: usize, method: &str, steps: usize, recorded: bool, shift: i32,
) -> Trained {
    let small = 2f32.powi(-shift);
    let mut parameters = Parameters::seeded(3);
    let net = SegNet::new(&mut parameters.at("net"), 3, width, 4);
    let optimizer = Sgd { momentum: 0.9, weight_decay: 5e-4 * small, ..Sgd::new(0.05 / f64::from(small)) };
    let method: Method = method.parse().expect("a method");
    let mut trainer = Trainer::new(device, parameters, optimizer, method)
        .expect("a trainer")
        .with_options(TrainerOptions::new().with_recording(recorded));
    let (images, labels) = (noise(2 * SIDE * SIDE * 3, 256), noise(2 * SIDE * SIDE, 4));
    let options =
        || CrossEntropy { weights: None, ignore: None, divisor: Divisor::Fixed((2 * SIDE * SIDE) as f32 / small) };
    let (mut losses, mut exponents, mut skipped) = (vec![], vec![], 0);
    for _ in 0..steps {
        let batch = [Input::u8(IMAGES, &images), Input::u8([2, SIDE, SIDE, 1], &labels)];
        let gradients = trainer
            .backward(batch, |[x, labels]| net.forward(x).cross_entropy_with(labels, &options()))
            .expect("a backward pass");
        let outcome = trainer.step(gradients).expect("a step");
        losses.push(outcome.loss / small);
        skipped += usize::from(outcome.skipped.is_some());
        exponents.push(trainer.sites().map(|site| site.alpha - shift).collect());
    }
    let weights = trainer.parameters().expect("readable").into_iter();
    let weights = weights.map(|(_, tensor)| tensor.data.iter().map(|v| v.to_bits()).collect()).collect();
    Trained { losses, weights, exponents, skipped }
}

/// Trains some steps with 32 channels, for which there are halo tiles: recorded steps have the bits of eager ones, and losses
/// are those of the CPU.
pub fn check_few_channels<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    let steps = 4;
    let eager = train_width(open(), 32, "gs:exact", steps, false, 0);
    assert_eq!(train_width(open(), 32, "gs:exact", steps, true, 0), eager, "recorded steps");
    let cpu = train_width(Cpu::new(0).expect("threads"), 32, "gs:exact", steps, false, 0);
    for (here, there) in eager.losses.iter().zip(&cpu.losses) {
        assert!((here / there - 1.0).abs() < 0.01, "losses {:?}, {:?} on a CPU", eager.losses, cpu.losses);
    }
}

/// Runs all of these tests, and those that other devices share.
pub fn check<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    let eager = train(open(), "gs:exact", STEPS, false, 0);
    assert_eq!(eager.skipped, 0);
    assert!(eager.exponents.iter().all(|sites| sites.len() > 8), "cast sites: {:?}", eager.exponents);
    assert!(eager.losses[STEPS - 1] < 0.9 * eager.losses[0], "does not learn: {:?}", eager.losses);
    assert_eq!(train(open(), "gs:exact", STEPS, true, 0), eager, "recorded steps");
    // Losses are not compared: theirs has another last digit where it is divided.
    let shifted = train(open(), "gs:exact", STEPS, true, 30);
    assert_eq!((&shifted.weights, &shifted.exponents), (&eager.weights, &eager.exponents), "a shifted loss");
    // Stores in formats of eight bits and in blocks of these, eager and recorded, at two sizes of the loss.
    for method in ["gs:grad=e5m2,act=e4m3,weight=e4m3", "block:grad=e5m2,act=e4m3,weight=e4m3,scale=up"] {
        let [eager, shifted] = [(false, 0), (true, 30)]
            .map(|(recorded, shift)| train(open(), method, STEPS_IN_EIGHT_BITS, recorded, shift));
        assert_eq!(shifted.weights, eager.weights, "{method}");
        // Blocks have no exponents that move with the loss.
        assert_eq!(shifted.exponents == eager.exponents, method.starts_with("gs"), "{method}");
        assert_eq!(eager.skipped, 0, "{method}");
        let cpu = train(Cpu::new(1).expect("a CPU"), method, STEPS_IN_EIGHT_BITS, false, 0);
        println!("{method}: losses {:?}, {:?} on a CPU", eager.losses, cpu.losses);
        for (here, there) in eager.losses.iter().zip(&cpu.losses) {
            assert!(
                (here / there - 1.0).abs() < 0.05,
                "{method}: losses {:?}, {:?} on a CPU",
                eager.losses,
                cpu.losses
            );
        }
    }
    ahead::batches_sent_ahead(&open);
    beside::segnet_beside_the_cpu(&open);
    timed::launches_are_timed(&open);
    weights::weight_gradients_in_half(open);
}
