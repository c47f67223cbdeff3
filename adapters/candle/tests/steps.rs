//! Steps that are taken, repeated and skipped, with decisions compared with those of the core.

use crate::{
    numbers::Random,
    tensors::{tensor, values, var},
    twin::Twin,
};
use candle_core::{Module, Result, Tensor, Var};
use candle_nn::{Linear, Optimizer, SGD};
use gradscale_candle::{NextAction, NonFiniteKind, Outcome, ScaledLinear, Scaler, Site, SkipCause, StepGuard};

struct Net {
    layers: [ScaledLinear; 2],
    branch: Site,
    parameters: Vec<Var>,
}

impl Net {
    fn new(scaler: &Scaler) -> Self {
        let (random, mut parameters) = (Random::new(11), Vec::new());
        let mut layer = |inputs: usize, outputs: usize, name| {
            let (weight, bias) = (var((outputs, inputs), || random.uniform()), var(outputs, || 0.0));
            let linear = Linear::new(weight.as_tensor().clone(), Some(bias.as_tensor().clone()));
            parameters.extend([weight, bias]);
            ScaledLinear::new(linear, scaler, name).expect("a new name")
        };
        let layers = [layer(4, 8, "first"), layer(8, 8, "second")];
        Self { layers, branch: Site::new(scaler, "branch").expect("a new name"), parameters }
    }

    fn loss(&self, x: &Tensor, scale: f32) -> Result<Tensor> {
        let [first, second] = &self.layers;
        let h = self.branch.forward(&first.forward(x)?.relu()?)?;
        (&h + second.forward(&h)?)?.sqr()?.mean_all()? * f64::from(scale)
    }
}

struct Training {
    scaler: Scaler,
    guard: StepGuard,
    model: Net,
    optimizer: SGD,
    random: Random,
}

impl Training {
    fn new(method: &str, lr: f64) -> Self {
        let scaler = Scaler::with_threads(method, 1).expect("a method");
        let model = Net::new(&scaler);
        let guard = StepGuard::new(&scaler, model.parameters.clone());
        let optimizer = SGD::new(model.parameters.clone(), lr).expect("an optimizer");
        Self { scaler, guard, model, optimizer, random: Random::new(12) }
    }

    fn step(&mut self, scale: f32) -> Outcome {
        let x = tensor((6, 4), || self.random.uniform());
        let outcome = self.guard.step(|| self.model.loss(&x, scale), |gradients| self.optimizer.step(gradients));
        outcome.expect("a step")
    }

    fn weights(&self) -> Vec<u32> {
        self.model.parameters.iter().flat_map(|var| values(var)).map(f32::to_bits).collect()
    }

    fn exponents(&self) -> Vec<i32> {
        self.scaler.exponents().into_iter().map(|(_, exponent)| exponent).collect()
    }
}

#[test]
fn a_loss_times_a_power_of_two_changes_no_bit_of_the_weights() {
    let train = |shift: i32| {
        let mut training = Training::new("gs", 0.05 * f64::from(-shift).exp2());
        for _ in 0..25 {
            assert!(training.step(2f32.powi(shift)).stepped());
        }
        (training.weights(), training.exponents())
    };
    let (weights, exponents) = train(0);
    let (shifted, higher) = train(-30);
    assert_eq!(weights, shifted);
    assert_eq!(higher, exponents.iter().map(|exponent| exponent + 30).collect::<Vec<_>>());
    assert_ne!(weights, Training::new("gs", 0.1).weights());
}

#[test]
fn what_overflows_is_run_again_and_nothing_is_lost() {
    let mut training = Training::new("gs", 0.0);
    for _ in 0..3 {
        assert_eq!(training.step(1.0), Outcome::Stepped { repeats: 0 });
    }
    assert_eq!(training.step(2f32.powi(40)), Outcome::Stepped { repeats: 1 });
    assert_eq!(training.step(1.0), Outcome::Stepped { repeats: 0 });
    assert!(training.scaler.report().iter().any(|site| site.overflows > 0));
}

