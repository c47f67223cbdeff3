//! Sequences of many lengths: each is a program of its own, all share the memory of the longest, and steps are recorded.

use gradscale::{
    Batch, Cpu, Method, Parameters, Trainer,
    core::backend::Backend,
    nn::{Linear, Module},
    optim::Optimizer,
};
use gradscale_conformance::Recorder;

const LENGTHS: usize = 200;
const WIDTH: usize = 8;

/// Each length once, in an order that is the same for all passes.
fn order() -> impl Iterator<Item = usize> {
    // 67 and 200 have no common factor.
    (0..LENGTHS).map(|i| i * 67 % LENGTHS + 1)
}

/// Steps of these lengths: weights, bytes of activations.
fn train<B: Backend>(trainer: Trainer<B>, net: &[Linear; 3], lengths: impl Iterator<Item = usize>) -> (Vec<u32>, u64) {
    let mut trainer = trainer;
    for len in lengths {
        let x: Vec<f32> = (0..len * WIDTH).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let labels: Vec<u8> = (0..len).map(|i| u8::try_from(i * i % 5).expect("below 5")).collect();
        let batch = [Batch::f32([1, 1, len, WIDTH], &x), Batch::u8([1, 1, len], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| {
            let x = net[0].forward(x)?.tanh();
            // Two branches that meet, and a softmax over the length.
            let scores = x.matmul_transposed(x)?.causal_softmax()?;
            let mixed = scores.matmul(net[1].forward(x)?)?.add(x)?;
            net[2].forward(mixed)?.cross_entropy(labels)
        });
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        assert!(outcome.skipped.is_none() && outcome.loss.is_finite());
    }
    let bytes = trainer.memory().activations;
    let weights = trainer.parameters().expect("weights").into_iter();
    (weights.flat_map(|(_, tensor)| tensor.data.into_iter().map(f32::to_bits)).collect(), bytes)
}

fn start<B: Backend>(device: B) -> (Trainer<B>, [Linear; 3]) {
    let mut parameters = Parameters::seeded(0);
    let net = ["a", "b", "c"].map(|name| {
        let outputs = if name == "c" { 5 } else { WIDTH };
        Linear::new(&mut parameters.at(name), WIDTH, outputs)
    });
    let method: Method = "gs".parse().expect("a method");
    (Trainer::new(device, parameters, Optimizer::sgd(0.1).momentum(0.9), method).expect("a trainer"), net)
}

#[test]
fn memory_is_that_of_the_longest() {
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (_, longest) = train(trainer, &net, [LENGTHS; 3].into_iter());
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (_, all) = train(trainer, &net, order().chain(order()));
    println!("{LENGTHS} lengths: {all} bytes of activations, the longest alone {longest}");
    assert!(all as f64 <= 1.05 * longest as f64, "{all} bytes, the longest alone {longest}");
}

#[test]
fn each_length_is_recorded_with_the_same_bits() {
    let lengths = || order().chain(order()).chain(order()).chain(order());
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (plain, _) = train(trainer, &net, lengths());
    let recorder = Recorder::new(Cpu::new(1).expect("threads"));
    let repeats = recorder.repeats();
    let (trainer, net) = start(recorder);
    let (recorded, _) = train(trainer, &net, lengths());
    println!("{} of {} steps were recordings", repeats.get(), 4 * LENGTHS);
    assert!(plain == recorded, "other weights");
    // The first pass makes memory grow and decides, the second runs as it is, from the third on all is recorded.
    assert!(repeats.get() >= 2 * LENGTHS, "{} repeats", repeats.get());
}

#[test]
fn programs_that_were_evicted_come_again() {
    let lengths = || order().take(20).chain(order().take(20));
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (all, _) = train(trainer, &net, lengths());
    let (trainer, net) = start(Cpu::new(1).expect("threads"));
    let (few, _) = train(trainer.with_programs(3), &net, lengths());
    assert!(all == few, "other weights");
}
