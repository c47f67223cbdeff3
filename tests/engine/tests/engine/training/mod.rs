//! Training steps: skipping, gradient accumulation, device calls, and optimizers.

mod accumulate;
mod average;
mod composed;
mod counts;
mod optimizers;
mod own;
mod prop_repeats;
mod repeats;
mod sent_ahead;
mod settings;
mod skips;
mod unused_sites;
mod weights;

use crate::graph::{Random, values};
use gradscale::{
    Cpu, Error, Gradients, Input, Method, Parameters, Pass, StepOutcome, Trainer, Var,
    gradscale_core::backend::Backend,
    nn::{BatchNorm, Linear, Module},
    optim::Optimizer,
};

/// Linear, batch norm, ReLU, linear; mean squared error times a number that the batch brings.
struct Net {
    first: Linear,
    norm: BatchNorm,
    second: Linear,
}

/// x `[n, 4]`, target `[n, 3]`, the number.
#[derive(Clone, Debug)]
struct Data {
    x: Vec<f32>,
    target: Vec<f32>,
    factor: f32,
}

impl Data {
    fn new(seed: u64, n: usize) -> Self {
        Self { x: values(seed, 4 * n), target: values(seed + 1, 3 * n), factor: 1.0 }
    }

    /// Some elements of all, by row.
    fn rows(&self, rows: std::ops::Range<usize>, factor: f32) -> Self {
        let x = self.x[4 * rows.start..4 * rows.end].to_vec();
        Self { x, target: self.target[3 * rows.start..3 * rows.end].to_vec(), factor }
    }

    fn times(&self, factor: f32) -> Self {
        Self { factor, ..self.clone() }
    }

    fn batch(&self) -> [Input<'_>; 3] {
        let n = self.x.len() / 4;
        let factor = std::slice::from_ref(&self.factor);
        [Input::f32([n, 4], &self.x), Input::f32([n, 3], &self.target), Input::f32([1], factor)]
    }
}

impl Net {
    fn new(parameters: &mut Parameters) -> Self {
        let mut scope = parameters.at("net");
        Self {
            first: Linear::new(&mut scope.at("first"), 4, 6),
            norm: BatchNorm::new(&mut scope.at("norm"), 6),
            second: Linear::new(&mut scope.at("second"), 6, 3),
        }
    }

    fn loss<'t>(&self, [x, target, factor]: [Var<'t>; 3]) -> Var<'t> {
        let y = self.norm.forward(self.first.forward(x)).relu();
        self.second.forward(y).mse_loss(target) * factor
    }
}

/// A net in training.
struct Training<B: Backend> {
    net: Net,
    trainer: Trainer<B>,
}

impl Training<Cpu> {
    fn new(optimizer: Optimizer, method: &str) -> Self {
        Self::on(Cpu::new(1).expect("a CPU"), optimizer, method.parse().expect("a method"))
    }
}

impl<B: Backend> Training<B>
where
    B::Error: std::fmt::Debug,
{
    fn on(device: B, optimizer: Optimizer, method: Method) -> Self {
        let mut parameters = Parameters::seeded(7);
        let net = Net::new(&mut parameters);
        let trainer = Trainer::new(device, parameters, optimizer, method).expect("these numbers make sense");
        Self { net, trainer }
    }

    fn backward(&mut self, data: &Data) -> Gradients {
        self.trainer.backward(data.batch(), |all| self.net.loss(all)).expect("the batch fits")
    }

    fn more(&mut self, gradients: Gradients, data: &Data) -> Gradients {
        self.trainer
            .backward(Pass::new(data.batch()).accumulate(gradients), |all| self.net.loss(all))
            .expect("the batch fits")
    }

    fn step(&mut self, data: &Data) -> StepOutcome {
        self.try_step(data).expect("a step")
    }

    fn try_step(&mut self, data: &Data) -> Result<StepOutcome, Error<B::Error>> {
        let gradients = self.backward(data);
        self.trainer.step(gradients)
    }

    /// Bits of all parameters and running statistics.
    fn bits(&self) -> Vec<(String, Vec<u32>)> {
        let all = self.trainer.parameters().expect("parameters");
        let bits = |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect();
        all.into_iter().map(|(name, tensor)| (name, bits(tensor.data))).collect()
    }

    fn exponents(&self) -> Vec<(String, i32)> {
        self.trainer.sites().map(|site| (site.name.to_owned(), site.alpha)).collect()
    }
}

/// A batch for each step.
fn batches(count: usize) -> Vec<Data> {
    let mut random = Random(3);
    (0..count).map(|_| Data::new(random.below(1 << 20) as u64, 8)).collect()
}
