//! Optimizers against naive f64, with gradients that the batch determines: the loss is Σ p·g.

use gradscale::Init;
use gradscale::{
    Cpu, Error, Input, Method, Parameter, Parameters, StepOutcome, Trainer,
    gradscale_core::ops::ShapeError,
    optim::{Adam, AdamW, Optimizer, Schedule, Sgd},
};

/// Two parameters of the same length, `a.w` and `b.w`.
pub struct Rig {
    pub trainer: Trainer<Cpu>,
    all: [Parameter; 2],
}

impl Rig {
    pub fn new(optimizer: Optimizer, first: &[f32]) -> Self {
        let mut parameters = Parameters::seeded(0);
        let all = ["a", "b"].map(|name| parameters.at(name).weight("w", [first.len()], Init::Constant(0.0)));
        let device = Cpu::new(1).expect("a CPU");
        let mut trainer = Trainer::new(device, parameters, optimizer, Method::fp32()).expect("numbers that make sense");
        for name in ["a.w", "b.w"] {
            trainer.set_parameter(name, first).expect("a parameter");
        }
        Self { trainer, all }
    }

    /// One step with these gradients.
    pub fn step(&mut self, a: &[f32], b: &[f32]) -> StepOutcome {
        self.step_clipped(a, b, None)
    }

    /// One step with these gradients, scaled down to a norm.
    pub fn step_clipped(&mut self, a: &[f32], b: &[f32], most: Option<f32>) -> StepOutcome {
        let all = &self.all;
        let batch = [Input::f32([a.len()], a), Input::f32([b.len()], b)];
        let gradients = self.trainer.backward(batch, |[a, b]| {
            let [p, q] = all.each_ref().map(|one| a.tape().parameter(one));
            (p * a).sum() + (q * b).sum()
        });
        let mut gradients = gradients.expect("the batch fits");
        if let Some(most) = most {
            gradients = gradients.clip_norm(most);
        }
        self.trainer.step(gradients).expect("a step")
    }

    /// One step of a loss that contains only parameter `i`.
    pub fn step_alone(&mut self, i: usize, gradient: &[f32]) -> StepOutcome {
        let one = &self.all[i];
        let gradients = self.trainer.backward([Input::f32([gradient.len()], gradient)], |[g]| {
            let w = g.tape().parameter(one);
            (w * g).sum()
        });
        self.trainer.step(gradients.expect("the batch fits")).expect("a step")
    }

    pub fn read(&self, name: &str) -> Vec<f32> {
        self.trainer.parameter(name).expect("a parameter").data
    }
}

pub const FIRST: [f32; 4] = [1.0, -0.5, 0.25, 2.0];

pub fn gradient(step: usize) -> [f32; 4] {
    [0.5, -1.25, 3.0, 0.125].map(|g| g * (1.0 - 0.3 * step as f32))
}

/// Computes the expected result of five steps, element by element: (w, g, states, t) → w.
pub fn five(mut update: impl FnMut(f64, f64, &mut [f64; 2], i32) -> f64) -> [f64; 4] {
    let mut at = 0;
    FIRST.map(|first| {
        let (mut w, mut state) = (f64::from(first), [0.0; 2]);
        for t in 0..5 {
            w = update(w, f64::from(gradient(t)[at]), &mut state, t as i32 + 1);
        }
        at += 1;
        w
    })
}

pub fn close(found: &[f32], right: &[f64], bound: f64) {
    for (found, right) in found.iter().zip(right) {
        let error = (f64::from(*found) - right).abs();
        assert!(error <= bound * right.abs().max(1.0), "{found} instead of {right}: {error:e}");
    }
}

