//! The layers of a task's network, with the precision of their operators.

use crate::Failure;
use gradscale::{Cpu, Input, Method, Parameters, PlanRow, Trainer, Var, optim::Sgd};

/// Rows, columns and channels of the image that a plan is made for.
pub const SIZE: [usize; 3] = [32, 32, 3];
/// Its pixels.
pub const PIXELS: usize = SIZE[0] * SIZE[1];

/// What a method makes of a network with this loss, for one image with these labels.
///
/// # Errors
/// No CPU.
pub fn of(
    parameters: Parameters, method: Method, labels: &[u8], loss: impl for<'t> Fn(Var<'t>, Var<'t>) -> Var<'t>,
) -> Result<Vec<PlanRow>, Failure> {
    let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
    let trainer = Trainer::new(device, parameters, Sgd::default(), method)?;
    let image = [0; SIZE[0] * SIZE[1] * SIZE[2]];
    let batch = [Input::u8([1, SIZE[0], SIZE[1], SIZE[2]], &image), Input::u8([labels.len()], labels)];
    Ok(trainer.plan(batch, |[x, labels]| loss(x, labels))?)
}
