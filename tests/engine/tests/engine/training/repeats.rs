//! Batches that do not fit at the exponents in force: they are repeated, and nothing is lost.
//!
//! A repeat must equal a step of another training, which starts from the same state and whose sites all decide inside
//! the step without a failed attempt before it.

use super::Data;
use gradscale::{
    Cause, Cpu, Gradients, Input, Method, Parameters, Pass, StepOutcome, Trainer, Var,
    gradscale_core::{backend::Backend, step_outcome::NonFiniteKind},
    nn::{BatchNorm, Linear, Module},
    optim::{Optimizer, Schedule, Sgd},
};
use gradscale_conformance::Recorder;
use std::collections::BTreeMap;

/// Network with everything that a repeat could get wrong: dropout, running statistics, momentum, a schedule.
struct Net {
    first: Linear,
    norm: BatchNorm,
    second: Linear,
}

struct Training<B: Backend> {
    net: Net,
    trainer: Trainer<B>,
}

impl Net {
    fn loss<'t>(&self, [x, target, factor]: [Var<'t>; 3]) -> Var<'t> {
        let y = self.norm.forward(self.first.forward(x)).relu().dropout(0.3);
        self.second.forward(y).mse_loss(target) * factor
    }
}

impl<B: Backend<Error: 'static>> Training<B> {
    fn on(device: B, method: &str) -> Self {
        let mut parameters = Parameters::seeded(7);
        let mut scope = parameters.at("net");
        let net = Net {
            first: Linear::new(&mut scope.at("first"), 4, 6),
            norm: BatchNorm::new(&mut scope.at("norm"), 6),
            second: Linear::new(&mut scope.at("second"), 6, 3),
        };
        let optimizer = Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.05) })
            .clip_norm(0.5)
            .schedule(Schedule::WarmupCosine { warmup: 3, steps: 40 });
        let method: Method = method.parse().expect("a method");
        Self { net, trainer: Trainer::new(device, parameters, optimizer, method).expect("a trainer") }
    }

    fn backward(&mut self, loss: &str, data: &Data) -> Gradients {
        self.trainer
            .backward(Pass::new(data.batch()).with_loss(loss), |all| self.net.loss(all))
            .expect("the batch fits")
    }

    fn step(&mut self, data: &Data) -> StepOutcome {
        let gradients = self.backward("", data);
        self.trainer.step(gradients).expect("a step")
    }

    fn bytes(&self) -> Vec<u8> {
        self.trainer.save(&BTreeMap::new()).expect("a checkpoint")
    }

    fn exponents(&self) -> Vec<i32> {
        self.trainer.sites().map(|site| site.alpha).collect()
    }
}

/// Whose exponents are as high as room allows, so that little more overflows.
const METHOD: &str = "gs:exact,interval=4,window=30";

fn cpu() -> Cpu {
    Cpu::new(1).expect("a CPU")
}

fn data(i: u64) -> Data {
    Data::new(100 + 2 * i, 8)
}

/// CRC-32C, by which a checkpoint ends.
fn checksum(bytes: &[u8]) -> [u8; 4] {
    let shifted = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
    let added = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| shifted(crc));
    (!bytes.iter().fold(!0, added)).to_le_bytes()
}

/// Header and tensors of a checkpoint.
fn parts(bytes: &[u8]) -> (String, Vec<u8>) {
    let length = usize::try_from(u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))).expect("small");
    let (header, tensors) = bytes[8..bytes.len() - 4].split_at(length);
    (String::from_utf8(header.to_vec()).expect("text"), tensors.to_vec())
}

