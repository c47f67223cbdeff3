//! Trainings in 8 bits: what they store, their bits on any number of threads, and after a resume.

use gradscale::{
    Cpu, Gradients, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::store_format::StoreFormat,
    models::SegNet,
    nn::{Linear, Module},
    optim::Sgd,
};
use half::f16;
use std::collections::BTreeMap;

const METHODS: [&str; 7] = [
    "gs:format=e5m2",
    "gs:grad=e5m2,act=e4m3,weight=e4m3,interval=2",
    "gs:grad=e4m3,act=e5m2",
    "amax:format=e5m2",
    "amax:history=4,margin=1,grad=e5m2,act=e4m3",
    "block:format=e4m3",
    "block:grad=e5m2,act=e4m3,weight=e4m3,size=128,scale=up",
];

/// Bits of the loss of a step, number of its repeats, and the gradients that its first attempt has stored, as bits.
type Stepped = (u32, usize, Vec<(String, Vec<u32>)>);

/// A network with normalisations, poolings, unpoolings and dropout, and a layer whose output branches to a sum.
struct Training {
    net: SegNet,
    head: Linear,
    trainer: Trainer<Cpu>,
}

impl Training {
    /// Creates a training that keeps every gradient, for [`Training::run`] to return.
    fn new(method: &str, threads: usize) -> Self {
        let Self { net, head, trainer } = Self::sharing_memory(method, threads);
        Self { net, head, trainer: trainer.with_options(TrainerOptions::new().with_all_kept()) }
    }

    /// Creates a training whose values share memory.
    fn sharing_memory(method: &str, threads: usize) -> Self {
        let mut parameters = Parameters::seeded(1);
        let net = SegNet::new(&mut parameters.at("net"), 3, 4, 4);
        let head = Linear::new(&mut parameters.at("head"), 4, 4);
        let method: Method = method.parse().unwrap_or_else(|error| panic!("{error}"));
        let sgd = Sgd { momentum: 0.9, ..Sgd::new(0.05) };
        let trainer = Trainer::new(Cpu::new(threads).expect("a CPU"), parameters, sgd, method).expect("a trainer");
        Self { net, head, trainer }
    }

    /// Computes the gradients of step `i`.
    fn backward(&mut self, i: u8) -> Gradients {
        let images: Vec<u8> = (0..2 * 18 * 20 * 3).map(|k: u32| (k * 31 % 251) as u8 ^ i).collect();
        let labels: Vec<u8> = (0..2 * 18 * 20).map(|k: u32| (k / 50 % 4) as u8).collect();
        let batch = [Input::u8([2, 18, 20, 3], &images), Input::u8([2, 18, 20, 1], &labels)];
        // The sixth step has gradients that exceed the history.
        let factor = if i == 6 { 2000.0 } else { 1e-4 };
        let (net, head) = (&self.net, &self.head);
        let gradients = self.trainer.backward(batch, |[x, labels]| {
            let y = net.forward(x).dropout(0.1);
            (head.forward(y) + y).cross_entropy(labels).scale(factor)
        });
        gradients.expect("gradients")
    }

    /// Trains steps, and returns the loss of each, the number of repeats, and the gradients that were stored in half.
    fn run(&mut self, steps: std::ops::Range<u8>) -> Vec<Stepped> {
        let one = |i: u8| {
            let gradients = self.backward(i);
            let stored = self.trainer.scaled_gradients(&gradients).expect("kept").into_iter();
            let stored = stored.map(|(name, gradient)| (name, bits(&gradient.data.data))).collect();
            let outcome = self.trainer.step(gradients).expect("a step");
            (outcome.loss.to_bits(), outcome.repeated.len(), stored)
        };
        steps.map(one).collect()
    }

    fn weights(&self) -> Vec<(String, Vec<u32>)> {
        let all = self.trainer.parameters().expect("parameters");
        all.into_iter().map(|(name, tensor)| (name, bits(&tensor.data))).collect()
    }
}

