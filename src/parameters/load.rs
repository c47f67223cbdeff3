//! Loading of a checkpoint's weights into another network, or into the same one without its training.

use super::{Parameters, Role};
use crate::{
    CheckpointError, Imported, Shape,
    checkpoint::{self, MASTER},
    suggestion::suggestion,
};
use safetensors::Dtype;
use serde::de::IgnoredAny;
use std::{collections::BTreeSet, fmt};

/// Reason why no parameter was loaded from a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not a checkpoint, or are damaged.
    Checkpoint(CheckpointError),
    /// The checkpoint does not have this parameter.
    Missing {
        /// Name of the parameter in the network.
        parameter: String,
        /// Name of the missing parameter in the checkpoint.
        name: String,
        /// Suggestion of a similar name in the checkpoint as the end of the message; empty without one.
        suggestion: String,
    },
    /// The shapes of a parameter in the network and in the checkpoint differ.
    Shape {
        /// Name of the parameter in the network.
        parameter: String,
        /// Shape of the parameter in the network, `[n, h, w, c]`.
        expected: Shape,
        /// Shape of the parameter in the checkpoint.
        found: Vec<usize>,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(error) => write!(f, "{error}"),
            Self::Missing { parameter, name, suggestion } if parameter == name => {
                write!(f, "the checkpoint has no parameter {name}{suggestion}")
            }
            Self::Missing { parameter, name, suggestion } => {
                write!(f, "the checkpoint has no parameter {name}, which was requested for {parameter}{suggestion}")
            }
            Self::Shape { parameter, expected, found } => {
                let sizes = <[usize; 4]>::try_from(found.as_slice()).map(Shape::from);
                let found = sizes.map_or_else(|_| format!("{found:?}"), |shape| shape.to_string());
                write!(f, "{parameter} is {found} in the checkpoint, but {expected} here")
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Checkpoint(error) => Some(error),
            Self::Missing { .. } | Self::Shape { .. } => None,
        }
    }
}

impl Parameters {
    /// Loads weights and running statistics from a checkpoint of [`Trainer::save`](crate::Trainer::save), whatever
    /// method and optimizer it was trained with. It must contain every parameter, by its name and with its shape; the
    /// result lists its other parameters. Constants (for example class weights of a loss) are not in checkpoints and
    /// are kept.
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Linear, Module}, optim::{Adam, Sgd}};
    /// # use std::collections::BTreeMap;
    /// # let bytes = {
    /// #     let mut parameters = Parameters::seeded(1);
    /// #     Linear::new(&mut parameters.at("net"), 3, 2);
    /// #     Trainer::new(Cpu::new(1)?, parameters, Adam::new(0.1), Method::mixed())?.save(&BTreeMap::new())?
    /// # };
    ///
    /// let mut parameters = Parameters::seeded(0);
    /// let net = Linear::new(&mut parameters.at("net"), 3, 2);
    /// // bytes = std::fs::read("checkpoint.safetensors")?
    /// let imported = parameters.load(&bytes)?;
    /// assert!(imported.is_complete(), "{imported}");
    /// // To apply the network: a learning rate of no training, and any precision.
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.0), Method::fp32())?;
    /// let y = trainer.evaluate([Input::f32([1, 3], &[1.0, 2.0, 3.0])], |[x]| net.forward(x))?;
    /// assert_eq!(y.data.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Bytes that are not a checkpoint or are damaged, a parameter that is missing or has another shape. Nothing is
    /// changed then.
    pub fn load(&mut self, bytes: &[u8]) -> Result<Imported, LoadError> {
        self.load_as(bytes, |name| Some(name.to_owned()))
    }

    /// Loads like [`Parameters::load`] under other names. `names` returns the name of a parameter in the checkpoint, or
    /// `None` for one that keeps its initial values.
    ///
    /// ```
    /// # use gradscale::{Cpu, Method, Parameters, Trainer, models::ResNet, nn::{Linear, Module}, optim::{Adam, Sgd}};
    /// # use std::collections::BTreeMap;
    /// # let bytes = {
    /// #     let mut parameters = Parameters::seeded(1);
    /// #     ResNet::new(&mut parameters.at("resnet"), 3, 2, 1, 10);
    /// #     Trainer::new(Cpu::new(1)?, parameters, Adam::new(0.1), Method::mixed())?.save(&BTreeMap::new())?
    /// # };
    /// // From a network for ten classes, all layers except the last, into one with three.
    /// let mut parameters = Parameters::seeded(0);
    /// let net = ResNet::new(&mut parameters.at("mine"), 3, 2, 1, 3);
    /// let imported = parameters.load_as(&bytes, |name| {
    ///     let inside = name.strip_prefix("mine.")?;
    ///     (!inside.starts_with("linear.")).then(|| format!("resnet.{inside}"))
    /// })?;
    /// assert_eq!(imported.missing, ["mine.linear.weight", "mine.linear.bias"]);
    /// assert_eq!(imported.unused, ["resnet.linear.bias", "resnet.linear.weight"]);
    /// # let _ = net;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`Parameters::load`].
    pub fn load_as(&mut self, bytes: &[u8], names: impl Fn(&str) -> Option<String>) -> Result<Imported, LoadError> {
        let tensors = checkpoint::open::<IgnoredAny>(bytes).map_err(LoadError::Checkpoint)?.tensors;
        let (mut imported, mut used, mut all) = (Imported::default(), BTreeSet::new(), Vec::new());
        for (id, definition) in self.all.iter().enumerate().filter(|(_, one)| one.role != Role::Constant) {
            let parameter = definition.name.clone();
            let Some(name) = names(&parameter) else {
                imported.missing.push(parameter);
                continue;
            };
            let Some(tensor) = tensors.get(&format!("{MASTER}.{name}")) else {
                let known = tensors.keys().filter_map(|name| name.strip_prefix(MASTER)?.strip_prefix('.'));
                let suggestion = suggestion(&name, known);
                return Err(LoadError::Missing { parameter, name, suggestion });
            };
            if tensor.dtype() != Dtype::F32 || tensor.shape() != definition.shape.sizes() {
                let (expected, found) = (definition.shape, tensor.shape().to_vec());
                return Err(LoadError::Shape { parameter, expected, found });
            }
            all.push((id, checkpoint::floats(tensor)));
            used.insert(name);
            imported.filled.push(parameter);
        }
        let masters = tensors.keys().filter_map(|name| name.strip_prefix(MASTER)?.strip_prefix('.'));
        imported.unused = masters.filter(|name| !used.contains(*name)).map(str::to_owned).collect();
        for (id, values) in all {
            self.all[id].values = values;
        }
        Ok(imported)
    }
}
