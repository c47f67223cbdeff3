//! Layers that are called several times in a step.

use crate::{corners::trainer, graph::values};
use gradscale::{
    Cpu, Init, Input, Parameters, Pass, Trainer, TrainerOptions, Var,
    nn::{BatchNorm, Linear, Module},
    optim::{AdamW, Optimizer, Sgd},
};
use gradscale_conformance::Recorder;

/// Called twice in a step, a batch norm has seen two batches: its running statistics go towards their mean.
#[test]
fn running_statistics_of_a_shared_norm() {
    let mut parameters = Parameters::seeded(1);
    let norm = BatchNorm::new(&mut parameters.at("norm"), 1);
    let mut trainer = trainer(parameters, "fp32");
    // Means 2 and 4; unbiased variances 2 and 8.
    let batch = [Input::f32([2, 1], &[1.0, 3.0]), Input::f32([2, 1], &[2.0, 6.0])];
    let gradients = trainer.backward(batch, |[x, y]| (norm.forward(x) + norm.forward(y)).square().mean()).unwrap();
    trainer.step(gradients).unwrap();
    let running = trainer.parameter("norm.running").unwrap().data;
    // One step of 0.1 towards the mean; or PyTorch's two, one after the other.
    let [mean, variance] = [running[0], running[1]];
    let one = [0.1 * 3.0, 0.9 + 0.1 * 5.0];
    let two = [0.9 * 0.2 + 0.4, 0.81 + 0.09 * 2.0 + 0.1 * 8.0];
    let near = |right: [f32; 2]| (mean - right[0]).abs() < 1e-6 && (variance - right[1]).abs() < 1e-6;
    assert!(near(one) || near(two), "{running:?} is neither {one:?} nor {two:?}");
}

/// A shared layer of whose calls the first on the way back has a gradient of zeros.
#[test]
fn a_shared_site_that_first_sees_zeros() {
    let mut parameters = Parameters::seeded(1);
    let [first, shared] = ["first", "shared"].map(|name| Linear::new(&mut parameters.at(name), 4, 4));
    let mut trainer = trainer(parameters, "gs:exact");
    let (x, tiny, zero) = (values(1, 16), [2f32.powi(-40); 16], [0.0; 16]);
    let mut exponents = Vec::new();
    for _ in 0..15 {
        let batch = [Input::f32([4, 4], &x), Input::f32([4, 4], &tiny), Input::f32([4, 4], &zero)];
        let gradients = trainer.backward(batch, |[x, tiny, zero]| {
            let once = shared.forward(first.forward(x));
            let twice = shared.forward(once);
            (once * tiny).sum() + (twice * zero).sum()
        });
        trainer.step(gradients.unwrap()).unwrap();
        let site = trainer.sites().find(|site| site.name == "shared/dgrad").unwrap();
        exponents.push((site.alpha, site.gamma_measured));
    }
    let (alpha, gamma) = exponents[14];
    assert!(gamma < 1e-3 && alpha > 20, "{exponents:?}");
}

/// The same layer after an overflow: the merged rows decide. Without repeats it costs one step, with them none.
#[test]
fn a_jump_at_a_shared_layer_costs_one_step() {
    assert_eq!(jump("gs:exact,room=6,history=0").0, [4]);
    let (skipped, repeats) = jump("gs:exact");
    assert_eq!(skipped, [0; 0]);
    // 2^40 exceeds the range of FP16, until such steps are the majority of the history.
    assert!(repeats[..4] == [0; 4] && repeats[13..] == [0; 7], "{repeats:?}");
    assert!(repeats[4] > 0 && repeats.iter().all(|&repeats| repeats <= 3), "{repeats:?}");
}

/// Steps that were skipped, and repeats of each.
fn jump(method: &str) -> (Vec<usize>, Vec<usize>) {
    let mut parameters = Parameters::seeded(1);
    let shared = Linear::new(&mut parameters.at("shared"), 4, 4);
    let mut trainer = trainer(parameters, method);
    let x = values(1, 16);
    let (mut skipped, mut repeats) = (Vec::new(), Vec::new());
    for step in 0..20 {
        // Narrow tensors have 30 bits of room.
        let factor = [if step < 4 { 1e-9 } else { 1e3 }];
        let batch = [Input::f32([4, 4], &x), Input::f32([1], &factor)];
        let gradients = trainer.backward(batch, |[x, factor]| {
            let mut x = shared.forward(x);
            for _ in 0..3 {
                x = shared.forward(x.relu()) + x;
            }
            x.square().mean() * factor
        });
        let outcome = trainer.step(gradients.expect("a backward pass").clip_norm(1e-12)).expect("a step");
        repeats.push(outcome.repeated.len());
        if outcome.skipped.is_some() {
            skipped.push(step);
        }
    }
    (skipped, repeats)
}

const CALLS: usize = 60;

fn called<'t>(first: &Linear, shared: &Linear, x: Var<'t>) -> Var<'t> {
    let mut x = first.forward(x);
    for _ in 0..CALLS {
        x = shared.forward(x);
    }
    x.sum()
}

