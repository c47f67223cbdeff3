//! Multilayer perceptron.

use crate::{
    Scope, Var,
    nn::{Linear, Module},
};

/// Multilayer perceptron: linear layers with a ReLU between them.
#[derive(Clone, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    /// Creates the perceptron with linear layers from `sizes[0]` features over the hidden sizes to the last size.
    pub fn new(scope: &mut Scope<'_>, sizes: &[usize]) -> Self {
        let pairs = sizes.iter().zip(sizes.iter().skip(1)).enumerate();
        Self {
            layers: pairs
                .map(|(i, (&from, &to))| Linear::new(&mut scope.at(&format!("linear{}", i + 1)), from, to))
                .collect(),
        }
    }
}

impl Module for Mlp {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let mut x = x;
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(if i == 0 { x } else { x.relu() });
        }
        x
    }
}
