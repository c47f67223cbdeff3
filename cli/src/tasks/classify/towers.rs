//! Two towers whose losses differ by 2^46, which no single scale for all gradients can train.
//!
//! A trunk has a tower that classifies. On a detached copy of the trunk's features a second tower classifies too. The
//! second loss has the weight 2^-46. Its tower has a learning rate 2^46 times as large and a weight decay 2^-46 times
//! as large, so that in f32 it trains as with equal weights. In FP16 the gradients of the two towers differ by more
//! than the 2^40 from its smallest number to its largest.

use crate::{
    Failure,
    optimizer::{Recipe, Rule},
};
use gradscale::{CrossEntropy, Scope, Var, models::Mlp, nn::Module, optim::Optimizer};

/// Exponent of the second tower's weight in the loss: 2^-GAP.
pub const GAP: i32 = 46;
/// Learning rate at which the digits are learned in a few hundred steps without overfitting.
pub const LR: f64 = 0.02;
/// Prefix of the second tower's parameter names.
const SECOND: &str = "towers.second.";

/// Network of two towers on a trunk: a hidden layer in the trunk, none in the first tower, one in the second.
#[derive(Debug)]
pub struct Towers {
    trunk: Mlp,
    first: Mlp,
    second: Mlp,
}

impl Towers {
    /// Creates towers from `values` inputs over `hidden` units to `classes` outputs.
    pub fn new(scope: &mut Scope<'_>, values: usize, hidden: usize, classes: usize) -> Self {
        Self {
            trunk: Mlp::new(&mut scope.at("trunk"), &[values, hidden]),
            first: Mlp::new(&mut scope.at("first"), &[hidden, classes]),
            second: Mlp::new(&mut scope.at("second"), &[hidden, hidden.div_ceil(2), classes]),
        }
    }

    /// Returns the logits of the first or second tower, from flattened images.
    ///
    /// # Errors
    /// Images of another size.
    pub fn tower<'t>(&self, x: Var<'t>, second: bool) -> Var<'t> {
        let features = self.trunk.forward(x).relu();
        if second { self.second.forward(features.detach()) } else { self.first.forward(features) }
    }

    /// Returns the sum of both towers' losses, the second times 2^-46.
    ///
    /// # Errors
    /// Images of another size, labels in another number.
    pub fn loss<'t>(&self, x: Var<'t>, labels: Var<'t>, options: &CrossEntropy<'t>) -> Var<'t> {
        let features = self.trunk.forward(x).relu();
        let first = self.first.forward(features).cross_entropy_with(labels, options);
        let second = self.second.forward(features.detach()).cross_entropy_with(labels, options);
        first + second.scale(2f32.powi(-GAP))
    }
}

/// Creates SGD with a parameter group for the second tower.
///
/// # Errors
/// Another rule: a group has no eps of its own, and one for both towers would hide the second's gradients.
pub fn optimizer(recipe: &Recipe, ratio: f64) -> Result<Optimizer, Failure> {
    if !matches!(recipe.rule, Rule::Sgd { .. }) {
        let cause = "two towers need sgd, because the second's gradients are 2^46 times smaller, and only the learning \
            rate of sgd makes up for it";
        return Err(Failure::at(format!("--optimizer {}", recipe.rule), cause));
    }
    let apart = f64::from(GAP).exp2();
    Ok(recipe.optimizer(ratio)?.group(SECOND, recipe.lr * ratio * apart, recipe.decay(ratio * apart)))
}