#[test]
fn rules() {
    let check = |optimizer: Optimizer, right: [f64; 4]| {
        let mut rig = Rig::new(optimizer, &FIRST);
        for t in 0..5 {
            assert_eq!(rig.step(&gradient(t), &gradient(t)).skipped, None);
        }
        // Five steps of about five roundings each.
        close(&rig.read("a.w"), &right, 25.0 * 2f64.powi(-24));
        assert_eq!(rig.read("a.w"), rig.read("b.w"));
    };
    check(Sgd::new(0.1).into(), five(|w, g, _, _| w - 0.1 * g));
    check(Sgd { weight_decay: 0.05, ..Sgd::new(0.1) }.into(), five(|w, g, _, _| w - 0.1 * (g + 0.05 * w)));
    let momentum = |nesterov: bool| {
        five(|w, g, state, _| {
            let g = g + 0.01 * w;
            state[0] = 0.9 * state[0] + g;
            w - 0.1 * if nesterov { g + 0.9 * state[0] } else { state[0] }
        })
    };
    check(Sgd { momentum: 0.9, weight_decay: 0.01, ..Sgd::new(0.1) }.into(), momentum(false));
    check(Sgd { momentum: 0.9, weight_decay: 0.01, nesterov: true, ..Sgd::new(0.1) }.into(), momentum(true));
    let adam = |decay: f64, decoupled: bool| {
        five(|w, g, [m, v], t| {
            let (w, g) = if decoupled { (w - 0.02 * decay * w, g) } else { (w, g + decay * w) };
            *m = 0.8 * *m + 0.2 * g;
            *v = 0.95 * *v + 0.05 * g * g;
            let (m, v) = (*m / (1.0 - 0.8f64.powi(t)), *v / (1.0 - 0.95f64.powi(t)));
            w - 0.02 * m / (v.sqrt() + 1e-3)
        })
    };
    check(Adam { betas: [0.8, 0.95], eps: 1e-3, weight_decay: 0.1, ..Adam::new(0.02) }.into(), adam(0.1, false));
    check(Adam { betas: [0.8, 0.95], eps: 1e-3, ..Adam::new(0.02) }.into(), adam(0.0, false));
    check(AdamW { betas: [0.8, 0.95], eps: 1e-3, ..AdamW::new(0.02) }.into(), adam(0.01, true));
}

#[test]
fn clipping_by_value() {
    let mut rig = Rig::new(Optimizer::from(Sgd::new(1.0)).clip_value(0.5), &[0.0; 4]);
    let outcome = rig.step(&[0.25, -0.25, 3.0, -7.0], &[0.5, 2f32.powi(100), 1e-30, 0.0]);
    assert_eq!(outcome.gradient_norm, None);
    assert_eq!(rig.read("a.w"), [-0.25, 0.25, -0.5, 0.5]);
    assert_eq!(rig.read("b.w"), [-0.5, -0.5, -1e-30, 0.0]);
}

/// 3-4-12: the norm is 13.
#[test]
fn clipping_by_norm() {
    for (most, factor) in [(6.5, 0.5), (13.0, 1.0), (20.0, 1.0), (1e-3, 1e-3 / 13.0)] {
        let mut rig = Rig::new(Optimizer::from(Sgd::new(1.0)).clip_norm(most), &[0.0; 4]);
        let outcome = rig.step(&[3.0, 0.0, 0.0, -4.0], &[0.0, 12.0, 0.0, 0.0]);
        assert_eq!(outcome.gradient_norm, Some(13.0));
        let right = |values: [f64; 4]| values.map(|value| -value * factor);
        close(&rig.read("a.w"), &right([3.0, 0.0, 0.0, -4.0]), 2e-7 * factor * 12.0);
        close(&rig.read("b.w"), &right([0.0, 12.0, 0.0, 0.0]), 2e-7 * factor * 12.0);
        if factor == 1.0 {
            assert_eq!(rig.read("a.w"), [-3.0, 0.0, 0.0, 4.0]);
        }
    }
}

/// A limit for one step, where the optimizer has another or none.
#[test]
fn clipping_of_one_step() {
    for optimizer in [Sgd::new(1.0).into(), Optimizer::from(Sgd::new(1.0)).clip_norm(2.0)] {
        let mut rig = Rig::new(optimizer, &[0.0; 1]);
        let all = &rig.all;
        let batch = [Input::f32([1], &[3.0]), Input::f32([1], &[4.0])];
        let gradients = rig.trainer.backward(batch, |[a, b]| {
            let [p, q] = all.each_ref().map(|one| a.tape().parameter(one));
            (p * a).sum() + (q * b).sum()
        });
        let outcome = rig.trainer.step(gradients.unwrap().clip_norm(2.5)).unwrap();
        assert_eq!(outcome.gradient_norm, Some(5.0));
        assert_eq!([rig.read("a.w"), rig.read("b.w")], [[-1.5], [-2.0]]);
    }
}

/// A million gradients of 2^-75, whose squares are below f32, and some of 2^60 and 2^100, whose squares are above.
#[test]
fn clipping_of_the_very_small_and_the_very_large() {
    for (count, exponent) in [(500_000, -75), (8, 60), (8, 100), (8, -120)] {
        let unit = 2f32.powi(exponent);
        let norm = (2.0 * count as f64).sqrt() * f64::from(unit);
        let optimizer = Optimizer::from(Sgd::new(2f64.powi(-exponent))).clip_norm((norm / 2.0) as f32);
        let mut rig = Rig::new(optimizer, &vec![0.0; count]);
        let g = vec![unit; count];
        let outcome = rig.step(&g, &g);
        assert_eq!(outcome.skipped, None);
        let found = f64::from(outcome.gradient_norm.unwrap());
        assert!((found / norm - 1.0).abs() < 1e-6, "{found:e} instead of {norm:e}");
        for name in ["a.w", "b.w"] {
            assert!(rig.read(name).iter().all(|w| (w + 0.5).abs() < 1e-6), "2^{exponent}: {}", rig.read(name)[0]);
        }
    }
}