/// Returns the bits of values, because NaN is not equal to itself.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_training_has_the_same_bits_on_any_number_of_threads() {
    for method in METHODS {
        let mut one = Training::new(method, 1);
        let steps = one.run(0..8);
        assert!(steps.iter().all(|(loss, ..)| f32::from_bits(*loss).is_finite()), "{method}");
        assert_eq!(steps.iter().any(|(_, repeats, _)| *repeats > 0), method.starts_with("gs"), "{method}");
        let mut three = Training::new(method, 3);
        assert!(three.run(0..8) == steps, "{method}");
        assert!(three.weights() == one.weights(), "{method}");
        let saved = |training: &Training| training.trainer.save(&BTreeMap::new()).expect("a checkpoint");
        assert!(saved(&three) == saved(&one), "{method}");
    }
}

#[test]
fn a_resumed_training_goes_on_bit_for_bit() {
    for method in METHODS {
        let mut whole = Training::new(method, 2);
        let expected = whole.run(0..10);
        // 7: after the overflow.
        for cut in [3, 7] {
            let mut first = Training::new(method, 2);
            first.run(0..cut);
            let bytes = first.trainer.save(&BTreeMap::new()).expect("a checkpoint");
            let mut second = Training::new(method, 2);
            second.trainer.load(&bytes).expect("the same training");
            assert!(second.run(cut..10) == expected[usize::from(cut)..], "{method}, cut at {cut}");
            assert!(second.weights() == whole.weights(), "{method}, cut at {cut}");
        }
        let mut other = Training::new("gs", 2);
        other.run(0..1);
        let error = other.trainer.load(&whole.trainer.save(&BTreeMap::new()).expect("a checkpoint"));
        assert!(error.expect_err("another method").to_string().contains(" in the checkpoint, "), "{method}");
    }
}

/// Every gradient that a method of FP16 stores in half is a value of the method's format, wherever it comes from.
#[test]
fn all_halves_are_values_of_their_format() {
    let halves: Vec<String> = {
        let steps = Training::new("gs:forward=on", 1).run(0..2);
        let is_half = |&bits: &u32| f16::from_f32(f32::from_bits(bits)).to_f32().to_bits() == bits;
        steps[1].2.iter().filter(|(_, values)| values.iter().all(is_half)).map(|(name, _)| name.clone()).collect()
    };
    assert!(halves.len() > 20, "{halves:?}");
    for (method, format) in [(METHODS[0], StoreFormat::E5m2), (METHODS[2], StoreFormat::E4m3)] {
        let steps = Training::new(method, 1).run(0..3);
        let is_rounded = |&bits: &u32| format.round(f32::from_bits(bits)).to_f32().to_bits() == bits;
        for (name, values) in steps.iter().flat_map(|(.., stored)| stored).filter(|(name, _)| halves.contains(name)) {
            let other = values.iter().find(|value| !is_rounded(value)).map(|&bits| f32::from_bits(bits));
            assert_eq!(other, None, "{method}: {name}");
        }
    }
}

/// A value that waits for the backward pass as bytes comes back with the same bits, and so does a copy that is made again.
#[test]
fn values_that_wait_in_less_memory_have_the_same_bits() {
    let mut activations = Vec::new();
    for method in ["gs", "gs:forward=on"].into_iter().chain(METHODS) {
        let (mut kept, mut shared) = (Training::new(method, 1), Training::sharing_memory(method, 2));
        for (i, (loss, repeats, _)) in (0..8).zip(kept.run(0..8)) {
            let gradients = shared.backward(i);
            let outcome = shared.trainer.step(gradients).expect("a step");
            assert_eq!((outcome.loss.to_bits(), outcome.repeated.len()), (loss, repeats), "{method}, step {i}");
        }
        assert!(shared.weights() == kept.weights(), "{method}");
        activations.push(shared.trainer.memory().activations);
    }
    let [half, _, eight_bits, ..] = activations[..] else { panic!("{activations:?}") };
    assert!(eight_bits < half, "{activations:?}");
}
