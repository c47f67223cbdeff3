//! Whole networks: their gradients in f32 and in mixed precision against the oracle.

use crate::{
    f64::{self as oracle, Conv, Tensor},
    graph::{Random, values},
};
use gradscale::{
    Cpu, Input, Method, Parameters, Trainer,
    models::{Mlp, SegNet},
    nn::{LocalResponseNorm, Module},
    optim::Sgd,
};
use std::collections::BTreeMap;

type Named = BTreeMap<String, Tensor>;
/// Places of sampled elements of each parameter, and their gradients.
type Slopes = BTreeMap<String, Vec<(usize, f64)>>;

/// A network, its oracle and its batch.
struct Network<'a> {
    build: &'a dyn Fn(&mut Parameters) -> Box<dyn Module>,
    oracle: &'a dyn Fn(&Named) -> f64,
    x: &'a Tensor,
    labels: &'a [u8],
}

impl Network<'_> {
    /// Parameters and gradients after one backward pass.
    fn gradients(&self, method: Method) -> (Named, BTreeMap<String, Vec<f32>>) {
        let mut parameters = Parameters::seeded(3);
        let net = (self.build)(&mut parameters);
        let mut trainer =
            Trainer::new(Cpu::new(1).expect("a CPU"), parameters, Sgd::new(0.0), method).expect("a trainer");
        let x: Vec<f32> = self.x.data.iter().map(|&x| x as f32).collect();
        let [n, h, w, _] = self.x.shape;
        let batch = [Input::f32(self.x.shape, &x), Input::u8([n, h, w, 1], self.labels)];
        let gradients = trainer.backward(batch, |[x, labels]| net.forward(x).cross_entropy(labels)).expect("it fits");
        let all = trainer.parameters().expect("parameters");
        let all: Named = all.into_iter().map(|(name, t)| (name, Tensor::new(t.shape.sizes(), &t.data))).collect();
        let read = |name: &String| Some((name.clone(), trainer.gradient(&gradients, name).expect("a parameter")?.data));
        let found = all.keys().filter(|name| !name.ends_with("running")).filter_map(read).collect();
        let outcome = trainer.step(gradients).expect("a step");
        assert_eq!(outcome.skipped, None);
        let right = (self.oracle)(&all);
        let tolerance = 4e-3 * right;
        assert!((f64::from(outcome.loss) - right).abs() < tolerance, "loss {} instead of {right}", outcome.loss);
        (all, found)
    }

    /// Returns central differences at `samples` elements of each parameter, with their places.
    fn slopes(&self, all: &Named, samples: usize) -> Slopes {
        let mut random = Random(5);
        let of_parameter = |(name, parameter): (&String, &Tensor)| {
            let len = parameter.data.len();
            let slope = |i: usize| {
                let at = |to: f64| {
                    let mut all = all.clone();
                    all.get_mut(name).expect("a parameter").data[i] += to;
                    (self.oracle)(&all)
                };
                (i, (at(1e-6) - at(-1e-6)) / 2e-6)
            };
            (name.clone(), (0..samples.min(len)).map(|_| slope(random.below(len))).collect())
        };
        all.iter().filter(|(name, _)| !name.ends_with("running")).map(of_parameter).collect()
    }

    /// Checks for both precisions that the error of each parameter's gradient is below a bound, relative to its largest
    /// sampled element.
    fn check(&self, samples: usize, bounds: [(Method, f64); 2]) {
        let mut slopes: Option<(Named, Slopes)> = None;
        for (method, bound) in bounds {
            let (all, found) = self.gradients(method);
            // The oracle takes most of the time, and weights are the same.
            let (of, slopes) = slopes.get_or_insert_with(|| (all.clone(), self.slopes(&all, samples)));
            assert!(all.iter().all(|(name, tensor)| tensor.data == of[name].data), "both begin with the same weights");
            for (name, found) in &found {
                let largest = slopes[name].iter().fold(0f64, |largest, (_, right)| largest.max(right.abs()));
                let error = |&(i, right): &(usize, f64)| (f64::from(found[i]) - right).abs();
                let distance = slopes[name].iter().map(error).fold(0f64, f64::max) / largest;
                println!("{name}: {distance:.1e}");
                assert!(distance < bound, "{name}: {distance:e}");
            }
        }
    }
}

