//! Detection of this program's networks in files of PyTorch.

use super::{Network, Task};
use clap::ValueEnum;
use gradscale::{Parameters, TorchModule, models::Decoder};
use safetensors::SafeTensors;

/// Network that was recognised by the tensors in a file of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetectedNetwork {
    /// Task to which the PyTorch model belongs.
    pub task: Task,
    /// Network that was recognised by the names and shapes of its tensors.
    pub network: Network,
    /// Number of classes that the network predicts.
    pub classes: usize,
    /// Shape of one input of the network.
    pub input: InputSpec,
    /// True if the network predicts one class for a whole image of fixed size.
    pub whole: bool,
}

/// Kind and shape of a network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputSpec {
    /// Images of any size with this number of channels.
    Channels(usize),
    /// Values in this number, in any order of rows, columns and channels.
    Values(usize),
    /// Noise, from which images of these rows, columns and channels are generated.
    Noise([usize; 3]),
}

impl DetectedNetwork {
    /// Detects the network whose layers have the names of a file (a `state_dict` in safetensors).
    ///
    /// # Errors
    /// Bytes that are no safetensors file, or names and shapes of no network of this program; in words.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        if let Some(found) = Task::value_variants().iter().find_map(|task| task.kind().recognise(&file)) {
            return Ok(found);
        }
        let mut names = file.names();
        names.sort_unstable();
        let shown = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
        let layers = "its layer names belong to no network of this program; `gradscale plan` lists the names";
        Err(format!("{layers}; this file has {} tensors: {shown} …", names.len()))
    }

    /// Returns the shape of an image of that size.
    ///
    /// # Errors
    /// A size that the network cannot read; in words.
    pub fn image(&self, [height, width]: [usize; 2]) -> Result<[usize; 3], String> {
        let channels = match self.input {
            InputSpec::Channels(channels) => channels,
            InputSpec::Values(values) if values == height * width => 1,
            InputSpec::Values(values) if values == 3 * height * width => 3,
            InputSpec::Noise(_) => return Err("the network generates images and reads none".to_owned()),
            InputSpec::Values(values) => {
                return Err(format!("{height} × {width} pixels, but the network reads {values} values"));
            }
        };
        match channels {
            1 | 3 => Ok([height, width, channels]),
            _ => Err(format!("the network reads images of {channels} channels, but images have 1 or 3")),
        }
    }
}

/// Returns the shapes of two tensors of a file; empty ones where it has no such tensor.
pub(super) fn sizes(file: &SafeTensors<'_>, first: &str, last: &str) -> [Vec<usize>; 2] {
    [first, last].map(|name| file.tensor(name).map(|tensor| tensor.shape().to_vec()).unwrap_or_default())
}

/// Fills all parameters of a network from a file of PyTorch.
///
/// # Errors
/// Tensors that are missing, too many, or of another shape; in words.
pub fn fill(parameters: &mut Parameters, bytes: &[u8], flattened: &[Flattened]) -> Result<(), String> {
    let module = |layer: &str| module(layer, flattened);
    let imported = parameters.import_torch(bytes, module).map_err(|error| error.to_string())?;
    if imported.is_complete() { Ok(()) } else { Err(format!("the weights are of another network: {imported}")) }
}

/// Layer that reads a flattened image, by name, with the image's rows, columns and channels.
pub type Flattened = (String, [usize; 3]);

/// Returns the module of a layer in a PyTorch file: called the same, but for the network's name. Layers that read a
/// flattened image read it in another order there, and attention has names of its own.
pub(super) fn module(layer: &str, flattened: &[Flattened]) -> Option<TorchModule> {
    let module = Decoder::torch(layer.split_once('.')?.1);
    Some(match flattened.iter().find(|(name, _)| name == layer) {
        Some((_, image)) => module.flattened(*image),
        None => module,
    })
}
