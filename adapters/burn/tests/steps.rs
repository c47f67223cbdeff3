//! Steps that are taken, repeated and skipped, with decisions compared with those of the core.

use crate::{
    numbers::Random,
    tensors::{device, tensor, values},
    twin::Twin,
};
use burn::{
    module::{Module, Param},
    nn::{Linear, LinearConfig},
    optim::{GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::{Tensor, activation::relu},
};
use gradscale_burn::{NextAction, NonFiniteKind, Outcome, ScaledLinear, Scaler, Site, SkipCause, StepGuard};

#[derive(Module, Debug)]
struct Net {
    layers: [ScaledLinear; 2],
    branch: Site,
}

impl Net {
    fn new(scaler: &Scaler) -> Self {
        let random = Random::new(11);
        let layer = |[inputs, outputs]: [usize; 2], name| {
            let mut linear: Linear = LinearConfig::new(inputs, outputs).init(&device());
            linear.weight = Param::from_tensor(tensor([inputs, outputs], || random.uniform()));
            linear.bias = Some(Param::from_tensor(tensor([outputs], || 0.0)));
            ScaledLinear::new(linear, scaler, name).expect("a new name")
        };
        let layers = [layer([4, 8], "first"), layer([8, 8], "second")];
        Self { layers, branch: Site::new(scaler, "branch").expect("a new name") }
    }

    fn loss(&self, x: Tensor<2>, scale: f32) -> Tensor<1> {
        let [first, second] = &self.layers;
        let h = self.branch.forward(relu(first.forward(x)));
        (h.clone() + second.forward(h)).powi_scalar(2).mean() * scale
    }

    fn weights(&self) -> Vec<u32> {
        let all = self.layers.iter().flat_map(|layer| {
            let bias = layer.linear.bias.as_ref().map(|bias| values(&bias.val()));
            [values(&layer.linear.weight.val()), bias.unwrap_or_default()].concat()
        });
        all.map(f32::to_bits).collect()
    }
}

struct Training {
    scaler: Scaler,
    guard: StepGuard,
    model: Option<Net>,
    optimizer: ModuleOptimizer,
    random: Random,
    lr: f64,
}

impl Training {
    fn new(method: &str, lr: f64) -> Self {
        let scaler = Scaler::with_threads(method, 1).expect("a method");
        let (model, guard) = (Some(Net::new(&scaler)), StepGuard::new(&scaler));
        let momentum = MomentumConfig::new().with_momentum(0.5).with_dampening(0.0);
        let optimizer = SgdConfig::new().with_momentum(Some(momentum)).init();
        Self { scaler, guard, model, optimizer, random: Random::new(12), lr }
    }

    fn step(&mut self, scale: f32) -> Outcome {
        let x = tensor([6, 4], || self.random.uniform());
        let model = self.model.take().expect("a model");
        let loss = |model: &Net| model.loss(x.clone(), scale);
        let (model, outcome) =
            self.guard.step(model, loss, |model, gradients| self.optimizer.step(self.lr, model, gradients));
        self.model = Some(model);
        outcome
    }

    fn weights(&self) -> Vec<u32> {
        self.model.as_ref().expect("a model").weights()
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
    let before = training.exponents();
    assert_eq!(training.step(2f32.powi(40)), Outcome::Stepped { repeats: 1 });
    assert_eq!(training.step(1.0), Outcome::Stepped { repeats: 0 });
    assert!(training.scaler.report().iter().any(|site| site.overflows > 0));
    assert_eq!(before.len(), 3);
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
    let scaler = Scaler::with_threads("gs", 1).expect("a method");
    let (model, guard, random) = (Net::new(&scaler), StepGuard::new(&scaler), Random::new(13));
    let x = tensor([6, 4], || random.uniform());
    let end = |scale: f32, repeatable: bool| {
        let gradients = GradientsParams::from_grads(model.loss(x.clone(), scale).backward(), &model);
        guard.end_pass(&model, &gradients, repeatable)
    };
    assert_eq!(end(1.0, false), NextAction::Step);
    assert!(matches!(end(2f32.powi(40), false), NextAction::Skip(skipped) if skipped.cause == SkipCause::Again));
    // Now the sites decide from its own values.
    assert_eq!(end(2f32.powi(40), false), NextAction::Step);
    assert_eq!(end(2f32.powi(80), true), NextAction::Repeat);
    assert_eq!(end(2f32.powi(80), true), NextAction::Step);
}

#[test]
fn training_goes_on_from_what_was_saved() {
    let mut training = Training::new("gs:interval=3", 5e4);
    for _ in 0..5 {
        assert!(training.step(1e-6).stepped());
    }
    let saved = training.scaler.save().expect("a text");
    let (model, x) = (training.model.as_ref().expect("a model"), tensor([6, 4], || 0.25));
    let gradient = |model: &Net| {
        let gradients = GradientsParams::from_grads(model.loss(x.clone(), 1e-6).backward(), model);
        values(&gradients.get::<2>(model.layers[0].linear.weight.id).expect("of the weight"))
    };
    let scaler = Scaler::with_threads("gs:interval=3", 1).expect("a method");
    let again = Net::new(&scaler);
    scaler.restore(&saved).expect("a saved state");
    assert_eq!(scaler.exponents(), training.scaler.exponents());
    assert_ne!(gradient(&again), gradient(model), "weights are burn's to save");
    let again = again.load_record(model.clone().into_record());
    scaler.discard_pass();
    training.scaler.discard_pass();
    assert_eq!(gradient(&again), gradient(model));
}

/// Each step passes `values` to the site, in this order.
#[test]
fn exponents_are_those_of_the_core() {
    let scaler = Scaler::with_threads("gs", 1).expect("a method");
    let site = Site::new(&scaler, "site").expect("a new name");
    let mut core = Twin::new();
    let random = Random::new(14);
    for step in 0..40 {
        let given = tensor([5, 7], || random.uniform() * 2f32.powi(i32::from(random.below(20)) - 40 - step));
        let x = tensor([5, 7], || 1.0).require_grad();
        let all = (site.forward(x.clone()) * given.clone()).sum().backward();
        let (exponent, stored, flushed) = core.step(&values(&given));
        assert_eq!((site.exponent(), values(&x.grad(&all).expect("of x"))), (exponent, stored), "step {step}");
        assert_eq!(scaler.end_pass(false, true), NextAction::Step);
        assert_eq!(scaler.report()[0].flushed, flushed);
    }
    assert!(site.exponent() > 40);
}
