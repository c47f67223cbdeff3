//! Linear layers.

use super::Module;
use crate::{Init, Parameter, Scope, TraceError, Var};

/// `y = x·wᵀ + b` over channels: `[…, in]` to `[…, out]`; weight `[out, in]`.
#[derive(Clone, Debug)]
pub struct Linear {
    name: String,
    weight: Parameter,
    bias: Option<Parameter>,
}

impl Linear {
    /// With a bias; both start uniform in ±1/√in.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, outputs: usize) -> Self {
        let weight = scope.weight("weight", [outputs, inputs], Init::FanIn);
        let bias = Some(scope.weight("bias", [outputs], Init::Constant(0.0)));
        Self { name: scope.path().to_owned(), weight, bias }
    }
}

impl Module for Linear {
    fn forward<'t>(&self, x: Var<'t>) -> Result<Var<'t>, TraceError> {
        let tape = x.tape();
        x.linear(&self.name, tape.parameter(&self.weight), self.bias.as_ref().map(|bias| tape.parameter(bias)))
    }
}
