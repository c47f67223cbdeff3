//! Dropout.

use super::Module;
use crate::Var;

/// Dropout layer: zeroes each element with probability `p` in training and divides the others by 1 − `p`. Returns x in
/// evaluation, as `torch.nn.Dropout` does.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Dropout, Module}, optim::Sgd};
/// let dropout = Dropout { p: 0.25 };
/// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([4], &[1.0, 2.0, 3.0, 4.0])], |[x]| dropout.forward(x))?;
/// assert_eq!(y.data, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of an element to be zeroed, from 0 to 1 − 2^-24.
    pub p: f32,
}

impl Module for Dropout {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        x.dropout(self.p)
    }
}
