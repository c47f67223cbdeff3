//! Import of weights from a PyTorch model.
//!
//! PyTorch stores images, and the weights that are applied to them, channels first (NCHW). This crate stores channels
//! last (NHWC).

use crate::{
    Parameters, Shape, checkpoint_metadata,
    parameters::{Definition, Role},
};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::{collections::BTreeSet, fmt};

/// PyTorch module from which a layer imports its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchModule {
    name: String,
    flattened: Option<[usize; 3]>,
    /// Prefix of the names of the layer's tensors within the module.
    prefix: &'static str,
}

impl TorchModule {
    /// Names the module in the model's `state_dict`, without the last component: `features.0`. An empty name is the
    /// model itself.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), flattened: None, prefix: "" }
    }

    /// Declares a linear layer after a flattening of h × w × c images. PyTorch flattens in the order c·h·w, this crate
    /// in h·w·c, so the columns of the weight are reordered. It must be declared, because the shapes are the same in
    /// both orders.
    #[must_use]
    pub fn flattened(self, [h, w, c]: [usize; 3]) -> Self {
        Self { flattened: Some([h, w, c]), ..self }
    }

    /// Declares the input product of `nn.MultiheadAttention`, whose tensors are named `in_proj_weight` and
    /// `in_proj_bias`. It corresponds to the layer `in` of [`SelfAttention`](crate::nn::SelfAttention).
    #[must_use]
    pub fn in_projection(self) -> Self {
        Self { prefix: "in_proj_", ..self }
    }

    fn tensor(&self, leaf: &str) -> String {
        let leaf = format!("{}{leaf}", self.prefix);
        if self.name.is_empty() { leaf } else { format!("{}.{leaf}", self.name) }
    }
}

/// Result of an import of PyTorch weights: filled, missing and unused names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "says which parameters were not in the file"]
pub struct Imported {
    /// Names of the parameters that received values from the file.
    pub filled: Vec<String>,
    /// Names of the parameters that keep their initial values: no module was named for them, or the file does not
    /// contain them.
    pub missing: Vec<String>,
    /// Tensors of the file that no parameter used. Counts of batches (`num_batches_tracked`) are not included.
    pub unused: Vec<String>,
}

impl Imported {
    /// Returns true if the import filled every parameter and used every tensor.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.unused.is_empty()
    }
}

impl fmt::Display for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} parameters imported", self.filled.len())?;
        if !self.missing.is_empty() {
            write!(f, "; not in the file: {}", self.missing.join(", "))?;
        }
        if !self.unused.is_empty() {
            write!(f, "; not used: {}", self.unused.join(", "))?;
        }
        Ok(())
    }
}

/// Reason why nothing was imported from a file of PyTorch weights.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImportError {
    /// The bytes of the file are not in the safetensors format.
    File(String),
    /// The file is a checkpoint of this crate, which [`Parameters::load`] reads.
    Checkpoint,
    /// A tensor of the file does not contain floating-point numbers of 16, 32 or 64 bits.
    Type {
        /// Name of the tensor with that element type in the file.
        tensor: String,
        /// Element type of the tensor, which is not supported.
        dtype: String,
    },
    /// The shapes of a tensor and its parameter do not match.
    Shape {
        /// Name of the parameter whose shape differs from the tensor's.
        parameter: String,
        /// Shape of the parameter in the network, channels last.
        expected: Shape,
        /// Name of the tensor in the file.
        tensor: String,
        /// Shape of the tensor in PyTorch, channels second.
        found: Vec<usize>,
    },
    /// The declared flattened image does not match the shape of the weight.
    Flattened {
        /// Name of the parameter that reads the flattened image.
        parameter: String,
        /// Shape of the parameter that reads the flattened image.
        expected: Shape,
        /// Height, width and channels of the image as it was declared.
        image: [usize; 3],
    },
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(cause) => write!(f, "not a safetensors file: {cause}"),
            Self::Checkpoint => f.write_str("a checkpoint of gradscale, not of PyTorch; use Parameters::load"),
            Self::Type { tensor, dtype } => write!(f, "{tensor} has type {dtype}, not f16, bf16, f32 or f64"),
            Self::Shape { parameter, expected, tensor, found } => {
                let found: Vec<String> = found.iter().map(usize::to_string).collect();
                write!(f, "{tensor} is {}, which does not fit {parameter}: {expected}", found.join("×"))
            }
            Self::Flattened { parameter, expected, image: [h, w, c] } => {
                let values = Shape::from([1, *h, *w, *c]).len();
                write!(f, "{parameter} is {expected}, but an image of {h}×{w}×{c} has {values} values")
            }
        }
    }
}

