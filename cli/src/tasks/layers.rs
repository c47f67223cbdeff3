//! The layers of a task's network, with the precision of their operators.

use super::{Input, Net, Task, classify, segnet};
use crate::Failure;
use gradscale::{Batch, Cpu, CrossEntropy, Method, PlanRow, Trainer, nn::Module, optim::Sgd};

/// What a method makes of a network that is trained.
///
/// # Errors
/// No CPU.
pub fn rows(task: Task, net: Net, width: usize, method: Method) -> Result<Vec<PlanRow>, Failure> {
    match task {
        Task::Segnet => {
            let (parameters, net, _) = segnet::network(0, width, &[1.0; 11]);
            let trainer = Trainer::new(cpu()?, parameters, Sgd::default(), method)?;
            let (image, labels) = (image(), [0; 32 * 32]);
            Ok(trainer.plan(batch(&image, &labels), |[x, labels]| net.forward(x).cross_entropy(labels))?)
        }
        Task::Classify => {
            let input = Input { size: SIZE, mean: 0.0, deviation: 1.0 };
            let (parameters, classifier) = classify::network(0, net, input, width, 10);
            let trainer = Trainer::new(cpu()?, parameters, Sgd::default(), method)?;
            let options = CrossEntropy::default();
            Ok(trainer.plan(batch(&image(), &[0]), |[x, labels]| classifier.loss(x, labels, &options))?)
        }
    }
}

/// Rows, columns and channels of the image that a plan is made for.
const SIZE: [usize; 3] = [32, 32, 3];

fn cpu() -> Result<Cpu, Failure> {
    Cpu::new(1).map_err(|error| Failure::at("cpu", error))
}

fn image() -> Vec<u8> {
    vec![0; SIZE.iter().product()]
}

/// Of one image with so many labels.
fn batch<'a>(image: &'a [u8], labels: &'a [u8]) -> [Batch<'a>; 2] {
    [Batch::u8([1, SIZE[0], SIZE[1], SIZE[2]], image), Batch::u8([labels.len()], labels)]
}
