//! Uses that are rarer than one net and one batch.

use crate::graph::values;
use gradscale::{
    Cpu, Error, Init, Input, InputType, Method, Parameters, Pass, ProgramKind, TraceErrorKind, Trainer,
    gradscale_core::amp::{AmpPolicy, Level},
    nn::{BatchNorm, Linear, Module},
    optim::Sgd,
};

pub fn trainer(parameters: Parameters, method: &str) -> Trainer<Cpu> {
    let device = Cpu::new(1).expect("a CPU");
    Trainer::new(device, parameters, Sgd::new(1.0), method.parse().expect("a method")).expect("a trainer")
}

/// An overflow that a ReLU hides from all parameters costs no step; the site comes down all the same.
#[test]
fn a_mask_hides_an_overflow() {
    let mut parameters = Parameters::seeded(1);
    let [one, two] = ["one", "two"].map(|name| Linear::new(&mut parameters.at(name), 4, 4));
    let mut trainer = trainer(parameters, "gs:exact");
    // The fourth hidden unit is off.
    trainer.set_parameter("one.weight", &[1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0., 0., 0., 0., -1.]).unwrap();
    let mut weights: Vec<f32> = (0..16).map(|i| 2f32.powi(-i)).collect();
    let t: Vec<f32> = (0..16).map(|i| 2f32.powi(-i)).collect();
    let mut seen = Vec::new();
    for step in 0..7 {
        if step >= 4 {
            (0..4).for_each(|i| weights[4 * i + 3] = 60000.0);
        }
        trainer.set_parameter("two.weight", &weights).unwrap();
        let batch = [Input::f32([4, 4], &[1.0; 16]), Input::f32([4, 4], &t)];
        let net = trainer.backward(batch, |[x, t]| (two.forward(one.forward(x).relu()) * t).sum());
        let outcome = trainer.step(net.unwrap().clip_norm(1e-30)).unwrap();
        assert_eq!(outcome.skipped, None, "{step}");
        let site = trainer.sites().find(|site| site.name == "two/dgrad").unwrap();
        seen.push((site.alpha, site.overflows));
    }
    let (before, after) = (seen[3], seen[4]);
    assert!(before.1 == 0 && after.1 > 0 && after.0 < before.0, "{seen:?}");
    assert_eq!(seen[6].1, after.1, "{seen:?}");
}

/// The loss is a parameter itself.
#[test]

fn the_loss_is_a_parameter() {
    let mut parameters = Parameters::seeded(1);
    let weight = parameters.at("p").weight("w", [1], Init::Constant(3.0));
    let mut trainer = trainer(parameters, "fp32");
    let gradients = trainer.backward([Input::f32([1], &[0.0])], |[x]| x.tape().parameter(&weight)).unwrap();
    assert_eq!(trainer.gradient(&gradients, "p.w").unwrap().map(|tensor| tensor.data), Some(vec![1.0]));
}

/// Micro-batches of a loss with a name.
#[test]

fn micro_batches_of_a_named_loss() {
    let mut parameters = Parameters::seeded(1);
    let layer = Linear::new(&mut parameters.at("layer"), 4, 4);
    let mut trainer = trainer(parameters, "gs:exact");
    let x = values(1, 16);
    let batch = || [Input::f32([4, 4], &x)];
    let gradients =
        trainer.backward(Pass::new(batch()).with_loss("one"), |[x]| layer.forward(x).square().mean()).unwrap();
    let more = trainer.backward(Pass::new(batch()).accumulate(gradients), |[x]| layer.forward(x).square().mean());
    assert_eq!(more.map(|gradients| gradients.micro_batches()).ok(), Some(2));
}

/// A later micro-batch with new sites is refused, and the training continues with the step before it.
#[test]
fn a_micro_batch_with_new_operators_is_refused() {
    let mut parameters = Parameters::seeded(1);
    let layer = Linear::new(&mut parameters.at("layer"), 4, 4);
    let mut trainer = trainer(parameters, "gs:exact");
    let x = values(1, 16);
    let batch = || [Input::f32([4, 4], &x)];
    let gradients = trainer.backward(batch(), |[x]| layer.forward(x).square().mean()).unwrap();
    match trainer
        .backward(Pass::new(batch()).accumulate(gradients), |[x]| layer.forward(layer.forward(x)).square().mean())
    {
        Err(Error::Trace(error)) => assert_eq!(error.kind, TraceErrorKind::NewSites),
        other => panic!("{other:?}"),
    }
    let gradients = trainer.backward(batch(), |[x]| layer.forward(x).square().mean()).unwrap();
    assert_eq!(trainer.step(gradients).unwrap().skipped, None);
}

