//! `eight-bits`: five tasks on one trunk, whose logits are one tensor, and whose losses count 1 to 1e-12.
//!
//! Adam divides by the magnitude of each parameter's gradients, so f32 learns all tasks. A format that stores the gradient
//! of the logits loses the tasks that lie below its range. Which these are follows from the format, and from whether one
//! scale serves the tensor, a row or a part of a row.

use super::{
    images::Images,
    learn::{Begun, Conditions, Failed, Learn},
    network::{WEIGHTS, right},
};
use crate::data::Order;
use gradscale::{
    Cpu, Gradients, Input, Parameters, Trainer, Var,
    models::Mlp,
    nn::Module,
    optim::{Adam, Optimizer, Schedule},
};
use std::array;

const TASKS: usize = WEIGHTS.len();
const HIDDEN: usize = 32;
/// Number of images of each task in a batch.
const IMAGES: usize = 7;

/// Direction in which magnitudes of a gradient differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Each image of a batch belongs to one task: rows of the gradient differ.
    Examples,
    /// Each image belongs to all tasks: values within a row differ.
    Outputs,
}

struct Tasks<'a> {
    images: &'a Images,
    spread: Spread,
    trunk: Mlp,
    /// Logits of all tasks, one after the other.
    head: Mlp,
    order: Order,
}

/// Creates the network of a spread before its first step.
pub fn open(spread: Spread, images: &Images, seed: u64, steps: u64) -> Begun<'_> {
    let mut parameters = Parameters::seeded(seed);
    let trunk = Mlp::new(&mut parameters.at("net.trunk"), &[images.values, HIDDEN]);
    let head = Mlp::new(&mut parameters.at("net.head"), &[HIDDEN, TASKS * images.classes]);
    let learner = Box::new(Tasks { images, spread, trunk, head, order: Order::new(images.labels.len(), seed) });
    let optimizer = Optimizer::from(Adam { eps: 1e-16, ..Adam::new(2e-3) }).schedule(Schedule::Cosine { steps });
    Begun { learner, parameters, optimizer }
}

impl Tasks<'_> {
    fn logits<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.head.forward(self.trunk.forward(x).relu())
    }

    /// Returns the logits of a task.
    fn task<'t>(&self, logits: Var<'t>, task: usize) -> Var<'t> {
        logits.slice(3, task * self.images.classes, self.images.classes)
    }
}

impl Learn for Tasks<'_> {
    fn backward(&mut self, trainer: &mut Trainer<Cpu>, _: u64, _: &Conditions) -> Result<Gradients, Failed> {
        let (mut x, mut labels) = (Vec::new(), Vec::new());
        let count = TASKS * IMAGES;
        for sample in self.order.by_ref().take(count) {
            x.extend_from_slice(self.images.image(sample.index));
            labels.push(self.images.labels[sample.index]);
        }
        // One tensor of labels for each task: its own images, or all.
        let of_task = |task: usize| match self.spread {
            Spread::Examples => Input::u32([IMAGES], &labels[task * IMAGES..][..IMAGES]),
            Spread::Outputs => Input::u32([count], &labels),
        };
        let batch: [Input<'_>; 1 + TASKS] = array::from_fn(|i| match i.checked_sub(1) {
            None => Input::f32([count, self.images.values], &x),
            Some(task) => of_task(task),
        });
        trainer.backward(batch, |inputs| {
            let logits = self.logits(inputs[0]);
            let loss = |task: usize| {
                let logits = match self.spread {
                    Spread::Examples => logits.slice(0, task * IMAGES, IMAGES),
                    Spread::Outputs => logits,
                };
                self.task(logits, task).cross_entropy(inputs[1 + task]) * WEIGHTS[task]
            };
            (1..TASKS).fold(loss(0), |sum, task| sum + loss(task))
        })
    }

    /// Returns the percentage of test images that a task classifies correctly, as the mean over the tasks.
    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed> {
        let sum = (0..TASKS).try_fold(0.0, |sum, task| {
            Ok::<_, Failed>(sum + right(self.images, trainer, |x| self.task(self.logits(x), task))?)
        })?;
        Ok(sum / TASKS as f64)
    }
}
