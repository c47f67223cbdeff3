//! Timed launches: those of the step, with the bits of a training in which nothing is timed.

#![allow(clippy::unwrap_used, reason = "a test")]

use gradscale::{
    Input, LaunchTime, Method, Parameters, Trainer, TrainerOptions, models::SegNet, nn::Module, optim::Sgd,
};
use gradscale_conformance::Counting;
use gradscale_core::backend::{Backend, Cost};

const SIDE: usize = 16;
const STEPS: usize = 6;
/// Recorded by then where a device records.
const TIMED: [usize; 2] = [4, 5];

/// Results of a training: losses, weights, times, and the operators that each step called.
struct Trained {
    bits: Vec<u32>,
    times: Vec<LaunchTime>,
    operators: Vec<u64>,
}

fn train<B: Backend<Error: 'static>>(device: B, recorded: bool, timed: &[usize]) -> Trained {
    let mut parameters = Parameters::seeded(3);
    let net = SegNet::new(&mut parameters.at("net"), 3, 8, 4);
    let optimizer = Sgd { momentum: 0.9, ..Sgd::new(0.05) };
    let method: Method = "gs:exact".parse().unwrap();
    let device = Counting::new(device);
    let mut trainer = Trainer::new(device, parameters, optimizer, method)
        .unwrap()
        .with_options(TrainerOptions::new().with_recording(recorded));
    let pixels = 2 * SIDE * SIDE;
    let images: Vec<u8> = (0..pixels * 3).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect();
    let labels: Vec<u8> = (0..pixels).map(|i| (i / 37 % 4).to_le_bytes()[0]).collect();
    let (mut bits, mut operators) = (vec![], vec![]);
    for step in 0..STEPS {
        trainer.time_launches(timed.contains(&step)).unwrap();
        trainer.device().take();
        let batch = [Input::u8([2, SIDE, SIDE, 3], &images), Input::u8([2, SIDE, SIDE, 1], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).unwrap();
        bits.push(trainer.step(gradients).unwrap().loss.to_bits());
        operators.push(trainer.device().take().operators);
    }
    bits.extend(trainer.parameters().unwrap().iter().flat_map(|(_, tensor)| tensor.data.iter().map(|v| v.to_bits())));
    Trained { bits, times: trainer.launch_times(), operators }
}

/// The launches, bytes and operations of a step by hand, for halves: each tensor once, two operations a product.
fn by_hand(times: &[LaunchTime]) {
    let pixels = 2u64 * 16 * 16;
    let expected = [
        // Images, 147 weights for each of 8 outputs, results: halves. The gradient of weights is f32.
        ("conv", "forward 2x16x16x3 7x7x8", 1, 2 * (3 * pixels + 8 * 147 + 8 * pixels), 2 * pixels * 8 * 147),
        ("conv", "weight 2x16x16x3 7x7x8", 1, 2 * 3 * pixels + 2 * 8 * pixels + 4 * 8 * 147, 2 * pixels * 8 * 147),
        ("conv", "forward 2x16x16x8 7x7x8", 1, 2 * (8 * pixels + 8 * 392 + 8 * pixels), 2 * pixels * 8 * 392),
        ("conv", "data 2x16x16x8 7x7x8", 1, 2 * (8 * pixels + 8 * 392 + 8 * pixels), 2 * pixels * 8 * 392),
        ("conv", "weight 2x16x16x8 7x7x8", 1, 2 * (8 * pixels + 8 * pixels) + 4 * 8 * 392, 2 * pixels * 8 * 392),
        // The second level of the encoder, and of the decoder.
        ("conv", "forward 2x8x8x8 7x7x8", 2, 2 * 2 * (2 * 8 * 128 + 8 * 392), 2 * 2 * 128 * 8 * 392),
        // One byte for each window stores the position of its maximum; each window needs four comparisons.
        ("pool", "2x16x16x8 2x2", 1, 2 * 8 * pixels + 3 * 2 * 8 * pixels / 8, 8 * pixels),
        // One launch for all weights; two products and two sums each.
        ("optimize", "sgd", 1, 0, 4 * (8 * 147 + 7 * 8 * 392 + 8 * 2 * 8 + 4 * 8 + 4)),
    ];
    let steps = TIMED.len() as u64;
    for (name, shape, launches, bytes, operations) in expected {
        let row = times.iter().find(|row| row.name == name && row.shape == shape);
        let row = row.unwrap_or_else(|| panic!("no {name} {shape} in {times:#?}"));
        assert_eq!(row.launches, steps * launches, "{name} {shape}");
        assert_eq!(row.cost.operations, steps * operations, "{name} {shape}");
        if bytes > 0 {
            assert_eq!(row.cost.bytes, steps * bytes, "{name} {shape}");
        }
    }
}

/// Every launch of a step has a time, its bytes and operations are those of its shapes, and nothing else changes.
pub fn launches_are_timed<B: Backend<Error: 'static>>(open: impl Fn() -> B) {
    // Launch by launch, so that every step calls all of its operators.
    let plain = train(open(), false, &[]);
    assert!(plain.times.is_empty());
    let in_a_step = plain.operators[TIMED[0]];
    assert!(in_a_step > 60, "{in_a_step}");
    let Trained { bits, times, operators } = train(open(), true, &TIMED);
    assert_eq!(bits, plain.bits, "the bits of a training that is not timed");
    let launches: u64 = times.iter().map(|row| row.launches).sum();
    assert_eq!(launches, in_a_step * TIMED.len() as u64, "all launches of two steps");
    assert!(TIMED.iter().all(|&step| operators[step] == in_a_step), "{operators:?}");
    by_hand(&times);
    assert!(times.is_sorted_by(|a, b| a.seconds >= b.seconds));
    let (seconds, shares): (f64, f64) = times.iter().fold((0.0, 0.0), |(s, r), row| (s + row.seconds, r + row.share));
    assert!(seconds > 0.0 && (shares - 1.0).abs() < 1e-9, "{seconds} s, {shares} of it");
    // Timed from the first step on, so timing also covers the warm-up.
    let from_the_start = train(open(), true, &[0, 1, 2, 3]);
    assert_eq!(from_the_start.bits, plain.bits);
    let idle = from_the_start.times.iter().all(|row| row.cost == Cost::default());
    assert!(!idle);
}
