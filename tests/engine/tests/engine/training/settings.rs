//! Frozen parameters, learning rates that are set during training, custom schedules, and values that a step lets read.

use super::{Data, Training, batches, optimizers::Rig};
use crate::graph::values;
use gradscale::{
    Cpu, Error, Input, Method, Parameters, Trainer,
    gradscale_core::ops::ShapeError,
    nn::{GruCell, Linear, Module},
    optim::{Adam, CustomOptimizer, Optimizer, Schedule, Sgd, UpdateInput, UpdateOutput},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Frozen parameters keep every bit, and have no gradient and no state. The others learn as if the frozen were
/// constants.
#[test]
fn frozen_parts() {
    for method in ["fp32", "gs"] {
        let adam = || Optimizer::from(Adam::new(0.01)).clip_norm(10.0);
        let mut all = Training::new(adam(), method);
        let mut some = Training::new(adam().freeze("net.first"), method);
        let before = some.bits();
        let bytes = some.trainer.memory().parameters;
        assert!(bytes < all.trainer.memory().parameters);
        for data in batches(6) {
            all.step(&data);
            let gradients = some.backward(&data);
            assert_eq!(some.trainer.gradient(&gradients, "net.first.weight").expect("a parameter"), None);
            assert!(some.trainer.gradient(&gradients, "net.second.weight").expect("a parameter").is_some());
            assert_eq!(some.trainer.step(gradients).expect("a step").skipped, None);
        }
        for ((name, now), (_, first)) in some.bits().iter().zip(&before) {
            assert_eq!(now == first, name.starts_with("net.first"), "{name}");
        }
        // A checkpoint has the frozen weights, and no state of them.
        let saved = some.trainer.save(&BTreeMap::new()).expect("a checkpoint");
        let names = safetensors::SafeTensors::deserialize(&saved).expect("a file");
        assert!(names.tensor("master.net.first.weight").is_ok() && names.tensor("state0.net.first.weight").is_err());
        let mut again = Training::new(adam().freeze("net.first"), method);
        again.trainer.load(&saved).expect("its own");
        assert_eq!(again.bits(), some.bits());
        assert!(all.trainer.load(&saved).is_err());
    }
    let refused = |optimizer: Optimizer| {
        let mut parameters = Parameters::seeded(0);
        let _ = Linear::new(&mut parameters.at("net.one"), 2, 2);
        Trainer::new(Cpu::new(1).expect("a CPU"), parameters, optimizer, Method::fp32()).map(|_| ())
    };
    let wrong = refused(Optimizer::from(Sgd::new(0.1)).freeze("net.on")).expect_err("no such part").to_string();
    assert_eq!(wrong, "optimizer: no parameter begins with net.on; the parts are net");
    // If nothing can be trained, a step returns an error.
    let mut none = Training::new(Optimizer::from(Sgd::new(0.1)).freeze("net"), "fp32");
    let error = none.trainer.backward(batches(1)[0].batch(), |all| none.net.loss(all)).expect_err("nothing to train");
    assert!(error.to_string().contains("depends on no weight"), "{error}");
}

#[test]
fn rates_that_are_set() {
    let sgd =
        || Optimizer::from(Sgd::new(0.5)).group("b", 0.25, 0.0).schedule(Schedule::Step { every: 2, factor: 0.5 });
    let mut rig = Rig::new(sgd(), &[0.0]);
    let after = |rig: &mut Rig, right: [f32; 2]| {
        rig.step(&[1.0], &[1.0]);
        assert_eq!([rig.read("a.w")[0], rig.read("b.w")[0]], right);
    };
    after(&mut rig, [-0.5, -0.25]);
    rig.trainer.set_lr(None, 4.0).expect("a rate");
    after(&mut rig, [-4.5, -0.5]);
    rig.trainer.set_lr(Some("b"), 1.0).expect("a group");
    // The schedule continues: both rates are halved.
    after(&mut rig, [-6.5, -1.0]);
    // A checkpoint keeps them.
    let bytes = rig.trainer.save(&BTreeMap::new()).expect("a checkpoint");
    let mut again = Rig::new(sgd(), &[0.0]);
    again.trainer.load(&bytes).expect("its own");
    after(&mut again, [-8.5, -1.5]);
    // A checkpoint from before has the optimizer's own rates.
    let fresh = Rig::new(sgd(), &[0.0]).trainer.save(&BTreeMap::new()).expect("a checkpoint");
    again.trainer.load(&fresh).expect("its own");
    after(&mut again, [-0.5, -0.25]);
    for wrong in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        assert!(matches!(rig.trainer.set_lr(None, wrong), Err(Error::Optimizer(ShapeError::Value(_)))), "{wrong}");
    }
    let error = rig.trainer.set_lr(Some("c"), 1.0).expect_err("no such group").to_string();
    assert_eq!(error, "optimizer: no parameter begins with c; the parts are b");
}