/// Returns the same checkpoint, changed so that its sites decide inside the next step.
fn deciding(bytes: &[u8]) -> Vec<u8> {
    let (header, tensors) = parts(bytes);
    let now = header.replace(r#"\"at_once\":false"#, r#"\"at_once\":true "#);
    assert_ne!(now, header);
    let before = [&bytes[..8], now.as_bytes(), &tensors].concat();
    [&before[..], &checksum(&before)].concat()
}

/// Returns the content of a checkpoint without the counts of overflows, which are all that a failed attempt may change.
fn content(bytes: &[u8]) -> (String, Vec<u8>) {
    let (header, tensors) = parts(bytes);
    let pieces = header.split(r#"\"overflows\":"#).enumerate();
    let counted = |(i, text): (usize, &str)| {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        text[if i == 0 { 0 } else { digits }..].trim_end().to_owned()
    };
    (pieces.map(counted).collect(), tensors)
}

/// Calls between a backward pass and its step.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meanwhile {
    Nothing,
    /// The next batch is prefetched.
    Prefetch,
    /// Another batch of the same shapes and one of other shapes are evaluated, and statistics are read.
    Evaluation,
}

/// A step on a batch whose loss is 2^k times that of the others, after a few of these.
fn repeats<B: Backend<Error: 'static>>(open: impl Fn() -> B, loss: &str, k: i32, meanwhile: Meanwhile) {
    let mut training = Training::on(open(), METHOD);
    for i in 0..7 {
        let gradients = training.backward(loss, &data(i));
        let outcome = training.trainer.step(gradients).expect("a step");
        assert!(outcome.skipped.is_none() && outcome.repeated.is_empty(), "{outcome:?}");
    }
    let before = training.bytes();
    let exponents = training.exponents();
    let large = data(7).times(2f32.powi(k));
    let gradients = training.backward(loss, &large);
    let mut ahead = None;
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Prefetch => ahead = Some(training.trainer.prefetch(data(8).batch()).expect("sent")),
        Meanwhile::Evaluation => {
            for n in [8, 3] {
                let other = Data::new(5, n);
                training.trainer.evaluate(other.batch(), |all| training.net.loss(all)).expect("a score");
            }
        }
    }
    let outcome = training.trainer.step(gradients).expect("a step");
    assert_eq!((outcome.skipped.as_ref(), outcome.repeated.len()), (None, 1), "{outcome:?}");
    let repeated = &outcome.repeated[0];
    let first = training.trainer.sites().next().expect("a site").name.to_owned();
    assert_eq!(repeated.site, first, "the first behind the loss");
    // Excess: the exponent in force minus the largest exponent at which the batch would have fitted.
    let excess = repeated.excess.expect("it was finite");
    assert!(
        excess > 0 && (repeated.exponent, repeated.kind != NonFiniteKind::Nan) == (exponents[0], true),
        "{repeated:?}"
    );

    let mut other = Training::on(open(), METHOD);
    other.trainer.load(&deciding(&before)).expect("the same training");
    let gradients = other.backward(loss, &large);
    let same = other.trainer.step(gradients).expect("a step");
    assert!(same.repeated.is_empty(), "{same:?}");
    assert_eq!((same.loss.to_bits(), same.gradient_norm), (outcome.loss.to_bits(), outcome.gradient_norm));
    let [one, two] = [&training, &other].map(|training| content(&training.bytes()));
    assert!(one.1 == two.1, "weights, momentum or running statistics differ: {loss}, 2^{k}, {meanwhile:?}");
    if k < 30 {
        // If a jump exceeds FP16's range, the other sites keep their exponents, which the other training has not
        // decided.
        assert_eq!(one.0, two.0, "{loss}, 2^{k}, {meanwhile:?}");
    } else {
        assert_eq!(training.exponents(), exponents, "the others keep theirs");
    }
    assert_eq!(training.trainer.steps(), 8);

    // The prefetched batch is still the one that was sent.
    if let Some(ahead) = ahead {
        let one = training
            .trainer
            .backward(Pass::new(ahead).with_loss(loss), |all| training.net.loss(all))
            .expect("gradients");
        let one = training.trainer.step(one).expect("a step");
        let two = other.backward(loss, &data(8));
        assert_eq!(one.loss.to_bits(), other.trainer.step(two).expect("a step").loss.to_bits());
    }
}

#[test]
fn a_repeat_is_a_step_like_any_other() {
    for meanwhile in [Meanwhile::Nothing, Meanwhile::Prefetch, Meanwhile::Evaluation] {
        for (loss, k) in [("", 12), ("", 60), ("right", 12)] {
            repeats(cpu, loss, k, meanwhile);
            repeats(|| Recorder::new(cpu()), loss, k, meanwhile);
        }
    }
}

