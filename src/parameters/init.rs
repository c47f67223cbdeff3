//! Initialisation of parameters.

use crate::{Shape, data::Random};
use gradscale_core::{
    model::erf::erf_inv,
    ops::{At, Unary},
};
use std::{f32::consts::FRAC_1_SQRT_2, f64::consts::SQRT_2};

/// Initialisation of a parameter: the distribution of its initial values.
///
/// Weights have their outputs first: `[out, in]`, `[out, kh, kw, in]`. fan_in is the product of the other sizes,
/// fan_out the product of all except the last. Transposed convolutions have their inputs first, so the two are
/// exchanged, as in PyTorch. A gain compensates for the loss of variance in the next function: √2 before a ReLU, 5/3
/// before tanh, 1 otherwise.
///
/// ```
/// use gradscale::{Fan, Init, Parameters};
/// let mut parameters = Parameters::seeded(1);
/// let mut scope = parameters.at("layer");
/// scope.weight("conv", [16, 3, 3, 8], Init::KaimingNormal { fan: Fan::Out, gain: 2f32.sqrt() });
/// scope.weight("linear", [10, 16], Init::XavierUniform { gain: 1.0 });
/// scope.weight("recurrent", [16, 16], Init::Orthogonal { gain: 1.0 });
/// scope.weight("tokens", [100, 16], Init::TruncatedNormal { std: 0.02, cut: 2.0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Constant initial value, the same everywhere.
    Constant(f32),
    /// Normal distribution with variance 2 / fan_in, for layers before a ReLU (He et al. 2015).
    HeNormal,
    /// Uniform distribution in ±1/√fan_in: PyTorch's default for linear layers and convolutions.
    FanIn,
    /// Uniform distribution from `low` to `high`.
    Uniform {
        /// Lower end of the uniform distribution.
        low: f32,
        /// Upper end of the uniform distribution.
        high: f32,
    },
    /// Normal distribution with a mean and a standard deviation.
    Normal {
        /// Mean of the normal distribution.
        mean: f32,
        /// Standard deviation of the normal distribution.
        std: f32,
    },
    /// Normal distribution with mean 0, truncated at ±`cut` standard deviations.
    TruncatedNormal {
        /// Standard deviation of the normal distribution before the truncation.
        std: f32,
        /// Largest magnitude of initial values, in standard deviations.
        cut: f32,
    },
    /// Uniform distribution with variance gain² / fan: in ±gain·√(3 / fan) (He et al. 2015).
    KaimingUniform {
        /// Fan for which the variance is kept: inputs or outputs of the layer.
        fan: Fan,
        /// Factor of the standard deviation, for the function after the layer: √2 for ReLU.
        gain: f32,
    },
    /// Normal distribution with variance gain² / fan (He et al. 2015).
    KaimingNormal {
        /// Fan for which the variance is kept: inputs or outputs of the layer.
        fan: Fan,
        /// Factor of the standard deviation, for the function after the layer: √2 for ReLU.
        gain: f32,
    },
    /// Uniform distribution with variance gain²·2 / (fan_in + fan_out) (Glorot and Bengio 2010).
    XavierUniform {
        /// Factor of the standard deviation, for the function after the layer: √2 for ReLU.
        gain: f32,
    },
    /// Normal distribution with variance gain²·2 / (fan_in + fan_out) (Glorot and Bengio 2010).
    XavierNormal {
        /// Factor of the standard deviation, for the function after the layer: √2 for ReLU.
        gain: f32,
    },
    /// Orthogonal rows of length `gain`, as a matrix of the first size by the others; orthogonal columns if there are
    /// more rows than columns (Saxe et al. 2014).
    Orthogonal {
        /// Length of the orthogonal rows.
        gain: f32,
    },
}

/// Choice of the values whose variance an initialisation keeps: activations or gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fan {
    /// Variance of activations in the forward pass: fan_in.
    In,
    /// Variance of gradients in the backward pass: fan_out.
    Out,
}

impl Init {
    /// Returns uniform values in ±1/√fan, for parameters that do not have the shape of their weight: biases and gates.
    pub(crate) fn within_root(fan: usize) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let high = (1.0 / (fan.max(1) as f64).sqrt()) as f32;
        Self::Uniform { low: -high, high }
    }

    pub(super) fn values(self, shape: Shape, random: &mut Random) -> Vec<f32> {
        let [first, .., last] = shape.sizes();
        let fan_in = (shape.len() / first.max(1)).max(1) as f64;
        let fan_out = (shape.len() / last.max(1)).max(1) as f64;
        let of = |fan: Fan| match fan {
            Fan::In => fan_in,
            Fan::Out => fan_out,
        };
        let both = (fan_in + fan_out) / 2.0;
        let mut draw = || match self {
            Self::Constant(value) => f64::from(value),
            Self::HeNormal => (2.0 / fan_in).sqrt() * random.normal(),
            Self::FanIn => random.symmetric() / fan_in.sqrt(),
            Self::Uniform { low, high } => {
                let (low, high) = (f64::from(low), f64::from(high));
                low + (high - low) * random.uniform()
            }
            Self::Normal { mean, std } => f64::from(mean) + f64::from(std) * random.normal(),
            Self::TruncatedNormal { std, cut } => f64::from(std) * truncated(cut, random),
            Self::KaimingUniform { fan, gain } => f64::from(gain) * (3.0 / of(fan)).sqrt() * random.symmetric(),
            Self::KaimingNormal { fan, gain } => f64::from(gain) / of(fan).sqrt() * random.normal(),
            Self::XavierUniform { gain } => f64::from(gain) * (3.0 / both).sqrt() * random.symmetric(),
            Self::XavierNormal { gain } => f64::from(gain) / both.sqrt() * random.normal(),
            Self::Orthogonal { .. } => random.normal(),
        };
        let mut values: Vec<f64> = (0..shape.len()).map(|_| draw()).collect();
        if let Self::Orthogonal { gain } = self {
            values = orthogonal(&values, first, f64::from(gain));
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        values.into_iter().map(|value| value as f32).collect()
    }
}

/// Returns a standard normal number within ±`cut`: the quantile of a probability that is uniform between those of the
/// ends.
fn truncated(cut: f32, random: &mut Random) -> f64 {
    let inside = f64::from(Unary::Erf.eval(cut * FRAC_1_SQRT_2, At::default()));
    let cut = f64::from(cut);
    (SQRT_2 * erf_inv(inside * random.symmetric())).max(-cut).min(cut)
}

/// Computes orthogonal rows of length `gain` from random rows (Gram-Schmidt process); columns if there are more rows
/// than columns. Rows of normal numbers give a uniform distribution over all directions.
fn orthogonal(values: &[f64], rows: usize, gain: f64) -> Vec<f64> {
    let columns = values.len() / rows.max(1);
    let (count, len) = (rows.min(columns), rows.max(columns));
    let mut all: Vec<Vec<f64>> = Vec::new();
    for vector in values.chunks(len.max(1)).take(count) {
        let mut vector = vector.to_vec();
        // Twice, because rounding in the first pass leaves a remainder.
        for other in all.iter().chain(&all) {
            let along: f64 = vector.iter().zip(other).map(|(x, y)| x * y).sum();
            vector.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
        }
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        vector.iter_mut().for_each(|x| *x /= length);
        all.push(vector);
    }
    let at = |i: usize| if rows <= columns { all[i / columns][i % columns] } else { all[i % columns][i / columns] };
    (0..values.len()).map(|i| gain * at(i)).collect()
}
