//! Custom optimizers, against plain loops in f64 and against the built-in rules.

use super::{
    Data, Training, batches,
    optimizers::{FIRST, Rig, close, five, gradient},
};
use gradscale::{
    Cpu, Init, Input, Method, Parameters, Trainer, TrainerOptions,
    gradscale_core::amp::{AmpPolicy, Level},
    optim::{CustomOptimizer, Lion, Optimizer, Schedule, Sgd, UpdateInput, UpdateOutput},
};
use gradscale_conformance::Recorder;
use std::collections::BTreeMap;

const LION: Lion = Lion { lr: 0.1, betas: [0.75, 0.9375], weight_decay: 0.25 };

/// Plain descent, which a kernel does too.
#[derive(Debug)]
struct Plain;

impl CustomOptimizer for Plain {
    fn lr(&self) -> f64 {
        0.3
    }
    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        UpdateOutput { weight: of.weight - of.gradient * of.lr, states: Vec::new() }
    }
}

/// Adam with three tensors: the largest v so far (Reddi et al. 2018), and numbers of each step.
#[derive(Debug)]
struct AmsGrad;

impl CustomOptimizer for AmsGrad {
    fn lr(&self) -> f64 {
        0.02
    }
    fn states(&self) -> usize {
        3
    }
    fn numbers(&self, step: u64) -> Vec<f32> {
        [0.8f64, 0.95].map(|beta| (1.0 / (1.0 - beta.powi(step as i32 + 1))) as f32).to_vec()
    }
    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        let g = of.gradient;
        let m = of.states[0] * 0.8 + g * 0.2;
        let v = of.states[1] * 0.95 + g * g * 0.05;
        let most = of.states[2] + (v - of.states[2]).relu();
        let root = (most * of.numbers[1]).pow(0.5) + 1e-3;
        UpdateOutput { weight: of.weight - m * of.numbers[0] / root * of.lr, states: vec![m, v, most] }
    }
}

/// Groups with rates and decays of their own, and a schedule.
#[test]
fn groups_and_schedule() {
    let halved = Schedule::Step { every: 2, factor: 0.5 };
    let optimizer = Optimizer::custom(LION).group("b", 0.05, 0.5).schedule(halved);
    let mut rig = Rig::new(optimizer, &FIRST);
    for t in 0..5 {
        assert_eq!(rig.step(&gradient(t), &gradient(t)).skipped, None);
    }
    let plain = |lr: f64, decay: f64| {
        five(move |w, g, [m, _], t| {
            let direction = (0.75 * *m + 0.25 * g).signum() + decay * w;
            *m = 0.9375 * *m + 0.0625 * g;
            w - lr * 0.5f64.powi((t - 1) / 2) * direction
        })
    };
    close(&rig.read("a.w"), &plain(0.1, 0.25), 25.0 * 2f64.powi(-24));
    close(&rig.read("b.w"), &plain(0.05, 0.5), 25.0 * 2f64.powi(-24));
}

/// Returns the weights after five steps of [`AmsGrad`].
fn ams_grad(lr: f64) -> [f64; 4] {
    let mut most = 0.0f64;
    five(|w, g, [m, v], t| {
        if t == 1 {
            most = 0.0;
        }
        *m = 0.8 * *m + 0.2 * g;
        *v = 0.95 * *v + 0.05 * g * g;
        most = most.max(*v);
        w - lr * (*m / (1.0 - 0.8f64.powi(t))) / ((most / (1.0 - 0.95f64.powi(t))).sqrt() + 1e-3)
    })
}

#[test]
fn states_and_numbers() {
    let mut rig = Rig::new(Optimizer::custom(AmsGrad), &FIRST);
    (0..5).for_each(|t| assert_eq!(rig.step(&gradient(t), &gradient(t)).skipped, None));
    close(&rig.read("a.w"), &ams_grad(0.02), 100.0 * 2f64.powi(-24));
}

