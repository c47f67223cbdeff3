//! Networks of the regimes, so small that hundreds of trainings take minutes.

use super::{
    images::Images,
    learn::{Conditions, Failed, Learn},
};
use crate::data::{Order, Random};
use gradscale::{
    Cpu, Error, Gradients, Init, Input, Parameters, Scope, Trainer, Var,
    gradscale_core::backend::Backend,
    models::Mlp,
    nn::{Linear, Module},
    optim::{Adam, Optimizer, Schedule, Sgd},
};

/// Number of images in a batch of the synthetic regimes.
pub const BATCH: usize = 32;
const HIDDEN: usize = 32;
/// Number of steps in which the recurrent network reads an image.
const CALLS: usize = 28;
/// Growth factor of the recurrent state per time step while no unit saturates.
const GAIN: f32 = 1.5;
/// Weight of the loss of each of the five heads.
pub const WEIGHTS: [f32; 5] = [1.0, 1e-3, 1e-6, 1e-9, 1e-12];
/// Number of inputs of the function that a curve network learns.
const INPUTS: usize = 4;
/// Number of points on which a curve network is scored.
const POINTS: usize = 512;

/// Small network of a synthetic regime, with its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// Multilayer perceptron that classifies images.
    Perceptron,
    /// Recurrent classifier that reads the image row by row.
    Recurrent,
    /// Classifier with five heads on one trunk.
    Heads,
    /// Regression of a function of four numbers.
    Curve,
}

impl Net {
    /// Returns the name and unit of the network's score.
    pub const fn score(self) -> &'static str {
        match self {
            Self::Perceptron | Self::Recurrent => "test images classified correctly, in percent",
            Self::Heads => "test images that the worst head classified correctly, in percent",
            Self::Curve => "mean squared error, in percent of the variance",
        }
    }

    pub const fn higher_is_better(self) -> bool {
        match self {
            Self::Perceptron | Self::Recurrent | Self::Heads => true,
            Self::Curve => false,
        }
    }

    /// Returns the optimizer. It clips gradients at about the norm of ordinary ones, because the factors of a loss
    /// would make f32 diverge too. The learning rate falls to zero, so that a score depends on the whole training and
    /// not on the last batch.
    fn optimizer(self, steps: u64) -> Optimizer {
        let optimizer = match self {
            Self::Perceptron => Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.1) }).clip_norm(1.0),
            Self::Recurrent => Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.1) }).clip_norm(0.5),
            Self::Heads => Adam { eps: 1e-16, ..Adam::new(2e-3) }.into(),
            Self::Curve => Optimizer::from(Sgd { momentum: 0.9, ..Sgd::new(0.02) }).clip_norm(0.5),
        };
        optimizer.schedule(Schedule::Cosine { steps })
    }
}

#[derive(Debug)]
enum Built {
    Perceptron(Mlp),
    Recurrent(Box<Recurrent>),
    Heads { trunk: Mlp, heads: Vec<Mlp> },
    Curve(Mlp),
}

/// Small network under training in a synthetic regime, with its batches.
#[derive(Debug)]
pub struct Learner<'a> {
    images: &'a Images,
    net: Built,
    order: Order,
    seed: u64,
    x: Vec<f32>,
    labels: Vec<u32>,
    targets: Vec<f32>,
}

impl<'a> Learner<'a> {
    pub fn new(net: Net, images: &'a Images, seed: u64, steps: u64) -> (Self, Parameters, Optimizer) {
        let mut parameters = Parameters::seeded(seed);
        let (values, classes) = (images.values, images.classes);
        let mut scope = parameters.at("net");
        let built = match net {
            Net::Perceptron => Built::Perceptron(Mlp::new(&mut scope, &[values, HIDDEN, HIDDEN, classes])),
            Net::Recurrent => Built::Recurrent(Box::new(Recurrent::new(&mut scope, values, classes))),
            Net::Heads => Built::Heads {
                trunk: Mlp::new(&mut scope.at("trunk"), &[values, HIDDEN]),
                heads: (1..=WEIGHTS.len())
                    .map(|i| Mlp::new(&mut scope.at(&format!("head{i}")), &[HIDDEN, HIDDEN / 2, classes]))
                    .collect(),
            },
            Net::Curve => Built::Curve(Mlp::new(&mut scope, &[INPUTS, HIDDEN, HIDDEN, 1])),
        };
        let order = Order::new(images.labels.len(), seed);
        let learner = Self { images, net: built, order, seed, x: Vec::new(), labels: Vec::new(), targets: Vec::new() };
        (learner, parameters, net.optimizer(steps))
    }

    /// Runs the forward and backward pass of the batch of a step. Values that change from step to step are inputs, so
    /// that all steps run the same program.
    pub fn backward<B: Backend>(
        &mut self, trainer: &mut Trainer<B>, step: u64, conditions: &Conditions,
    ) -> Result<Gradients, Error<B::Error>> {
        let Conditions { factor, contrast, .. } = conditions;
        let (one, pale) = (Input::f32([1], std::slice::from_ref(factor)), std::slice::from_ref(contrast));
        if let Built::Curve(net) = &self.net {
            (self.x, self.targets) = points(&[self.seed, 13, step], BATCH);
            // One of them, not always the same.
            let place = Random::from_key(&[self.seed, 14, step]).below(BATCH);
            if let Some(value) = conditions.target {
                self.targets[place] = value;
            }
            if let Some(value) = conditions.input {
                self.x[place * INPUTS] = value;
            }
            let batch = [Input::f32([BATCH, INPUTS], &self.x), Input::f32([BATCH, 1], &self.targets), one];
            return trainer.backward(batch, |[x, targets, factor]| net.forward(x).mse_loss(targets) * factor);
        }
        self.x.clear();
        self.labels.clear();
        for sample in self.order.by_ref().take(BATCH) {
            self.x.extend_from_slice(self.images.image(sample.index));
            self.labels.push(self.images.labels[sample.index]);
        }
        let x = Input::f32([BATCH, self.images.values], &self.x);
        let batch = [x, Input::u32([BATCH], &self.labels), one, Input::f32([1], pale)];
        let net = &self.net;
        trainer.backward(batch, |[x, labels, factor, contrast]| loss(net, x, contrast, labels) * factor)
    }