/// w ← w − lr·g, in operators.
#[derive(Debug)]
struct Plain;

impl CustomOptimizer for Plain {
    fn lr(&self) -> f64 {
        1.0
    }
    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        UpdateOutput { weight: of.weight - of.gradient * of.lr, states: Vec::new() }
    }
}

#[test]
fn schedules_of_ones_own() {
    let restarts = Schedule::own(|step| 1.0 - (step % 3) as f64 / 4.0);
    let mut rig = Rig::new(Optimizer::from(Sgd::new(1.0)).schedule(restarts), &[0.0]);
    for right in [-1.0, -1.75, -2.25, -3.25] {
        rig.step(&[1.0], &[1.0]);
        assert_eq!(rig.read("a.w"), [right]);
    }
    // A custom schedule is called once a step, for any number of groups and however often rates are read.
    for own in [false, true] {
        let asked = Arc::new(AtomicU64::new(0));
        let counts = asked.clone();
        let counting = Schedule::own(move |step| {
            counts.fetch_add(1, Relaxed);
            1.0 / (step + 1) as f64
        });
        let optimizer = if own { Optimizer::custom(Plain) } else { Sgd::new(1.0).into() };
        let mut rig = Rig::new(optimizer.group("b", 0.5, 0.0).schedule(counting), &[0.0]);
        let first = asked.load(Relaxed);
        for step in 1..=3 {
            rig.step(&[1.0], &[1.0]);
            assert_eq!(asked.load(Relaxed) - first, step);
        }
        let right = -(1.0 + 1.0 / 2.0 + 1.0 / 3.0f32);
        assert!((rig.read("a.w")[0] - right).abs() < 1e-6 && (rig.read("b.w")[0] - right / 2.0).abs() < 1e-6);
    }
    // A schedule that returns no number is an error before anything runs.
    let broken = Schedule::own(|step| if step == 1 { f64::NAN } else { 1.0 });
    let mut training = Training::new(Optimizer::from(Sgd::new(0.1)).schedule(broken), "gs");
    let data = Data::new(1, 4);
    training.step(&data);
    let before = training.bits();
    let error = training.trainer.backward(data.batch(), |all| training.net.loss(all));
    assert!(matches!(error, Err(Error::Optimizer(ShapeError::Value(rate))) if rate.is_nan()));
    assert_eq!(training.bits(), before);
}

/// Truncated backpropagation: the final state of one step is the initial state of the next. It can be read until then,
/// even if evaluations run in between, and is that of a network which processes the whole sequence.
#[test]
fn states_that_are_carried_on() {
    let mut parameters = Parameters::seeded(5);
    let cell = GruCell::new(&mut parameters.at("cell"), 3, 4);
    let head = Linear::new(&mut parameters.at("head"), 4, 2);
    let mut trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), "gs".parse().expect("gs"))
        .expect("a trainer");
    let x = values(1, 2 * 3 * 6);
    let zeros = [0.0; 8];
    let whole = [Input::f32([2, 18], &x), Input::f32([2, 4], &zeros)];
    let right = trainer.evaluate(whole, |[x, h]| (0..6).fold(h, |h, i| cell.forward(x.slice(3, 3 * i, 3), h)));
    let right = right.expect("it fits").data;
    let mut state = zeros.to_vec();
    for part in 0..3 {
        let now: Vec<f32> = x.chunks(18).flat_map(|row| row[6 * part..6 * part + 6].to_vec()).collect();
        let batch = [Input::f32([2, 6], &now), Input::f32([2, 4], &state), Input::u8([2], &[0, 1])];
        let gradients = trainer.backward(batch, |[x, h, labels]| {
            let h = cell.forward(x.slice(3, 3, 3), cell.forward(x.slice(3, 0, 3), h)).output("state");
            head.forward(h).output("logits").cross_entropy(labels)
        });
        let logits = trainer.output("logits").expect("a pass has run");
        assert_eq!(logits.shape.sizes(), [2, 1, 1, 2]);
        assert_eq!(trainer.step(gradients.expect("it fits")).expect("a step").skipped, None);
        let ones = trainer.evaluate([Input::f32([64], &[1.0; 64])], |[x]| (x + x).output("twice").sum());
        assert_eq!(ones.expect("it fits").data, [128.0]);
        assert_eq!(trainer.output("twice").expect("it ran last").data, [2.0; 64]);
        assert_eq!(trainer.output("logits").expect("of the last step"), logits);
        state = trainer.output("state").expect("of the last step").data;
    }
    assert_eq!(state, right);
    let error = trainer.output("nothing").expect_err("no such output").to_string();
    assert_eq!(error, "nothing: is not an output of the last pass");
    let twice = trainer.evaluate([Input::f32([1], &[1.0])], |[x]| x.output("a") + x.output("a"));
    assert_eq!(twice.expect_err("one name").to_string(), "a: two outputs of this name");
}