#[test]
fn groups() {
    let optimizer =
        Optimizer::from(Sgd { weight_decay: 0.25, ..Sgd::new(0.5) }).group("a", 2.0, 0.5).group("a.w", 100.0, 100.0);
    let mut rig = Rig::new(optimizer, &[1.0; 2]);
    rig.step(&[1.0, -1.0], &[1.0, -1.0]);
    // a: 1 − 2·(±1 + 0.5·1); b: 1 − 0.5·(±1 + 0.25·1).
    assert_eq!(rig.read("a.w"), [-2.0, 2.0]);
    assert_eq!(rig.read("b.w"), [0.375, 1.375]);
}

/// Factors of the learning rate, by hand.
#[test]
fn schedules() {
    let half = |x: f64| 0.5 * (1.0 + (std::f64::consts::PI * x).cos());
    let cases: [(Schedule, [f64; 7]); 5] = [
        (Schedule::Constant, [1.0; 7]),
        (Schedule::Step { every: 2, factor: 0.1 }, [1.0, 1.0, 0.1, 0.1, 0.01, 0.01, 0.001]),
        (Schedule::Cosine { steps: 4 }, [1.0, half(0.25), 0.5, half(0.75), 0.0, 0.0, 0.0]),
        (Schedule::Polynomial { steps: 5, power: 2.0 }, [1.0, 0.64, 0.36, 0.16, 0.04, 0.0, 0.0]),
        (Schedule::WarmupCosine { warmup: 2, steps: 6 }, [0.5, 1.0, 1.0, half(0.25), 0.5, half(0.75), 0.0]),
    ];
    for (schedule, factors) in cases {
        let optimizer = Optimizer::from(Sgd::new(1.0)).group("b", 0.5, 0.0).schedule(schedule);
        let mut rig = Rig::new(optimizer, &[0.0]);
        let mut sum = 0.0;
        for factor in factors {
            // A skipped step in between does not count.
            assert!(rig.step(&[f32::INFINITY], &[1.0]).skipped.is_some());
            rig.step(&[1.0], &[1.0]);
            sum += factor;
            close(&rig.read("a.w"), &[-sum], 1e-6);
            close(&rig.read("b.w"), &[-sum / 2.0], 1e-6);
        }
    }
}

#[test]
fn numbers_that_make_no_sense() {
    let refused = |optimizer: Optimizer| {
        let mut parameters = Parameters::seeded(0);
        parameters.at("a").weight("w", [1], Init::Constant(0.0));
        match Trainer::new(Cpu::new(1).unwrap(), parameters, optimizer, Method::fp32()) {
            Err(Error::Optimizer(ShapeError::Value(x))) => Some(x),
            _ => None,
        }
    };
    assert_eq!(refused(Adam { eps: 9e-18, ..Adam::new(0.1) }.into()), Some(9e-18));
    assert_eq!(refused(Adam { eps: 1e-17, ..Adam::new(0.1) }.into()), None);
    assert_eq!(refused(AdamW { eps: 0.0, ..AdamW::new(0.1) }.into()), Some(0.0));
    assert_eq!(refused(Sgd { momentum: 1.0, ..Sgd::new(0.1) }.into()), Some(1.0));
    assert_eq!(refused(Sgd { weight_decay: -1.0, ..Sgd::new(0.1) }.into()), Some(-1.0));
    assert_eq!(refused(Optimizer::from(Sgd::new(0.1)).clip_norm(0.0)), Some(0.0));
    assert_eq!(refused(Optimizer::from(Sgd::new(0.1)).clip_value(-1.0)), Some(-1.0));
    assert_eq!(refused(Optimizer::from(Sgd::new(0.1)).group("a", 0.1, f32::INFINITY)), Some(f32::INFINITY));
}

#[test]

fn a_learning_rate_that_is_no_number() {
    for lr in [f64::NAN, f64::INFINITY, -1.0] {
        let mut parameters = Parameters::seeded(0);
        parameters.at("a").weight("w", [1], Init::Constant(0.0));
        let trainer = Trainer::new(Cpu::new(1).unwrap(), parameters, Sgd::new(lr), Method::fp32());
        assert!(matches!(trainer, Err(Error::Optimizer(_))), "{lr}");
    }
}
