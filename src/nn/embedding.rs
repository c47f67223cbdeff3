//! Embedding tables.

use super::Module;
use crate::{Init, Parameter, Scope, Var};

/// Embedding: the row of a table for each index (u32), from `[n, t]` to `[n, 1, t, width]`, or from `[n, h, w, 1]` to
/// `[n, h, w, width]`. Its gradient is accumulated in f32, for the rows with an index.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Embedding, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let tokens = Embedding::new(&mut parameters.at("tokens"), 50, 8);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::u32([2, 3], &[0, 7, 7, 49, 3, 1])], |[indices]| tokens.forward(indices))?;
/// assert_eq!(y.shape.sizes(), [2, 1, 3, 8]);
/// assert_eq!(y.data[8..16], y.data[16..24]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Embedding {
    name: String,
    table: Parameter,
}

impl Embedding {
    /// Creates an embedding table with standard normal rows.
    pub fn new(scope: &mut Scope<'_>, rows: usize, width: usize) -> Self {
        Self::with_init(scope, rows, width, Init::Normal { mean: 0.0, std: 1.0 })
    }

    /// Creates an embedding table of `rows` rows and `width` columns with another initialisation.
    pub fn with_init(scope: &mut Scope<'_>, rows: usize, width: usize, init: Init) -> Self {
        Self { name: scope.path().to_owned(), table: scope.weight("weight", [rows, width], init) }
    }
}

impl Module for Embedding {
    fn forward<'t>(&self, indices: Var<'t>) -> Var<'t> {
        indices.tape().parameter(&self.table).embedding(&self.name, indices)
    }
}
