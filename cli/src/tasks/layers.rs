//! The layers of a task's network, with the precision of their operators.

use crate::Failure;
use gradscale::{Cpu, Error, Input, Method, Parameters, PlanRow, Trainer, Var, optim::Sgd};

/// Rows and columns of the image that a plan is made for, where the network does not want another.
pub const SIDE: usize = 32;

/// Describes a network's layers under a method, for one image of this size with these labels.
///
/// # Errors
/// No CPU.
pub fn describe_layers(
    parameters: Parameters, method: Method, side: usize, labels: &[u8],
    loss: impl for<'t> Fn(Var<'t>, Var<'t>) -> Var<'t>,
) -> Result<Vec<PlanRow>, Failure> {
    let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
    let trainer = Trainer::new(device, parameters, Sgd::default(), method)?;
    let image = vec![0; side * side * 3];
    let batch = [Input::u8([1, side, side, 3], &image), Input::u8([labels.len()], labels)];
    Ok(trainer.plan(batch, |[x, labels]| loss(x, labels))?)
}

/// Returns true if a network takes an image of this many rows, columns and channels, by recording its operators.
///
/// # Errors
/// No CPU.
pub fn takes_size(
    parameters: Parameters, [height, width, channels]: [usize; 3], labels: &[u8],
    loss: impl for<'t> Fn(Var<'t>, Var<'t>) -> Var<'t>,
) -> Result<bool, Failure> {
    let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
    let trainer = Trainer::new(device, parameters, Sgd::default(), Method::fp32())?;
    let image = vec![0; height * width * channels];
    let batch = [Input::u8([1, height, width, channels], &image), Input::u8([labels.len()], labels)];
    match trainer.plan(batch, |[x, labels]| loss(x, labels)) {
        Ok(_) => Ok(true),
        Err(Error::Trace(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