/// Statistics taken between a backward pass and its step are not those of the step.
#[test]

fn statistics_between_backward_and_step() {
    let run = |between: bool| {
        let mut parameters = Parameters::seeded(1);
        let norm = BatchNorm::new(&mut parameters.at("norm"), 1);
        let mut trainer = trainer(parameters, "fp32");
        let batch = || [Input::f32([2, 1], &[1.0, 3.0])];
        let gradients = trainer.backward(batch(), |[x]| norm.forward(x).square().mean()).unwrap();
        if between {
            // Keeps everything.
            trainer.update_statistics(1.0, [Input::f32([2, 1], &[50.0, 90.0])], |[x]| norm.forward(x)).unwrap();
        }
        trainer.step(gradients).unwrap();
        trainer.parameter("norm.running").unwrap().data
    };
    assert_eq!(run(true), run(false));
}

/// keep = i / (i + 1): the mean over all batches; and evaluation uses it.
#[test]
fn statistics_of_an_epoch() {
    let mut parameters = Parameters::seeded(1);
    let norm = BatchNorm::new(&mut parameters.at("norm"), 1);
    let mut trainer = trainer(parameters, "gs:exact");
    for (i, x) in [[1.0, 3.0], [2.0, 6.0], [0.0, 12.0]].iter().enumerate() {
        let keep = i as f32 / (i + 1) as f32;
        trainer.update_statistics(keep, [Input::f32([2, 1], x)], |[x]| norm.forward(x)).unwrap();
    }
    // Means 2, 4, 6; unbiased variances 2, 8, 72.
    let running = trainer.parameter("norm.running").unwrap().data;
    assert!((running[0] - 4.0).abs() < 1e-6 && (running[1] - 82.0 / 3.0).abs() < 1e-5, "{running:?}");
    let y = trainer.evaluate([Input::f32([1, 1], &[10.0])], |[x]| norm.forward(x)).unwrap().data[0];
    assert!((y - 6.0 / (82f32 / 3.0 + 1e-5).sqrt()).abs() < 1e-6);
}

/// Under O3 the parameters are halves, also those written by hand.
#[test]

fn half_parameters_are_halves() {
    let mut parameters = Parameters::seeded(1);
    let layer = Linear::new(&mut parameters.at("layer"), 1, 1);
    let method = Method::fp32().with_amp(AmpPolicy::new(Level::O3));
    let mut trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, Sgd::new(0.0), method).unwrap();
    let step = |trainer: &mut Trainer<Cpu>| {
        let gradients = trainer.backward([Input::f32([1, 1], &[1.0])], |[x]| layer.forward(x).sum()).unwrap();
        trainer.step(gradients).unwrap();
        trainer.parameter("layer.weight").unwrap().data[0]
    };
    let is_half = |x: f32| half::f16::from_f32(x).to_f32() == x;
    assert!(is_half(step(&mut trainer)));
    trainer.set_parameter("layer.weight", &[0.3]).unwrap();
    assert!(is_half(trainer.parameter("layer.weight").unwrap().data[0]));
}