#[test]
fn nan_and_infinity_are_left_out_and_training_goes_on() {
    let mut training = Training::new("gs", 0.05);
    assert!(training.step(1.0).stepped());
    for bad in [f32::NAN, f32::INFINITY] {
        let (weights, exponents) = (training.weights(), training.exponents());
        let outcome = training.step(bad);
        let Outcome::Skipped(skipped) = &outcome else { panic!("{outcome}") };
        assert_eq!(skipped.cause, SkipCause::NotFinite);
        // The last layer's output is the first whose gradient is stored.
        assert!(
            matches!(&skipped.site, Some(site) if site.name == "second" && site.kind != NonFiniteKind::Overflow),
            "{outcome}"
        );
        assert_eq!((training.weights(), training.exponents()), (weights, exponents));
        assert!(training.step(1.0).stepped());
    }
}

#[test]
fn a_dynamic_loss_scale_halves_when_it_skips() {
    let mut training = Training::new("dynamic", 0.05);
    assert!(training.step(1.0).stepped());
    assert_eq!(training.exponents(), [16; 3]);
    let weights = training.weights();
    assert!(!training.step(2f32.powi(20)).stepped());
    assert_eq!((training.exponents(), training.weights()), (vec![15; 3], weights));
    assert!(training.step(1.0).stepped());
}

#[test]
fn a_loop_of_ones_own_skips_or_repeats() {
    let training = Training::new("gs", 0.0);
    let x = tensor((6, 4), || training.random.uniform());
    let end = |scale: f32, repeatable: bool| {
        let gradients = training.model.loss(&x, scale).and_then(|loss| loss.backward()).expect("gradients");
        training.guard.end_pass(&gradients, repeatable).expect("an end")
    };
    assert_eq!(end(1.0, false), NextAction::Step);
    assert!(matches!(end(2f32.powi(40), false), NextAction::Skip(skipped) if skipped.cause == SkipCause::Again));
    // Now the sites decide from its own values.
    assert_eq!(end(2f32.powi(40), false), NextAction::Step);
    assert_eq!(end(2f32.powi(80), true), NextAction::Repeat);
    assert_eq!(end(2f32.powi(80), true), NextAction::Step);
}

#[test]
fn an_error_on_the_way_leaves_no_trace() {
    let mut training = Training::new("gs", 0.05);
    assert!(training.step(1.0).stepped());
    let exponents = training.exponents();
    let x = tensor((6, 4), || 1.0);
    let wrong = || training.model.loss(&x, 1.0)?.backward().and_then(|_| candle_core::bail!("no data"));
    let error = training.guard.step(wrong, |_| Ok(())).expect_err("an error");
    assert!(error.to_string().starts_with("no data"));
    assert_eq!(training.exponents(), exponents);
    assert_eq!(training.step(1.0), Outcome::Stepped { repeats: 0 });
}

/// Each step passes `given` to the site.
#[test]
fn exponents_are_those_of_the_core() -> Result<()> {
    let scaler = Scaler::with_threads("gs", 1).expect("a method");
    let site = Site::new(&scaler, "site").expect("a new name");
    let mut core = Twin::new();
    let random = Random::new(14);
    for step in 0..40 {
        let given = tensor((5, 7), || random.uniform() * 2f32.powi(i32::from(random.below(20)) - 40 - step));
        let x = var((5, 7), || 1.0);
        let all = (site.forward(&x)? * &given)?.sum_all()?.backward()?;
        let (exponent, stored, flushed) = core.step(&values(&given));
        assert_eq!((site.exponent(), values(all.get(&x).expect("of x"))), (exponent, stored), "step {step}");
        assert_eq!(scaler.end_pass(false, true), NextAction::Step);
        assert_eq!(scaler.report()[0].flushed, flushed);
    }
    assert!(site.exponent() > 40);
    Ok(())
}