#[test]
fn mlp() {
    let x = Tensor::new([16, 1, 1, 5], &values(1, 80));
    let labels: Vec<u8> = (0..16).map(|i| i * 7 % 3).collect();
    let oracle = |all: &Named| {
        let layer = |x: &Tensor, i: usize| {
            let bias = &all[&format!("net.linear{i}.bias")];
            oracle::linear(x, &all[&format!("net.linear{i}.weight")], Some(bias))
        };
        let hidden = layer(&layer(&x, 1).map(|x| x.max(0.0)), 2).map(|x| x.max(0.0));
        oracle::cross_entropy(&layer(&hidden, 3), &labels, None, None, oracle::Divisor::Rows)
    };
    // Three products of few terms: measured 1.9e-7; and 11 stores of 2^-11 on the way, most of whose errors cancel:
    // measured 2.1e-3.
    let build = |parameters: &mut Parameters| -> Box<dyn Module> {
        Box::new(Mlp::new(&mut parameters.at("net"), &[5, 8, 8, 3]))
    };
    let network = Network { build: &build, oracle: &oracle, x: &x, labels: &labels };
    network.check(64, [(Method::fp32(), 1e-6), (Method::mixed(), 6.0 * 2f64.powi(-11))]);
}

#[test]
fn segnet_of_odd_sizes() {
    let mut random = Random(11);
    let x = Tensor::fill([2, 18, 22, 3], |_| random.below(512) as f64 / 256.0);
    let labels: Vec<u8> = (0..2 * 18 * 22).map(|_| random.below(5) as u8).collect();
    let oracle = |all: &Named| {
        let same = |x: &Tensor, name: &str, bias: Option<&Tensor>| {
            let w = &all[&format!("{name}.weight")];
            oracle::conv(x, w, bias, Conv { stride: 1, pad: (w.shape[1] - 1) / 2, dilation: 1, groups: 1 })
        };
        let level = |x: &Tensor, coder: &str, i: usize| {
            let y = same(x, &format!("{coder}.conv{i}"), None);
            let affine = ["scale", "shift"].map(|part| &all[&format!("{coder}.norm{i}.{part}")]);
            oracle::norm(&y, None, affine[0], affine[1], 1e-5)
        };
        let LocalResponseNorm { n, alpha, beta, k } = LocalResponseNorm::default();
        let [alpha, beta, k] = [alpha, beta, k].map(f64::from);
        let mut y = oracle::local_response_norm(&x, n as usize, alpha, beta, k);
        let mut pooled = Vec::new();
        for i in 1..=4 {
            y = level(&y, "net.encoder", i).map(|x| x.max(0.0));
            let (small, at) = oracle::max_pool(&y, [2, 2]);
            pooled.push((at, y.shape));
            y = small;
        }
        for i in (1..=4).rev() {
            let (at, shape) = pooled.pop().expect("as many levels");
            y = level(&oracle::unpool(&y, &at, shape), "net.decoder", i);
        }
        let y = same(&y, "net.classifier", Some(&all["net.classifier.bias"]));
        oracle::cross_entropy(&y, &labels, None, None, oracle::Divisor::Rows)
    };
    // 23 layers, of which normalisations subtract most of their gradient: measured 3.9e-6. In mixed precision 57
    // stores of 2^-11 on the longest way, whose errors are independent, so about √57 of them: measured 2.9e-3.
    let build =
        |parameters: &mut Parameters| -> Box<dyn Module> { Box::new(SegNet::new(&mut parameters.at("net"), 3, 4, 5)) };
    let network = Network { build: &build, oracle: &oracle, x: &x, labels: &labels };
    // Each sample takes the oracle two forward passes.
    let samples = if std::env::var("GRADSCALE_BRIEF").is_ok_and(|value| value == "1") { 4 } else { 6 };
    network.check(samples, [(Method::fp32(), 1.6e-5), (Method::mixed(), 57f64.sqrt() * 2f64.powi(-10))]);
}