/// dL/dx and dL/dw of Σ dropout(x)·w show the mask twice; it is new in each step, and none in evaluation.
#[test]
fn dropout() {
    let (count, keep) = (4096, 0.75f32);
    let mut masks = Vec::new();
    for method in ["fp32", "gs:exact"] {
        let mut parameters = Parameters::seeded(1);
        let [x, w] = ["x", "w"].map(|name| parameters.at(name).weight("p", [64, 64], Init::Constant(1.0)));
        let mut trainer = trainer(parameters, method);
        for _ in 0..3 {
            let gradients = trainer.backward([Input::f32([1], &[0.0])], |[any]| {
                let [x, w] = [&x, &w].map(|one| any.tape().parameter(one));
                (x.dropout(1.0 - keep) * w).sum()
            });
            let gradients = gradients.unwrap();
            let [dx, dw] = ["x.p", "w.p"].map(|name| trainer.gradient(&gradients, name).unwrap().unwrap().data);
            assert!(dw.iter().all(|&y| y == 0.0 || y == 1.0 / keep));
            assert_eq!(dx, dw);
            let kept = dw.iter().filter(|y| **y != 0.0).count();
            assert!((2900..3250).contains(&kept), "{kept} of {count}");
            masks.push(dw);
            trainer.step(gradients.clip_norm(1e-30)).unwrap();
        }
        let y = trainer.evaluate([Input::f32([1], &[2.0])], |[x]| x.dropout(1.0 - keep)).unwrap();
        assert_eq!(y.data, [2.0]);
    }
    assert!(masks[0] != masks[1] && masks[1] != masks[2]);
    assert_eq!(masks[..3], masks[3..], "the same seeds");
}

/// Batches of bytes and words, empty ones, and the last of an epoch.
#[test]
fn batches_of_other_kinds() {
    let mut parameters = Parameters::seeded(1);
    let layer = Linear::new(&mut parameters.at("layer"), 4, 3);
    let mut trainer = trainer(parameters, "gs:exact");
    let (bytes, labels): (Vec<u8>, Vec<u32>) = ((0..32).collect(), vec![0, 1, 2, 1, 0, 2, 2, 1]);
    let floats: Vec<f32> = bytes.iter().map(|&x| f32::from(x) / 32.0).collect();
    for n in [8, 3, 8, 1] {
        let of_bytes = [Input::u8([n, 4], &bytes[..4 * n]), Input::u32([n], &labels[..n])];
        let one =
            trainer.backward(of_bytes, |[x, labels]| layer.forward(x.affine(1.0 / 32.0, 0.0)).cross_entropy(labels));
        let read =
            |trainer: &Trainer<Cpu>, gradients: &_| trainer.gradient(gradients, "layer.weight").unwrap().unwrap();
        let one = read(&trainer, &one.unwrap());
        let of_floats = [Input::f32([n, 4], &floats[..4 * n]), Input::u32([n], &labels[..n])];
        let two = trainer.backward(of_floats, |[x, labels]| layer.forward(x).cross_entropy(labels)).unwrap();
        assert_eq!(one, read(&trainer, &two));
        assert_eq!(trainer.step(two).unwrap().skipped, None);
    }
    let none = [Input::f32([0, 4], &[]), Input::u32([0], &[])];
    match trainer.backward(none, |[x, labels]| layer.forward(x).cross_entropy(labels)) {
        Ok(gradients) => assert_eq!(trainer.step(gradients).unwrap().loss, 0.0),
        Err(error) => println!("an empty batch: {error}"),
    }
}

/// A compiled step is `backward` without tracing.
#[test]
fn compiled_steps_have_the_same_gradients() {
    let mut parameters = Parameters::seeded(1);
    let layer = Linear::new(&mut parameters.at("layer"), 4, 3);
    let mut trainer = trainer(parameters, "gs:exact");
    let (x, y) = (values(1, 16), values(2, 16));
    let gradient = |trainer: &Trainer<Cpu>, gradients: &_| trainer.gradient(gradients, "layer.weight").unwrap();
    let one = trainer.backward([Input::f32([4, 4], &x)], |[x]| layer.forward(x).square().mean()).unwrap();
    let of_x = gradient(&trainer, &one);
    let two = trainer.backward([Input::f32([4, 4], &y)], |[x]| layer.forward(x).square().mean()).unwrap();
    let of_y = gradient(&trainer, &two);
    assert!(matches!(trainer.step(one), Err(Error::Gradients)));
    let kinds = [InputType::f32([4, 4])];
    let program = trainer.compile(ProgramKind::Training, kinds, |[x]| layer.forward(x).square().mean()).unwrap();
    for (data, right) in [(&x, &of_x), (&y, &of_y)] {
        let again = trainer.backward_compiled(&program, [Input::f32([4, 4], data)]).unwrap();
        assert_eq!(gradient(&trainer, &again), *right);
    }
    assert!(trainer.backward_compiled(&program, [Input::f32([2, 4], &x[..8])]).is_err());
}