/// Each group has its own numbers, which follow from the steps of that group: `b` takes one before `a` does.
#[test]
fn numbers_of_groups() {
    let mut rig = Rig::new(Optimizer::custom(AmsGrad).group("b", 0.05, 0.0), &FIRST);
    assert_eq!(rig.step_alone(1, &gradient(0)).skipped, None);
    (0..4).for_each(|t| assert_eq!(rig.step(&gradient(t), &gradient(t + 1)).skipped, None));
    assert_eq!(rig.step_alone(0, &gradient(4)).skipped, None);
    close(&rig.read("a.w"), &ams_grad(0.02), 100.0 * 2f64.powi(-24));
    close(&rig.read("b.w"), &ams_grad(0.05), 100.0 * 2f64.powi(-24));
}

/// Clipping by value, by norm, for one step only, and none: the bits are those of the kernel. Non-finite gradients
/// change nothing.
#[test]
fn clipped_and_guarded() {
    let limits: [fn(Optimizer) -> Optimizer; 4] =
        [|all| all, |all| all.clip_norm(0.75), |all| all.clip_value(0.5), |all| all.clip_value(1.0).clip_norm(1.25)];
    for limit in limits {
        for of_one in [None, Some(0.25)] {
            let mut all =
                [limit(Optimizer::custom(Plain)), limit(Sgd::new(0.3).into())].map(|one| Rig::new(one, &FIRST));
            for t in 0..6 {
                let (mut a, b) = (gradient(t), gradient(t + 1));
                if t == 3 {
                    a[2] = f32::INFINITY;
                }
                let outcomes = all.each_mut().map(|rig| rig.step_clipped(&a, &b, of_one));
                assert_eq!(outcomes[0], outcomes[1]);
                assert_eq!(outcomes[0].skipped.is_some(), t == 3);
                for name in ["a.w", "b.w"] {
                    assert_eq!(all[0].read(name), all[1].read(name), "{name} after {t}");
                }
            }
        }
    }
}

/// Parameters, statistics, losses after twelve steps, one of which repeats.
fn train(optimizer: &Optimizer, method: &str, recording: bool, resume: bool) -> (Vec<(String, Vec<u32>)>, Vec<u32>) {
    let build = || {
        let device = Recorder::new(Cpu::new(1).expect("a CPU"));
        let mut training = Training::on(device, optimizer.clone(), method.parse().expect("a method"));
        training.trainer = training.trainer.with_options(TrainerOptions::new().with_recording(recording));
        training
    };
    let (mut training, mut losses) = (build(), Vec::new());
    for (step, data) in batches(12).iter().enumerate() {
        if resume && step == 7 {
            let bytes = training.trainer.save(&BTreeMap::new()).expect("a checkpoint");
            training = build();
            training.trainer.load(&bytes).expect("its own");
        }
        // A factor that overflows the exponents in force.
        let factor = if step == 5 { 2f32.powi(18) } else { 1.0 };
        let outcome = training.step(&Data { factor, ..data.clone() });
        losses.push(outcome.loss.to_bits());
    }
    (training.bits(), losses)
}

/// Recorded, resumed, with half copies, without masters: the same bits.
#[test]
fn in_a_training() {
    for method in ["fp32", "gs", "dynamic:3"] {
        for optimizer in
            [Optimizer::custom(LION), Optimizer::custom(AmsGrad).clip_norm(0.5).group("net.second", 0.001, 0.0)]
        {
            let right = train(&optimizer, method, false, false);
            for (recording, resume) in [(true, false), (false, true), (true, true)] {
                assert_eq!(train(&optimizer, method, recording, resume), right, "{method} {recording} {resume}");
            }
        }
    }
    let mut pure = "fixed:8".parse::<Method>().expect("a method");
    pure.amp = AmpPolicy::new(Level::O3);
    let mut training = Training::on(Cpu::new(1).expect("a CPU"), Optimizer::custom(LION), pure);
    batches(4).iter().for_each(|data| assert_eq!(training.step(data).skipped, None));
    for (name, tensor) in training.trainer.parameters().expect("all") {
        let weights = !name.ends_with("running");
        assert!(!weights || tensor.data.iter().all(|&w| half::f16::from_f32(w).to_f32() == w), "{name}");
    }
}

