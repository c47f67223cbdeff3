//! Adafactor.

use super::{CustomOptimizer, UpdateInput, UpdateOutput, settings};
use crate::{Shape, Var};
use gradscale_core::ops::ShapeError;

/// Settings of Adafactor (Shazeer and Stern 2018), as in PyTorch's `optim.Adafactor`: the mean squares of a matrix's
/// gradients are kept as one number for each row and each column, so its states take little memory. A weight
/// `[n, h, w, c]` is a matrix `[n, h·w·c]`; one with a single row or column keeps all mean squares.
///
/// In step t, with the mean squares v, which keep the share 1 − t^`beta2_decay`:
///
/// ```text
/// u ← g / √max(v, eps₁²),   u ← u / max(1, rms(u) / clip)
/// w ← (1 − lr·decay)·w − max(eps₂, rms(w))·min(lr, 1/√t)·u
/// ```
///
/// The mean of the rows' mean squares is taken to be at least eps₁ (not eps₁²), as PyTorch does. So a gradient with a root
/// mean square below 3.5·10^-4 gets a larger update, and dividing a loss changes the training.
///
/// It is written with the operators of networks, like a custom rule: it runs on every device, with a launch for each
/// operator and weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adafactor {
    /// Largest learning rate relative to the size of a weight, before the schedule's factor.
    pub lr: f64,
    /// Exponent of the step at which the mean squares forget, at most 0.
    pub beta2_decay: f32,
    /// Smallest root of a mean square, at least 10^-8, and smallest root mean square of a weight, at least 0.
    pub eps: [f32; 2],
    /// Limit of an update's root mean square, positive.
    pub clip: f32,
    /// Weight decay, which acts on the weight and not on the gradient.
    pub weight_decay: f32,
}

impl Adafactor {
    /// Creates Adafactor with PyTorch's defaults: exponent −0.8, eps 2^-23 and 0.001, limit 1, no weight decay.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, beta2_decay: -0.8, eps: [f32::EPSILON, 1e-3], clip: 1.0, weight_decay: 0.0 }
    }
}

impl Default for Adafactor {
    /// Returns Adafactor with a learning rate of 0.01, as in PyTorch.
    fn default() -> Self {
        Self::new(1e-2)
    }
}

impl CustomOptimizer for Adafactor {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn decay(&self) -> f32 {
        self.weight_decay
    }

    fn states(&self) -> usize {
        2
    }

    /// Returns the shapes of the mean squares: of rows and columns, or of all elements and a number that is not used.
    fn state_shape(&self, state: usize, weight: Shape) -> Shape {
        match (matrix(weight), state) {
            (Some([rows, _]), 0) => Shape::from([rows, 1, 1, 1]),
            (Some([_, columns]), _) => Shape::from([1, 1, 1, columns]),
            (None, 0) => weight,
            (None, _) => Shape::SCALAR,
        }
    }

    fn check(&self) -> Result<(), ShapeError> {
        let [least_root, least_weight] = self.eps;
        settings::check_eps(least_root * least_root)?;
        let is_valid = |x: f32, valid: bool| if valid && x.is_finite() { Ok(()) } else { Err(ShapeError::Value(x)) };
        is_valid(least_weight, least_weight >= 0.0)?;
        is_valid(self.clip, self.clip > 0.0)?;
        is_valid(self.beta2_decay, self.beta2_decay <= 0.0)
    }

    /// Returns the share of the new mean squares, t^`beta2_decay`, and the limit of the learning rate, 1/√t.
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "rounded")]
    fn numbers(&self, step: u64) -> Vec<f32> {
        let t = step.saturating_add(1) as f64;
        vec![t.powf(self.beta2_decay.into()) as f32, t.powf(-0.5) as f32]
    }

    fn update<'t>(&self, of: UpdateInput<'t>) -> UpdateOutput<'t> {
        let (weight, gradient, [taken, limit]) = (of.weight, of.gradient, [of.numbers[0], of.numbers[1]]);
        let follow = |state: Var<'t>, new: Var<'t>| state + (new - state) * taken;
        let (mean_squares, states) = match matrix(weight.shape()) {
            Some([rows, columns]) => {
                let squares = gradient.square().reshape([rows, 1, 1, columns]);
                let of_rows = follow(of.states[0], squares.mean_axis(3));
                let of_columns = follow(of.states[1], squares.mean_axis(0));
                // Divided before the product, which could leave the range of f32.
                let share = of_rows / at_least(of_rows.mean(), self.eps[0]);
                ((share * of_columns).reshape(weight.shape()), vec![of_rows, of_columns])
            }
            None => {
                let all = follow(of.states[0], gradient.square());
                (all, vec![all, of.states[1]])
            }
        };
        let update = gradient * at_least(mean_squares, self.eps[0] * self.eps[0]).pow(-0.5);
        let excess = at_least(root_mean_square(update).scale(1.0 / self.clip), 1.0);
        let rate = at_least(root_mean_square(weight), self.eps[1]) * of.lr.minimum(limit) / excess;
        let kept = if of.decay == 0.0 { weight } else { weight * of.lr.affine(-of.decay, 1.0) };
        UpdateOutput { weight: kept - update * rate, states }
    }
}

/// Returns the rows and columns of a weight as a matrix; `None` if it has a single row or column.
fn matrix(weight: Shape) -> Option<[usize; 2]> {
    let [rows, h, w, c] = weight.sizes();
    let columns = h * w * c;
    (rows > 1 && columns > 1).then_some([rows, columns])
}

fn root_mean_square(x: Var<'_>) -> Var<'_> {
    x.square().mean().pow(0.5)
}

fn at_least(x: Var<'_>, least: f32) -> Var<'_> {
    x.maximum(x.tape().zeros(Shape::SCALAR) + least)
}