/// All micro-batches of a step are repeated, by the trainer in `step_with`, otherwise by the caller.
#[test]
fn micro_batches_are_repeated_together() {
    let three = |k: i32| [data(20), data(21).times(2f32.powi(k)), data(22)];
    let run = |training: &mut Training<Cpu>, parts: &[Data; 3]| {
        let first = training.backward("", &parts[0]);
        let Training { net, trainer } = training;
        let second = trainer
            .backward(Pass::new(parts[1].batch()).accumulate(first), |all| net.loss(all))
            .expect("the batch fits");
        trainer.backward(Pass::new(parts[2].batch()).accumulate(second), |all| net.loss(all)).expect("the batch fits")
    };
    let start = || {
        let mut training = Training::on(cpu(), METHOD);
        for _ in 0..6 {
            let gradients = run(&mut training, &three(0));
            assert_eq!(training.trainer.step(gradients).expect("a step").skipped, None);
        }
        training
    };
    // Repeated by the trainer.
    let mut one = start();
    let Training { net, trainer } = &mut one;
    let large = three(12);
    let outcome = trainer
        .step_with(|trainer| {
            let first = trainer.backward(large[0].batch(), |all| net.loss(all))?;
            let second = trainer.backward(Pass::new(large[1].batch()).accumulate(first), |all| net.loss(all))?;
            trainer.backward(Pass::new(large[2].batch()).accumulate(second), |all| net.loss(all))
        })
        .expect("a step");
    assert_eq!((outcome.skipped, outcome.repeated.len()), (None, 1));
    // Repeated by the caller, after the outcome requests it; meanwhile the training is killed and resumed.
    let mut after = Vec::new();
    for killed in [false, true] {
        let mut two = start();
        let before = two.trainer.parameters().expect("parameters");
        let gradients = run(&mut two, &large);
        let skipped = two.trainer.step(gradients).expect("a step").skipped.expect("it does not fit");
        assert_eq!(skipped.cause, Cause::Again);
        assert!(skipped.to_string().ends_with("; run the same batch again"), "{skipped}");
        assert_eq!(two.trainer.parameters().expect("parameters"), before);
        if killed {
            let bytes = two.bytes();
            two = Training::on(cpu(), METHOD);
            two.trainer.load(&bytes).expect("the same training");
        }
        let gradients = run(&mut two, &large);
        assert_eq!(two.trainer.step(gradients).expect("a step").skipped, None);
        assert_eq!(two.trainer.steps(), 7);
        after.push(content(&two.bytes()));
        // A batch that may be lost is remembered longer, so exponents differ by two bits, and with them how subnormals
        // are rounded; the same dropout, statistics and momentum, or they would differ in the first digits.
        let values = |training: &Training<Cpu>| -> Vec<f32> {
            training.trainer.parameters().expect("parameters").into_iter().flat_map(|(_, tensor)| tensor.data).collect()
        };
        for (two, one) in values(&two).into_iter().zip(values(&one)) {
            assert!((two - one).abs() <= 1e-7, "{two} instead of {one}");
        }
    }
    assert!(after[0] == after[1], "killed in the middle, it goes on bit for bit");
    // A caller who continues with other batches loses only this one, because the sites have learnt from it.
    let mut careless = start();
    let mut lost = 0;
    for i in 0..60 {
        let gradients = run(&mut careless, &three(if i % 3 == 2 { 12 } else { 0 }));
        lost += usize::from(careless.trainer.step(gradients).expect("a step").skipped.is_some());
    }
    assert!(lost <= 2, "{lost} of 60 were lost");
}

/// A failure that no exponent cures is retried only if an exponent could have been the cause, and changes no state.
#[test]
fn what_is_not_finite_is_skipped_and_moves_nothing() {
    for (bad, attempts) in [(f32::NAN, 1), (f32::INFINITY, 1)] {
        let mut training = Training::on(cpu(), METHOD);
        for i in 0..5 {
            training.step(&data(i));
        }
        let (before, exponents) = (training.trainer.parameters().expect("parameters"), training.exponents());
        // The bad value appears after the last store of the forward pass.
        let outcome = training.step(&data(5).times(bad));
        let skipped = outcome.skipped.expect("a skip");
        assert_eq!((skipped.cause, outcome.repeated.len()), (Cause::NotFinite, attempts), "{skipped}");
        assert_eq!(outcome.repeated[0].excess, None);
        assert_eq!(training.trainer.parameters().expect("parameters"), before);
        assert_eq!((training.exponents(), training.trainer.steps()), (exponents, 5));
        assert!(training.step(&data(6)).repeated.is_empty());
    }
}

/// As an option, a finite batch far above all others is skipped.
#[test]
fn outliers_are_left_out_by_choice() {
    for (method, cause) in [("gs:exact,outliers=24", Some(Cause::Outlier)), ("gs", None)] {
        let mut training = Training::on(cpu(), method);
        for i in 0..6 {
            training.step(&data(i));
        }
        let before = training.bytes();
        let outcome = training.step(&data(6).times(1e20));
        assert_eq!(outcome.skipped.as_ref().map(|skipped| skipped.cause), cause, "{outcome:?}");
        assert_eq!(outcome.repeated.len(), usize::from(cause.is_none()));
        assert_eq!(content(&training.bytes()).1 == content(&before).1, cause.is_some());
        // A batch within the outlier limit is trained like any other.
        assert_eq!(training.step(&data(7).times(2f32.powi(12))).skipped, None);
    }
}