    /// Returns the score on the test set.
    pub fn score<B: Backend>(&self, trainer: &mut Trainer<B>) -> Result<f64, Error<B::Error>> {
        match &self.net {
            Built::Perceptron(net) => right(self.images, trainer, |x| net.forward(x)),
            Built::Recurrent(net) => right(self.images, trainer, |x| net.forward(x, None)),
            Built::Heads { trunk, heads } => heads.iter().try_fold(100.0, |worst: f64, head| {
                let right = right(self.images, trainer, |x| head.forward(trunk.forward(x).relu()))?;
                Ok(worst.min(right))
            }),
            Built::Curve(net) => {
                let (x, targets) = points(&[self.seed, 15], POINTS);
                let batch = [Input::f32([POINTS, INPUTS], &x)];
                let found = trainer.evaluate(batch, |[x]| net.forward(x))?.data;
                let mean = targets.iter().copied().map(f64::from).sum::<f64>() / POINTS as f64;
                let squares = |from: &dyn Fn(usize) -> f64| {
                    targets.iter().enumerate().map(|(i, &target)| (f64::from(target) - from(i)).powi(2)).sum::<f64>()
                };
                Ok(100.0 * squares(&|i| f64::from(found[i])) / squares(&|_| mean))
            }
        }
    }
}

/// Returns the percentage of test images classified correctly.
pub fn right<B: Backend>(
    images: &Images, trainer: &mut Trainer<B>, net: impl for<'t> FnOnce(Var<'t>) -> Var<'t>,
) -> Result<f64, Error<B::Error>> {
    let Images { test, test_labels, values, .. } = images;
    let batch = [Input::f32([test_labels.len(), *values], test)];
    let best = trainer.evaluate_integers(batch, |[x]| net(x).argmax())?.data;
    let right = best.iter().zip(test_labels).filter(|(best, label)| best == label).count();
    Ok(100.0 * right as f64 / test_labels.len() as f64)
}

impl Learn for Learner<'_> {
    fn backward(
        &mut self, trainer: &mut Trainer<Cpu>, step: u64, conditions: &Conditions,
    ) -> Result<Gradients, Failed> {
        Learner::backward(self, trainer, step, conditions)
    }

    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed> {
        Learner::score(self, trainer)
    }

    fn is_finite(&self, conditions: &Conditions) -> bool {
        conditions.finite()
    }
}

fn loss<'t>(net: &Built, x: Var<'t>, contrast: Var<'t>, labels: Var<'t>) -> Var<'t> {
    match net {
        Built::Perceptron(net) | Built::Curve(net) => net.forward(x).cross_entropy(labels),
        Built::Recurrent(net) => net.forward(x, Some(contrast)).cross_entropy(labels),
        Built::Heads { trunk, heads } => {
            let features = trunk.forward(x).relu();
            let loss = |(head, weight): (&Mlp, f32)| head.forward(features).cross_entropy(labels) * weight;
            let sum = heads.iter().zip(WEIGHTS).map(loss).reduce(|sum, loss| sum + loss);
            sum.unwrap_or_else(|| features.mean())
        }
    }
}

/// h′ = tanh(contrast·ih(x) + hh(h)), and classes from the last h. Products of h alone begin orthogonal, so that a
/// gradient grows by the same factor in every call in which no unit saturates.
#[derive(Debug)]
struct Recurrent {
    of_input: Linear,
    of_hidden: Linear,
    out: Linear,
    /// Number of pixels that the network reads in one call.
    piece: usize,
}

impl Recurrent {
    fn new(scope: &mut Scope<'_>, values: usize, classes: usize) -> Self {
        let piece = (values / CALLS).max(1);
        Self {
            of_input: Linear::new(&mut scope.at("ih"), piece, HIDDEN),
            of_hidden: Linear::with_init(&mut scope.at("hh"), HIDDEN, HIDDEN, Init::Orthogonal { gain: GAIN }),
            out: Linear::new(&mut scope.at("out"), HIDDEN, classes),
            piece,
        }
    }

    fn forward<'t>(&self, x: Var<'t>, contrast: Option<Var<'t>>) -> Var<'t> {
        let calls = (x.shape().channels() / self.piece).min(CALLS);
        // All calls have the same sites.
        let input = |i: usize| {
            let seen = self.of_input.forward(x.slice(3, self.piece * i, self.piece));
            contrast.map_or(seen, |contrast| (seen * contrast).named("net.contrast"))
        };
        let mut h = input(0).tanh().named("net.tanh");
        for i in 1..calls {
            h = (input(i) + self.of_hidden.forward(h)).named("net.sum").tanh().named("net.tanh");
        }
        self.out.forward(h)
    }
}

/// Generates inputs in ±1 and their regression targets.
fn points(key: &[u64], count: usize) -> (Vec<f32>, Vec<f32>) {
    let mut random = Random::from_key(key);
    let x: Vec<f32> =
        (0..count * INPUTS).map(|_| random.between(-(1 << 20), 1 << 20) as f32 / (1 << 20) as f32).collect();
    let curve = |x: &[f32]| (std::f32::consts::PI * x[0]).sin() * x[1] + x[2] * x[3];
    let targets = x.chunks_exact(INPUTS).map(curve).collect();
    (x, targets)
}
