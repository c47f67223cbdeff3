//! Two towers whose losses differ by 2^46, which no single scale for all gradients can train.

use crate::{
    numbers::Random,
    points::{CLASSES, VALUES, points, share},
    tensors::var,
};
use candle_core::{Device, Module, Result, Tensor, Var};
use candle_nn::{Linear, Optimizer, SGD, loss::cross_entropy};
use gradscale_candle::{ScaledLinear, Scaler, StepGuard};

/// The second loss is weighted with 2^-GAP relative to the first.
const GAP: i32 = 46;
const HIDDEN: usize = 16;

struct Towers {
    trunk: ScaledLinear,
    first: ScaledLinear,
    second: [ScaledLinear; 2],
    /// Parameters of trunk and first tower, and those of the second.
    parameters: [Vec<Var>; 2],
}

impl Towers {
    fn new(scaler: &Scaler) -> Self {
        let random = Random::new(7);
        let mut parameters = [Vec::new(), Vec::new()];
        // Equal for every method.
        let mut layer = |inputs: usize, outputs: usize, name: &str, tower: usize| {
            let bound = 1.0 / (inputs as f32).sqrt();
            let (weight, bias) = (var((outputs, inputs), || random.uniform() * bound), var(outputs, || 0.0));
            let linear = Linear::new(weight.as_tensor().clone(), Some(bias.as_tensor().clone()));
            parameters[tower].extend([weight, bias]);
            ScaledLinear::new(linear, scaler, name).expect("a new name")
        };
        let (trunk, first) = (layer(VALUES, HIDDEN, "trunk", 0), layer(HIDDEN, usize::from(CLASSES), "first", 0));
        let second = [layer(HIDDEN, HIDDEN, "second.hidden", 1), layer(HIDDEN, usize::from(CLASSES), "second", 1)];
        Self { trunk, first, second, parameters }
    }

    /// Computes the logits of both towers; the second reads features through which no gradient flows back.
    fn forward(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        let features = self.trunk.forward(x)?.relu()?;
        let [hidden, out] = &self.second;
        Ok([self.first.forward(&features)?, out.forward(&hidden.forward(&features.detach())?.relu()?)?])
    }

    fn loss(&self, x: &Tensor, classes: &Tensor) -> Result<Tensor> {
        let [first, second] = self.forward(x)?;
        cross_entropy(&first, classes)? + (cross_entropy(&second, classes)? * f64::from(-GAP).exp2())?
    }
}

fn batch(random: &Random, count: usize) -> Result<(Tensor, Vec<u16>)> {
    let (values, classes) = points(random, count);
    Ok((Tensor::from_vec(values, (count, VALUES), &Device::Cpu)?, classes))
}

/// Returns the accuracy of both towers, and the number of skipped steps.
fn train(method: &str) -> Result<([f64; 2], usize)> {
    let scaler = Scaler::with_threads(method, 1).expect("a method");
    let model = Towers::new(&scaler);
    let guard = StepGuard::new(&scaler, model.parameters.concat());
    let [one, two] = &model.parameters;
    let mut first = SGD::new(one.clone(), 0.2)?;
    let mut second = SGD::new(two.clone(), 0.2 * f64::from(GAP).exp2())?;
    let random = Random::new(8);
    let mut skipped = 0;
    for _ in 0..150 {
        let (x, classes) = batch(&random, 32)?;
        let classes = Tensor::new(classes.into_iter().map(u32::from).collect::<Vec<_>>(), &Device::Cpu)?;
        let outcome = guard.step(
            || model.loss(&x, &classes),
            |gradients| {
                first.step(gradients)?;
                second.step(gradients)
            },
        )?;
        skipped += usize::from(!outcome.stepped());
    }
    let (x, classes) = batch(&Random::new(9), 256)?;
    let shares = model.forward(&x)?.map(|logits| {
        let best = logits.argmax(1).and_then(|best| best.to_vec1::<u32>()).expect("classes");
        share(&best, &classes)
    });
    println!("{method:10} {shares:?}, {skipped} skipped");
    Ok((shares, skipped))
}

#[test]
fn only_a_scale_for_each_gradient_trains_both() -> Result<()> {
    let both = |shares: [f64; 2]| shares.iter().all(|&share| share > 0.95);
    assert!(both(train("fp32")?.0));
    let (own, skipped) = train("gs")?;
    assert!(both(own) && skipped == 0);
    for method in ["fp16", "dynamic", "fixed:2^24"] {
        assert!(!both(train(method)?.0), "{method} trained both towers");
    }
    Ok(())
}