/// A cell called six times, whose gradient grows from call to call: the merged rows of attempts that failed bring all
/// calls into range.
#[test]
fn a_shared_layer_is_repeated_until_all_calls_fit() {
    let mut parameters = Parameters::seeded(3);
    let cell = Linear::new(&mut parameters.at("cell"), 4, 4);
    let device = cpu();
    let mut trainer =
        Trainer::new(device, parameters, Sgd::new(0.0), METHOD.parse().expect("a method")).expect("a trainer");
    let mut step = |gain: f32, factor: f32| {
        let identity: Vec<f32> = (0..16).map(|i| if i % 5 == 0 { gain } else { 0.0 }).collect();
        trainer.set_parameter("cell.weight", &identity).expect("a parameter");
        let x: Vec<f32> = (0..32).map(|i| (i as f32 - 15.5) * 2f32.powi(-40)).collect();
        let batch = [Input::f32([8, 4], &x), Input::f32([1], std::slice::from_ref(&factor))];
        let gradients = trainer.backward(batch, |[x, factor]| {
            let mut x = x;
            for _ in 0..6 {
                x = cell.forward(x);
            }
            x.mean() * factor
        });
        trainer.step(gradients.expect("gradients")).expect("a step")
    };
    for _ in 0..3 {
        assert!(step(1.0, 1.0).skipped.is_none());
    }
    let mut repeats = 0;
    for gain in [2.0, 4.0, 6.0] {
        let outcome = step(gain, 1.0);
        println!("gain {gain}: {:?}", outcome.repeated);
        assert!(outcome.skipped.is_none() && outcome.repeated.len() <= 3, "{outcome:?}");
        repeats += outcome.repeated.len();
    }
    assert!(repeats > 0);
}

/// Labels of made-up points: which of two classes, by a rule that a small network learns.
fn points(i: u64) -> (Vec<f32>, Vec<u8>) {
    let x = crate::graph::values(1000 + i, 64);
    let labels = x.chunks(2).map(|p| u8::from(p[0] * p[1] > 0.0)).collect();
    (x, labels)
}

/// Right answers, in percent, after training with one loss in three 2^k times the others; attempts repeated, and steps
/// lost. Gradients are clipped where the large ones are: these do most of the learning.
fn alternating(method: &str, k: i32, every: u64) -> (f64, usize, usize) {
    let mut parameters = Parameters::seeded(1);
    let net = gradscale::models::Mlp::new(&mut parameters.at("net"), &[2, 32, 32, 2]);
    let optimizer = Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.3) }).clip_norm(0.5);
    let mut trainer = Trainer::new(cpu(), parameters, optimizer, method.parse().expect("a method")).expect("a trainer");
    let (mut repeats, mut skips) = (0, 0);
    for i in 0..300 {
        let (x, labels) = points(i);
        let factor =
            if i % every == every - 1 { 2f32.powi(k.max(0)) } else { 2f32.powi(-k.min(0)) } * 2f32.powi(-k.abs());
        let batch = [Input::f32([32, 2], &x), Input::u8([32], &labels), Input::f32([1], std::slice::from_ref(&factor))];
        let gradients = trainer.backward(batch, |[x, labels, factor]| net.forward(x).cross_entropy(labels) * factor);
        let outcome = trainer.step(gradients.expect("gradients")).expect("a step");
        repeats += outcome.repeated.len();
        skips += usize::from(outcome.skipped.is_some());
    }
    let (mut right, mut all) = (0, 0);
    for i in 0..20 {
        let (x, labels) = points(5000 + i);
        let best = trainer.evaluate_integers([Input::f32([32, 2], &x)], |[x]| net.forward(x).argmax());
        let best = best.expect("answers").data;
        right += best.iter().zip(&labels).filter(|(best, label)| **best == u32::from(**label)).count();
        all += labels.len();
    }
    (100.0 * right as f64 / all as f64, repeats, skips)
}

/// Losses that change by orders of magnitude from batch to batch: f32's result, where the rule before starves.
#[test]
fn alternating_losses_train_as_f32_does() {
    for k in [-12, 12, 20, 40] {
        let (single, ..) = alternating("fp32", k, 3);
        let (half, repeats, skips) = alternating("gs", k, 3);
        let (before, _, lost) = alternating("gs:exact,room=6,history=0", k, 3);
        println!("2^{k}: fp32 {single:.1}, gs {half:.1} with {repeats} repeats; before {before:.1}, {lost} lost");
        assert!(single > 90.0 && half > single - 3.0, "2^{k}: {half} beside {single}");
        assert_eq!(skips, 0);
        // Below FP16's range repeats are rare; beyond it, each large step is repeated.
        assert!(repeats <= if k > 24 { 102 } else { 15 }, "2^{k}: {repeats}");
        if k >= 20 {
            assert!(lost > 90 && before < single - 8.0, "2^{k}: {before} with {lost} lost");
        }
    }
}
