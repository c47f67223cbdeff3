//! Two towers whose losses differ by 2^46, which no single scale for all gradients can train.

use crate::{
    numbers::Random,
    points::{CLASSES, VALUES, points, share},
    tensors::{device, tensor, values},
};
use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{Linear, LinearConfig, loss::CrossEntropyLossConfig},
    optim::{GradientsParams, ModuleOptimizer, SgdConfig},
    tensor::{Int, Tensor, TensorData, activation::relu},
};
use gradscale_burn::{ScaledLinear, Scaler, StepGuard};

/// The second loss is weighted with 2^-GAP relative to the first.
const GAP: i32 = 46;
const HIDDEN: usize = 16;

#[derive(Module, Debug)]
struct Towers {
    trunk: ScaledLinear,
    first: ScaledLinear,
    second: [ScaledLinear; 2],
}

/// Creates a layer that is the same for every method.
fn layer(random: &Random, scaler: &Scaler, [inputs, outputs]: [usize; 2], name: &str) -> ScaledLinear {
    let mut linear: Linear = LinearConfig::new(inputs, outputs).init(&device());
    let bound = 1.0 / (inputs as f32).sqrt();
    linear.weight = Param::from_tensor(tensor([inputs, outputs], || random.uniform() * bound));
    linear.bias = Some(Param::from_tensor(tensor([outputs], || 0.0)));
    ScaledLinear::new(linear, scaler, name).expect("a new name")
}

impl Towers {
    fn new(scaler: &Scaler) -> Self {
        let random = Random::new(7);
        let layer = |sizes, name| layer(&random, scaler, sizes, name);
        Self {
            trunk: layer([VALUES, HIDDEN], "trunk"),
            first: layer([HIDDEN, usize::from(CLASSES)], "first"),
            second: [layer([HIDDEN, HIDDEN], "second.hidden"), layer([HIDDEN, usize::from(CLASSES)], "second")],
        }
    }

    /// Computes the logits of both towers; the second reads features through which no gradient flows back.
    fn forward(&self, x: Tensor<2>) -> [Tensor<2>; 2] {
        let features = relu(self.trunk.forward(x));
        let [hidden, out] = &self.second;
        [self.first.forward(features.clone()), out.forward(relu(hidden.forward(features.detach())))]
    }
}

fn batch(random: &Random, count: usize) -> (Tensor<2>, Vec<u16>) {
    let (values, classes) = points(random, count);
    (Tensor::from_data(TensorData::new(values, [count, VALUES]), &device()), classes)
}

/// Moves the gradients of a module out of those of a larger one.
struct Taken<'a>(&'a mut GradientsParams, GradientsParams);

impl ModuleVisitor for Taken<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.0.remove::<D>(param.id) {
            self.1.register(param.id, gradient);
        }
    }
}

/// Returns the accuracy of both towers, and the number of skipped steps.
fn train(method: &str) -> ([f64; 2], usize) {
    let scaler = Scaler::with_threads(method, 1).expect("a method");
    let (mut model, guard) = (Towers::new(&scaler), StepGuard::new(&scaler));
    let mut optimizers: [ModuleOptimizer; 2] = [SgdConfig::new().init(), SgdConfig::new().init()];
    let (random, apart) = (Random::new(8), f64::from(GAP).exp2());
    let mut skipped = 0;
    for _ in 0..150 {
        let (x, classes) = batch(&random, 32);
        let classes: Vec<i32> = classes.into_iter().map(i32::from).collect();
        let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [32]), &device());
        let loss = |model: &Towers| {
            let [first, second] = model
                .forward(x.clone())
                .map(|logits| CrossEntropyLossConfig::new().init(&device()).forward(logits, classes.clone()));
            first + second * (1.0 / apart)
        };
        let (next, outcome) = guard.step(model, loss, |mut model, mut gradients| {
            let mut second = Taken(&mut gradients, GradientsParams::new());
            model.second.visit(&mut second);
            let second = second.1;
            model.second = optimizers[1].step(0.2 * apart, model.second, second);
            optimizers[0].step(0.2, model, gradients)
        });
        model = next;
        skipped += usize::from(!outcome.stepped());
    }
    let (x, classes) = batch(&Random::new(9), 256);
    let shares = model.forward(x).map(|logits| {
        let best: Vec<i64> = logits.argmax(1).into_data().iter::<i64>().collect();
        share(&best, &classes)
    });
    println!("{method:10} {shares:?}, {skipped} skipped");
    (shares, skipped)
}

#[test]
fn only_a_scale_for_each_gradient_trains_both() {
    let both = |shares: [f64; 2]| shares.iter().all(|&share| share > 0.95);
    assert!(both(train("fp32").0));
    let (own, skipped) = train("gs");
    assert!(both(own) && skipped == 0);
    for method in ["fp16", "dynamic", "fixed:2^24"] {
        assert!(!both(train(method).0), "{method} trained both towers");
    }
}

#[test]
fn without_a_site_at_hand_numbers_are_as_they_were() {
    let scaler = Scaler::with_threads("gs", 1).expect("a method");
    let model = Towers::new(&scaler);
    assert_eq!(
        scaler.exponents().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["trunk", "first", "second.hidden", "second"]
    );
    assert_eq!(values(&model.trunk.linear.weight.val()).len(), VALUES * HIDDEN);
}