/// Debug impl of the error, which writes the same sentence as [`fmt::Display`].
impl fmt::Debug for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ImportError {}

impl Parameters {
    /// Imports weights and running statistics from the `state_dict` of a PyTorch model, saved as safetensors in f16,
    /// bf16, f32 or f64. `modules` returns the PyTorch module of each layer; a layer without one keeps its initial
    /// values.
    ///
    /// | here | PyTorch |
    /// |---|---|
    /// | weight of a convolution, `[out, kh, kw, in / groups]` | `weight`, `[out, in / groups, kh, kw]` |
    /// | weight of a linear layer, `[out, in]` | `weight`, the same; see [`TorchModule::flattened`] |
    /// | scale and shift of a normalisation | `weight` and `bias` |
    /// | running mean and variance, `[2, c]` | `running_mean` and `running_var` |
    /// | any other | the same name |
    ///
    /// Weights with four sizes are transposed so that the second size becomes the last. For a transposed convolution,
    /// `[in, out / groups, kh, kw]` thus becomes the weight of the convolution that it transposes.
    ///
    /// ```
    /// use gradscale::{Parameters, TorchModule, nn::{BatchNorm, Conv2d, Linear}};
    /// # use safetensors::{Dtype, tensor::TensorView};
    /// # let values: Vec<u8> = (0..1000u16).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    /// # let view = |shape: &[usize]| TensorView::new(Dtype::F32, shape.to_vec(), &values[..4 * shape.iter().product::<usize>()]);
    /// # let bytes = safetensors::serialize([
    /// #     ("features.0.weight", view(&[4, 3, 3, 3])?), ("features.1.weight", view(&[4])?), ("features.1.bias", view(&[4])?),
    /// #     ("features.1.running_mean", view(&[4])?), ("features.1.running_var", view(&[4])?),
    /// #     ("head.weight", view(&[2, 16])?), ("head.bias", view(&[2])?),
    /// # ], None)?;
    ///
    /// let mut parameters = Parameters::seeded(0);
    /// let conv = Conv2d::new(&mut parameters.at("conv"), 3, 4, 3);
    /// let norm = BatchNorm::new(&mut parameters.at("norm"), 4);
    /// let head = Linear::new(&mut parameters.at("head"), 2 * 2 * 4, 2);
    /// // bytes = std::fs::read("model.safetensors")?
    /// let imported = parameters.import_torch(&bytes, |layer| match layer {
    ///     "conv" => Some(TorchModule::named("features.0")),
    ///     "norm" => Some(TorchModule::named("features.1")),
    ///     "head" => Some(TorchModule::named("head").flattened([2, 2, 4])),
    ///     _ => None,
    /// })?;
    /// assert!(imported.is_complete(), "{imported}");
    /// # let _ = (conv, norm, head);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Bytes that are not a safetensors file, a checkpoint of this crate (for [`Parameters::load`]), or tensors that do
    /// not fit. Nothing is changed then.
    pub fn import_torch(
        &mut self, bytes: &[u8], modules: impl Fn(&str) -> Option<TorchModule>,
    ) -> Result<Imported, ImportError> {
        if checkpoint_metadata(bytes).is_ok() {
            return Err(ImportError::Checkpoint);
        }
        let file = SafeTensors::deserialize(bytes).map_err(|error| ImportError::File(error.to_string()))?;
        let (mut imported, mut used, mut all) = (Imported::default(), BTreeSet::new(), Vec::new());
        for (id, definition) in self.all.iter().enumerate().filter(|(_, one)| one.role != Role::Constant) {
            let (layer, leaf) = definition.name.rsplit_once('.').unwrap_or(("", &definition.name));
            let module = modules(layer);
            match module.map(|module| values(&file, definition, leaf, &module, &mut used)).transpose()?.flatten() {
                Some(values) => {
                    imported.filled.push(definition.name.clone());
                    all.push((id, values));
                }
                None => imported.missing.push(definition.name.clone()),
            }
        }
        let counts = |name: &str| name.rsplit('.').next() == Some("num_batches_tracked");
        let unused = file.names().into_iter().filter(|name| !used.contains(*name) && !counts(name));
        imported.unused = unused.map(str::to_owned).collect();
        imported.unused.sort();
        for (id, values) in all {
            self.all[id].values = values;
        }
        Ok(imported)
    }
}