/// Custom rule whose number of states and update are set by a test.
struct Says(usize, for<'t> fn(UpdateInput<'t>) -> UpdateOutput<'t>);

impl std::fmt::Debug for Says {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Says")
    }
}

impl CustomOptimizer for Says {
    fn lr(&self) -> f64 {
        0.1
    }
    fn states(&self) -> usize {
        self.0
    }
    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        (self.1)(of)
    }
}

/// A rule may return its inputs, in another order.
#[test]
fn results_that_are_inputs() {
    fn swap(of: UpdateInput<'_>) -> UpdateOutput<'_> {
        UpdateOutput { weight: of.states[1], states: vec![of.weight, of.states[0]] }
    }
    let mut rig = Rig::new(Optimizer::custom(Says(2, swap)), &FIRST);
    for right in [[0.0; 4], [0.0; 4], FIRST, [0.0; 4]] {
        assert_eq!(rig.step(&gradient(0), &gradient(0)).skipped, None);
        assert_eq!(rig.read("a.w"), right);
    }
    fn gradients(of: UpdateInput<'_>) -> UpdateOutput<'_> {
        UpdateOutput { weight: of.gradient.reshape([2, 2]).reshape([4]), states: Vec::new() }
    }
    let mut rig = Rig::new(Optimizer::custom(Says(0, gradients)), &FIRST);
    rig.step(&gradient(1), &gradient(2));
    assert_eq!([rig.read("a.w"), rig.read("b.w")], [gradient(1), gradient(2)]);
}

#[test]
fn rules_that_cannot_be() {
    let said = |optimizer: Optimizer| {
        let mut parameters = Parameters::seeded(0);
        let weight = parameters.at("a").weight("w", [3], Init::Constant(0.0));
        let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, optimizer, Method::fp32());
        let mut trainer = trainer.map_err(|error| error.to_string())?;
        let batch = [Input::f32([3], &[1.0, 2.0, 3.0])];
        let gradients = trainer.backward(batch, |[x]| (x.tape().parameter(&weight) * x).sum());
        trainer.step(gradients.expect("it fits")).map(|_| ()).map_err(|error| error.to_string())
    };
    fn less(of: UpdateInput<'_>) -> UpdateOutput<'_> {
        UpdateOutput { weight: of.weight, states: Vec::new() }
    }
    let words = "a.w: its update returns 0 state tensors, but its states() is 1".to_owned();
    assert_eq!(said(Optimizer::custom(Says(1, less))), Err(words));
    fn small(of: UpdateInput<'_>) -> UpdateOutput<'_> {
        UpdateOutput { weight: of.weight.sum(), states: Vec::new() }
    }
    let words = "a.w: its update is 1×1, but the parameter is 3×1".to_owned();
    assert_eq!(said(Optimizer::custom(Says(0, small))), Err(words));
    fn wrong(of: UpdateInput<'_>) -> UpdateOutput<'_> {
        UpdateOutput { weight: of.weight.slice(0, 2, 2), states: Vec::new() }
    }
    let words = "slice: 2 elements from 2 exceed axis 0 of 3×1".to_owned();
    assert_eq!(said(Optimizer::custom(Says(0, wrong))), Err(words));
    assert!(said(Optimizer::custom(Says(5, less))).is_err());
    assert!(said(Optimizer::custom(Lion { lr: f64::NAN, ..LION })).is_err());
    assert!(said(Optimizer::custom(Lion { weight_decay: f32::INFINITY, ..LION })).is_err());
    assert_eq!(said(Optimizer::custom(LION)), Ok(()));
}
