//! Gradients of weights that are half before they are f32 (`wgrad=half`), as those of half weights are in PyTorch.

#[path = "../../weights/mod.rs"]
mod devices;

use crate::golden;
use gradscale::{
    Cpu, Error, Gradients, Input, Method, Parameters, Pass, Trainer, Var,
    gradscale_core::{
        amp::{AmpPolicy, Level, Precision},
        step_outcome::NonFiniteKind,
    },
    nn::{BatchNorm, Conv2d, ConvTranspose2d, Embedding, Linear, Module},
    optim::Sgd,
};
use half::f16;

/// Every kind of weight: of an embedding, a convolution, a normalisation, a transposed convolution, a linear layer.
struct Net {
    embedding: Embedding,
    conv: Conv2d,
    norm: BatchNorm,
    up: ConvTranspose2d,
    linear: Linear,
}

struct Training {
    net: Net,
    trainer: Trainer<Cpu>,
}

impl Training {
    fn new(method: &str, level: Level) -> Self {
        let mut parameters = Parameters::seeded(5);
        let mut scope = parameters.at("net");
        let net = Net {
            embedding: Embedding::new(&mut scope.at("embedding"), 7, 4),
            conv: Conv2d::new(&mut scope.at("conv"), 4, 6, 3),
            norm: BatchNorm::new(&mut scope.at("norm"), 6),
            up: ConvTranspose2d::new(&mut scope.at("up"), 6, 5, 2).stride(2),
            linear: Linear::new(&mut scope.at("linear"), 5, 3),
        };
        let method = method.parse::<Method>().expect("a method").with_amp(AmpPolicy::new(level));
        let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.1), method);
        Self { net, trainer: trainer.expect("a trainer") }
    }

    fn backward(&mut self, factor: f32) -> Gradients {
        let indices: Vec<u32> = (0..2 * 4 * 4u32).map(|i| i * i % 7).collect();
        let labels: Vec<u8> = (0..2 * 8 * 8u32).map(|i| u8::from(i % 5 == 0)).collect();
        let factor = [factor];
        let batch = [Input::u32([2, 4, 4, 1], &indices), Input::u8([2, 8, 8, 1], &labels), Input::f32([1], &factor)];
        let net = &self.net;
        self.trainer.backward(batch, |all| net.loss(all)).expect("it fits")
    }

    /// Every gradient by name.
    fn gradients(&mut self, factor: f32) -> Vec<(String, Vec<f32>)> {
        let gradients = self.backward(factor);
        let names = self.trainer.parameters().expect("parameters").into_iter().map(|(name, _)| name);
        let read = |name: String| {
            let gradient = self.trainer.gradient(&gradients, &name).expect("a parameter");
            gradient.map(|gradient| (name, gradient.data))
        };
        let all = names.filter_map(read).collect();
        self.trainer.step(gradients).expect("a step");
        all
    }
}

impl Net {
    fn loss<'t>(&self, [indices, labels, factor]: [Var<'t>; 3]) -> Var<'t> {
        let x = self.embedding.forward(indices);
        let x = self.norm.forward(self.conv.forward(x)).relu();
        self.linear.forward(self.up.forward(x)).cross_entropy(labels) * factor
    }
}

