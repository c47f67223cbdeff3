//! Dropout.

use super::Module;
use crate::Var;

/// x / `keep` with probability `keep`, else 0, while training; x in evaluation. PyTorch's p is 1 − `keep`.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Dropout, Module}, optim::Sgd};
/// let dropout = Dropout { keep: 0.75 };
/// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([4], &[1.0, 2.0, 3.0, 4.0])], |[x]| dropout.forward(x))?;
/// assert_eq!(y.data, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Share that is kept, from 2^-24 to 1.
    pub keep: f32,
}

impl Module for Dropout {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        x.dropout(self.keep)
    }
}
