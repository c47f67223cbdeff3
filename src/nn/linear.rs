//! Linear layers.

use super::Module;
use crate::{Init, Parameter, Scope, Var};

/// Linear layer `y = x·wᵀ + b` over channels: `[…, in]` to `[…, out]`; weight `[out, in]`.
///
/// ```
/// use gradscale::{Init, Parameters, nn::Linear};
/// let mut parameters = Parameters::seeded(1);
/// let one = Linear::new(&mut parameters.at("one"), 8, 4);
/// let two = Linear::with_init(&mut parameters.at("two"), 8, 4, Init::Orthogonal { gain: 1.0 });
/// assert_eq!(parameters.count(), 2 * (4 * 8 + 4));
/// # let _ = (one, two);
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "Dense")]
pub struct Linear {
    name: String,
    weight: Parameter,
    bias: Option<Parameter>,
}

impl Linear {
    /// Creates the linear layer with a bias. Weights and bias are initialised uniformly in ±1/√in, as in PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, outputs: usize) -> Self {
        Self::with_bias(scope, inputs, outputs, Init::FanIn, Init::within_root(inputs))
    }

    /// Creates the linear layer with a bias of 0, and weights with another initialisation.
    pub fn with_init(scope: &mut Scope<'_>, inputs: usize, outputs: usize, init: Init) -> Self {
        Self::with_bias(scope, inputs, outputs, init, Init::Constant(0.0))
    }

    fn with_bias(scope: &mut Scope<'_>, inputs: usize, outputs: usize, init: Init, bias: Init) -> Self {
        let weight = scope.weight("weight", [outputs, inputs], init);
        let bias = Some(scope.weight("bias", [outputs], bias));
        Self { name: scope.path().to_owned(), weight, bias }
    }
}

impl Module for Linear {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let tape = x.tape();
        x.linear(&self.name, tape.parameter(&self.weight), self.bias.as_ref().map(|bias| tape.parameter(bias)))
    }
}