/// Returns the scaled f32 gradient rounded to half, and unscaled: the expected value, bit for bit.
fn through_half(gradient: &[f32], scale: f32) -> Vec<f32> {
    gradient.iter().map(|value| f16::from_f32(value * scale).to_f32() / scale).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Comparison with a training whose weight gradients are f32. Every weight that is read in half has a gradient rounded
/// once at the scale; those of normalisations, which are read in f32, do not change. Scales range from one at which
/// nearly all gradients flush to one at which some overflow.
#[test]
fn weights_read_in_half_have_gradients_in_half() {
    for (level, embedding) in [(Level::O1, false), (Level::O2, true), (Level::O3, true)] {
        let (mut flushed, mut overflowed, mut compared) = (0, 0, 0);
        for exponent in [-14, -12, -10, -6, 0, 8, 20, 22] {
            let [mut single, mut half] =
                ["", ",wgrad=half"].map(|wgrad| Training::new(&format!("fixed:2^{exponent}{wgrad}"), level));
            let (expected, found) = (single.gradients(0.25), half.gradients(0.25));
            assert_eq!(expected.len(), found.len());
            for ((name, expected), (_, found)) in expected.iter().zip(&found) {
                let kept = name.starts_with("net.norm") || name.starts_with("net.embedding") && !embedding;
                let scale = 2f32.powi(exponent);
                let right = if kept { expected.clone() } else { through_half(expected, scale) };
                assert_eq!(bits(found), bits(&right), "{name} at 2^{exponent} under {level:?}");
                let nonzero = expected.iter().zip(&right).filter(|(value, _)| **value != 0.0);
                flushed += nonzero.clone().filter(|(_, half)| **half == 0.0).count();
                overflowed += nonzero.filter(|(value, half)| value.is_finite() && half.is_infinite()).count();
                compared += expected.len();
            }
        }
        assert!(flushed >= 10 && overflowed >= 4 && compared > 1000, "{level:?}: {flushed} {overflowed} {compared}");
    }
}

/// Each weight has its own site, which counts the values that flush, and is named if it is the first to overflow.
#[test]
fn they_are_sites_that_are_counted_and_blamed() {
    let mut training = Training::new("fixed:2^-8,wgrad=half", Level::O1);
    let gradients = Training::new("fixed:2^-8", Level::O1).gradients(0.25);
    training.gradients(0.25);
    let sites: Vec<_> = training.trainer.sites().collect();
    let names: Vec<&str> = sites.iter().map(|site| site.name).filter(|name| name.contains("grad")).collect();
    let of_weights = ["net.linear/wgrad", "net.linear/bgrad", "net.up/wgrad", "net.conv/wgrad"];
    assert!(of_weights.iter().all(|name| names.contains(name)), "{names:?}");
    for (site, parameter) in [("net.linear/wgrad", "net.linear.weight"), ("net.linear/bgrad", "net.linear.bias")] {
        let site = sites.iter().find(|one| one.name == site).expect("a site");
        let (_, values) = gradients.iter().find(|(name, _)| name == parameter).expect("a gradient");
        let nonzero = values.iter().filter(|value| **value != 0.0);
        let flushed = nonzero.clone().filter(|value| f16::from_f32(**value * 2f32.powi(-8)).to_f32() == 0.0).count();
        assert_eq!((site.alpha, site.row.counts().flushed), (-8, flushed as u64));
        assert_eq!(site.row.counts().nonzero(), nonzero.count() as u64);
    }
    // Sums over 128 pixels overflow where none of them does.
    let mut training = Training::new("fixed:2^20,wgrad=half", Level::O1);
    let gradients = training.backward(0.25);
    let outcome = training.trainer.step(gradients).expect("a step");
    let (site, kind) = outcome.skipped.expect("skipped").site.expect("a site");
    assert!(
        kind == NonFiniteKind::Overflow && (site.ends_with("/wgrad") || site.ends_with("/bgrad")),
        "{site} {kind:?}"
    );
    let mut same = Training::new("fixed:2^20", Level::O1);
    let gradients = same.backward(0.25);
    assert_eq!(same.trainer.step(gradients).expect("a step").skipped, None);
}

/// A dynamic scale comes down until they fit, which it need not where they are f32.
#[test]
fn a_dynamic_scale_makes_room_for_them() {
    let scale_after = |method: &str| {
        let mut training = Training::new(method, Level::O1);
        let skipped: Vec<bool> = (0..8)
            .map(|_| {
                let gradients = training.backward(0.25);
                training.trainer.step(gradients).expect("a step").skipped.is_some()
            })
            .collect();
        assert!(!skipped[7], "{method}");
        (skipped.iter().filter(|skipped| **skipped).count(), training.trainer.loss_scale())
    };
    let (skips, single) = scale_after("dynamic:init=2^20");
    assert_eq!((skips, single), (0, 20));
    let (skips, half) = scale_after("dynamic:init=2^20,wgrad=half");
    assert!(skips >= 1 && half == 20 - i32::try_from(skips).expect("few"), "{skips} skips, 2^{half}");
}

/// Gradients of micro-batches, each rounded to half, add in f32.
#[test]
fn micro_batches_add_in_f32() {
    let mut training = Training::new("fixed:2^4,wgrad=half", Level::O1);
    let one = training.backward(0.25);
    let once = training.trainer.gradient(&one, "net.linear.weight").expect("a weight").expect("a gradient").data;
    let gradients = {
        let indices: Vec<u32> = (0..2 * 4 * 4u32).map(|i| i * i % 7).collect();
        let labels: Vec<u8> = (0..2 * 8 * 8u32).map(|i| u8::from(i % 5 == 0)).collect();
        let batch = [Input::u32([2, 4, 4, 1], &indices), Input::u8([2, 8, 8, 1], &labels), Input::f32([1], &[0.25])];
        let net = &training.net;
        training.trainer.backward(Pass::new(batch).accumulate(one), |all| net.loss(all)).expect("it fits")
    };
    let twice = training.trainer.gradient(&gradients, "net.linear.weight").expect("a weight").expect("a gradient");
    assert_eq!(twice.data, once.iter().map(|value| value + value).collect::<Vec<_>>());
}

#[test]
fn checkpoints_know_of_them() {
    let metadata = std::collections::BTreeMap::new();
    let mut half = Training::new("dynamic:init=2^4,wgrad=half", Level::O1);
    let mut single = Training::new("dynamic:init=2^4", Level::O1);
    half.gradients(0.25);
    single.gradients(0.25);
    let [saved, plain] = [&half, &single].map(|one| one.trainer.save(&metadata).expect("a checkpoint"));
    let mut fresh = Training::new("dynamic:init=2^4,wgrad=half", Level::O1);
    fresh.trainer.load(&saved).expect("the same method");
    assert_eq!(bits(&fresh.gradients(0.25)[0].1), bits(&half.gradients(0.25)[0].1));
    for (training, bytes, cause) in
        [(&mut single, &saved, "half in the checkpoint, f32"), (&mut fresh, &plain, "f32 in the checkpoint, half")]
    {
        let error = training.trainer.load(bytes).expect_err("another method").to_string();
        assert_eq!(error, format!("checkpoint: made with another method: wgrad {cause} here"));
    }
}

#[test]
fn gradient_scaling_has_none() {
    let method = Method { weight_gradients: Precision::Half, ..Method::mixed() };
    let mut parameters = Parameters::seeded(1);
    Linear::new(&mut parameters.at("net"), 2, 2);
    let trainer = Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.1), method);
    assert!(matches!(trainer, Err(Error::WeightGradients)));
}