/// Returns the imported values of one parameter; `None` if the file does not have all of them.
fn values(
    file: &SafeTensors<'_>, definition: &Definition, leaf: &str, module: &TorchModule, used: &mut BTreeSet<String>,
) -> Result<Option<Vec<f32>>, ImportError> {
    let leaves: &[&str] = match (definition.role, leaf) {
        (Role::Statistics, _) => &["running_mean", "running_var"],
        (_, "scale") => &["weight"],
        (_, "shift") => &["bias"],
        _ => &[leaf],
    };
    let names: Vec<String> = leaves.iter().map(|leaf| module.tensor(leaf)).collect();
    let Ok(tensors) = names.iter().map(|name| file.tensor(name)).collect::<Result<Vec<_>, _>>() else {
        return Ok(None);
    };
    // Mean and variance have the same length.
    let [n, h, w, c] = definition.shape.sizes();
    let expected = if definition.role == Role::Statistics { Shape::from([c]) } else { Shape::from([n, h, w, c]) };
    let mut values = Vec::new();
    for (name, tensor) in names.iter().zip(tensors) {
        if shape(tensor.shape()) != Some(expected) {
            return Err(ImportError::Shape {
                parameter: definition.name.clone(),
                expected,
                tensor: name.clone(),
                found: tensor.shape().to_vec(),
            });
        }
        let read = floats(name, &tensor)?;
        values.extend(match (tensor.shape(), module.flattened) {
            (&[_, channels, height, width], _) => channels_last(&read, channels, height * width),
            (&[_, channels, steps], _) => channels_last(&read, channels, steps),
            (&[_, inputs], Some([h, w, c])) => {
                if Shape::from([1, h, w, c]).len() != inputs {
                    let parameter = definition.name.clone();
                    return Err(ImportError::Flattened { parameter, expected, image: [h, w, c] });
                }
                channels_last(&read, c, h * w)
            }
            _ => read,
        });
    }
    used.extend(names);
    Ok(Some(values))
}

/// Returns the shape of a PyTorch tensor with its channels moved to the end.
fn shape(torch: &[usize]) -> Option<Shape> {
    match *torch {
        [] => Some(Shape::SCALAR),
        [n] => Some(Shape::from([n])),
        [out, inputs] => Some(Shape::from([out, inputs])),
        [out, inputs, steps] => Some(Shape::from([out, 1, steps, inputs])),
        [out, inputs, h, w] => Some(Shape::from([out, h, w, inputs])),
        _ => None,
    }
}

/// Transposes weights from `[…, channels, pixels]` to `[…, pixels, channels]`.
fn channels_last(values: &[f32], channels: usize, pixels: usize) -> Vec<f32> {
    let images = values.chunks_exact((channels * pixels).max(1));
    let places = || (0..pixels).flat_map(|pixel| (0..channels).map(move |channel| channel * pixels + pixel));
    images.flat_map(|image| places().map(|place| image[place])).collect()
}

fn floats(name: &str, tensor: &TensorView<'_>) -> Result<Vec<f32>, ImportError> {
    let data = tensor.data();
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32")]
    let narrow = |value: f64| value as f32;
    Ok(match tensor.dtype() {
        Dtype::F16 => data.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        Dtype::BF16 => data.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        Dtype::F32 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Dtype::F64 => {
            let word = |b: &[u8]| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
            data.chunks_exact(8).map(|b| narrow(word(b))).collect()
        }
        other => return Err(ImportError::Type { tensor: name.to_owned(), dtype: format!("{other:?}") }),
    })
}
