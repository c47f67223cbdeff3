//! Parameters of a network: names, shapes and initial values.

mod init;
mod load;

pub use init::{Fan, Init};
pub use load::LoadError;

use crate::{Shape, data::Random};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Handle of one parameter, kept by the layer that uses it. It belongs to the [`Parameters`] that created it, and to
/// their clones; a trainer of other parameters rejects a network with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub(crate) owner: Owner,
    pub(crate) id: usize,
    pub(crate) shape: Shape,
}

/// Identity of the [`Parameters`] that own a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

impl Owner {
    /// Creates an identity that no other owner of parameters has.
    fn new() -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self(NEXT_ID.fetch_add(1, Relaxed))
    }
}

/// Role of a parameter in training: weight, running statistics or constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Weight, which the optimizer updates.
    Weight,
    /// Running mean and variance of a batch norm, updated from the batches.
    Statistics,
    /// Constant, which is never updated.
    Constant,
}

#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub name: String,
    pub shape: Shape,
    pub role: Role,
    pub values: Vec<f32>,
}

/// Parameters of all networks that are trained together, with their initial values, on the host.
///
/// Layers create them in a [`Scope`], which defines their names.
///
/// ```
/// use gradscale::{Parameters, nn::Linear};
/// let mut parameters = Parameters::seeded(1);
/// let layer = Linear::new(&mut parameters.at("head"), 64, 10);
/// assert_eq!(parameters.names().collect::<Vec<_>>(), ["head.weight", "head.bias"]);
/// # let _ = layer;
/// ```
#[derive(Clone, Debug)]
pub struct Parameters {
    pub(crate) owner: Owner,
    pub(crate) all: Vec<Definition>,
    random: Random,
}

impl Parameters {
    /// Creates an empty set of parameters. The seed determines all initial values.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { owner: Owner::new(), all: Vec::new(), random: Random::seeded(seed) }
    }

    /// Returns the scope of the part of the network named `name`.
    pub fn at(&mut self, name: &str) -> Scope<'_> {
        Scope { parameters: self, path: name.to_owned() }
    }

    /// Multiplies every initial value of a weight by 1 ± `relative`, with signs determined by `seed`. An f32 training
    /// with `relative` = 2^-20, compared with an unperturbed one, shows the effect of any change of rounding.
    /// Differences between methods are measured against it.
    ///
    /// ```
    /// use gradscale::{Parameters, nn::Linear};
    /// let mut parameters = Parameters::seeded(1);
    /// let _ = Linear::new(&mut parameters.at("head"), 64, 10);
    /// parameters.perturb(2f32.powi(-20), 0);
    /// ```
    pub fn perturb(&mut self, relative: f32, seed: u64) {
        // A separate random stream from those of initial values.
        let mut random = Random::from_key(&[seed, 0x9E27]);
        for definition in self.all.iter_mut().filter(|definition| definition.role == Role::Weight) {
            for value in &mut definition.values {
                let sign = if random.word() >> 63 == 0 { 1.0 } else { -1.0 };
                *value *= 1.0 + sign * relative;
            }
        }
    }

    /// Returns the names of all parameters, in order of their creation.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|definition| definition.name.as_str())
    }

    /// Returns the number of trainable values of all parameters.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.iter().filter(|one| one.role == Role::Weight).map(|one| one.values.len()).sum()
    }
}

/// Scope in the tree of parameter names, in which a layer creates its parameters.
#[derive(Debug)]
pub struct Scope<'a> {
    parameters: &'a mut Parameters,
    path: String,
}

impl Scope<'_> {
    /// Returns the scope of the part named `name` inside of this one.
    pub fn at(&mut self, name: &str) -> Scope<'_> {
        Scope { path: format!("{}.{name}", self.path), parameters: self.parameters }
    }

    /// Returns the path of this scope: the names of the enclosing parts, joined by dots.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Creates a trainable parameter in this scope.
    pub fn weight(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> Parameter {
        let shape = shape.into();
        let values = init.values(shape, &mut self.parameters.random);
        self.add(name, shape, Role::Weight, values)
    }

    /// Creates a constant in this scope, for example class weights.
    pub fn constant(&mut self, name: &str, shape: impl Into<Shape>, values: &[f32]) -> Parameter {
        self.add(name, shape.into(), Role::Constant, values.to_vec())
    }

    /// Creates running means (0) and variances (1) of `channels` channels: shape `[2, channels]`.
    pub fn statistics(&mut self, name: &str, channels: usize) -> Parameter {
        let values = [vec![0.0; channels], vec![1.0; channels]].concat();
        self.add(name, Shape::from([2, channels]), Role::Statistics, values)
    }

    fn add(&mut self, name: &str, shape: Shape, role: Role, values: Vec<f32>) -> Parameter {
        let id = self.parameters.all.len();
        self.parameters.all.push(Definition { name: format!("{}.{name}", self.path), shape, role, values });
        Parameter { owner: self.parameters.owner, id, shape }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::BatchNorm;

    #[test]
    fn perturbed_weights_differ_by_as_much_and_statistics_do_not() {
        let made = || {
            let mut parameters = Parameters::seeded(3);
            let _ = crate::nn::Linear::new(&mut parameters.at("linear"), 8, 8);
            let _ = BatchNorm::new(&mut parameters.at("norm"), 8);
            parameters
        };
        let (plain, mut other) = (made(), made());
        other.perturb(2f32.powi(-20), 5);
        let mut signs = [0; 2];
        for (one, two) in plain.all.iter().zip(&other.all) {
            for (a, b) in one.values.iter().zip(&two.values) {
                if one.role == Role::Weight && *a != 0.0 {
                    let relative = f64::from(*b) / f64::from(*a) - 1.0;
                    assert!(
                        (relative.abs() * 2f64.powi(20) - 1.0).abs() < 0.13,
                        "half an ulp is an eighth of it: {relative}"
                    );
                    signs[usize::from(relative > 0.0)] += 1;
                } else {
                    assert_eq!(a.to_bits(), b.to_bits());
                }
            }
        }
        assert!(signs.iter().all(|count| *count > 20), "{signs:?}");
    }
}