/// Runs the tests of all devices on the CPU.
#[test]
fn on_this_device() {
    devices::weight_gradients_in_half(|| Cpu::new(1).expect("a CPU"));
}

/// Half weights have PyTorch's gradients, bit for bit. Where products and sums are exact in f32, the two can differ
/// only in their stores. At 2^-20 weights' gradients flush, at 2^17 a bias's overflow.
#[test]
fn they_are_those_of_half_weights_in_pytorch() {
    let (mut flushed, mut overflowed) = (0, 0);
    for exponent in [-20, -14, 0, 17] {
        let case = format!("half weights 2^{exponent}");
        let read = |key: &str| {
            let row = golden::rows().find(|row| row[0] == case && row[1] == key).expect("a row");
            golden::numbers::<f32>(row[3])
        };
        let (x, t) = (read("in.x"), read("t"));
        let mut parameters = Parameters::seeded(1);
        let linear = Linear::new(&mut parameters.at("linear"), 5, 3);
        let method: Method = format!("fixed:2^{exponent},wgrad=half").parse().expect("a method");
        let mut trainer =
            Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.1), method).expect("a trainer");
        let batch = [Input::f32([96, 5], &x), Input::f32([96, 3], &t)];
        let found = trainer.backward(batch, |[x, t]| (linear.forward(x) * t).sum()).expect("gradients");
        for name in ["weight", "bias"] {
            let gradient = trainer.gradient(&found, &format!("linear.{name}")).expect("readable").expect("a gradient");
            let expected = read(&format!("grad.{name}"));
            assert_eq!(
                bits(&gradient.data),
                bits(&expected),
                "{name} at 2^{exponent}: {:?} {expected:?}",
                gradient.data
            );
            flushed += expected.iter().filter(|value| **value == 0.0).count();
            overflowed += expected.iter().filter(|value| value.is_infinite()).count();
        }
    }
    assert!(flushed > 0 && overflowed > 0, "{flushed} flush, {overflowed} overflow");
}