/// Returns the gradient before 60 calls of a layer that halves: 2^-60 of the loss's gradient, beyond FP16's range.
fn through_many_calls(method: &str, micro: usize) -> (Vec<f32>, Vec<(String, i32)>) {
    let mut parameters = Parameters::seeded(1);
    let [first, shared] = ["first", "shared"].map(|name| Linear::new(&mut parameters.at(name), 4, 4));
    let mut trainer = trainer(parameters, method);
    let half: Vec<f32> = (0..16u8).map(|i| if i % 5 == 0 { 0.5 } else { 0.0 }).collect();
    trainer.set_parameter("shared.weight", &half).expect("16 weights");
    trainer.set_parameter("shared.bias", &[0.0; 4]).expect("4 biases");
    let x: Vec<f32> = (0..16u8).map(|i| f32::from(i) + 1.0).collect();
    let mut found = Vec::new();
    for _ in 0..2 {
        let batch = || [Input::f32([4, 4], &x)];
        let mut gradients = trainer.backward(batch(), |[x]| called(&first, &shared, x)).expect("gradients");
        for _ in 1..micro {
            gradients = trainer
                .backward(Pass::new(batch()).accumulate(gradients), |[x]| called(&first, &shared, x))
                .expect("gradients");
        }
        found = trainer.gradient(&gradients, "first.weight").expect("a parameter").expect("its gradient").data;
        assert!(trainer.step(gradients.clip_norm(1e-30)).expect("a step").skipped.is_none());
    }
    (found, trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect())
}

/// All values are powers of two and small integers, so with an exponent for each call nothing is rounded (spec 6).
#[test]
fn each_call_may_have_its_own_exponent() {
    let (right, none) = through_many_calls("fp32", 1);
    assert!(none.is_empty() && right.iter().all(|&value| value != 0.0));
    let (merged, sites) = through_many_calls("gs", 1);
    // The sum that the loss is, and the shared layer.
    assert!(merged.iter().all(|&value| value == 0.0), "{merged:?}");
    assert_eq!(sites.iter().filter(|(name, _)| name.starts_with("shared/dgrad")).count(), 1);
    for method in ["gs:calls=each", "gs:paper,calls=each"] {
        let (each, sites) = through_many_calls(method, 1);
        assert_eq!(each, right, "{method}");
        let exponent = |name: &str| sites.iter().find(|(found, _)| found == name).map(|(_, alpha)| *alpha);
        let [near, next, far] = ["shared/dgrad", "shared/dgrad@2", "shared/dgrad@60"].map(exponent);
        assert!(near <= next && next < far, "{method}");
        if method.starts_with("gs:calls") {
            // The paper's rule decides by a model of products, this one by the values, which are halved each time.
            assert_eq!(near.map(|near| [near + 1, near + 59]), next.zip(far).map(|(next, far)| [next, far]));
        }
        assert_eq!(exponent("shared/dgrad@61"), None);
        // Micro-batches of a step have the sites of one.
        let (twice, same) = through_many_calls(method, 2);
        assert_eq!(same.len(), sites.len());
        assert!(twice.iter().zip(&right).all(|(twice, &right)| *twice == 2.0 * right), "{method}");
    }
}

/// A weight that is first read in f32, and in half by another network later: updates that are recorded by then write the
/// half copy too.
#[test]
fn a_half_copy_that_comes_late() {
    let train = |early: bool, recording: bool| {
        let mut parameters = Parameters::seeded(1);
        let weight = parameters.at("net").weight("w", [4, 4], Init::FanIn);
        let device = Recorder::new(Cpu::new(1).expect("a CPU"));
        let method = "dynamic".parse().expect("a method");
        let trainer = Trainer::new(device, parameters, Sgd::new(0.1), method).expect("a trainer");
        let mut trainer = trainer.with_options(TrainerOptions::new().with_recording(recording));
        let x = values(3, 16);
        let batch = || [Input::f32([4, 4], &x)];
        let product = |trainer: &mut Trainer<_>| {
            trainer
                .evaluate(batch(), |[x]| x.linear("product", x.tape().parameter(&weight), None))
                .expect("it fits")
                .data
        };
        if early {
            product(&mut trainer);
        }
        for step in 0..12 {
            if step == 6 {
                product(&mut trainer);
            }
            let gradients = trainer.backward(batch(), |[x]| (x * x.tape().parameter(&weight)).square().mean());
            assert_eq!(trainer.step(gradients.expect("it fits")).expect("a step").skipped, None);
        }
        (product(&mut trainer), trainer.parameter("net.w").expect("it is there").data)
    };
    let right = train(true, false);
    for (early, recording) in [(false, false), (true, true), (false, true)] {
        assert_eq!(train(early, recording), right, "{early} {recording}");
    }
}

/// Forward and backward pass, norm of all gradients, updates of all groups, running statistics: from the third step on,
/// nothing is launched by itself.
#[test]
fn the_whole_step_is_recorded() {
    let mut parameters = Parameters::seeded(1);
    let [one, two] = ["one", "two"].map(|name| Linear::new(&mut parameters.at(name), 4, 4));
    let norm = BatchNorm::new(&mut parameters.at("norm"), 4);
    let recorder = Recorder::new(Cpu::new(1).expect("a CPU"));
    let (launched, repeats) = (recorder.launched(), recorder.repeats());
    let optimizer = Optimizer::from(AdamW::new(0.1)).clip_norm(1.0).group("two", 0.01, 0.0);
    let mut trainer =
        Trainer::new(recorder, parameters, optimizer, "gs".parse().expect("a method")).expect("a trainer");
    let mut seen = Vec::new();
    for step in 0..8 {
        let (x, y) = (values(step, 16), values(step + 100, 16));
        let batch = [Input::f32([4, 4], &x), Input::f32([4, 4], &y)];
        // A norm that is called twice: the mean of both statistics is a launch too.
        let gradients =
            trainer.backward(batch, |[x, y]| two.forward(norm.forward(norm.forward(one.forward(x)))).mse_loss(y));
        assert_eq!(trainer.step(gradients.expect("it fits")).expect("a step").skipped, None);
        seen.push((launched.get(), repeats.get()));
    }
    // The second step decides the sites' first exponents from the statistics of the first, and is recorded.
    let (last, before) = (seen[7], seen[4]);
    assert_eq!((last.0 - before.0, last.1 - before.1), (0, 2 * 3), "{seen:?}");
}
