//! Loads the network of a checkpoint or of a PyTorch file.

use super::Predict;
use crate::{
    Failure,
    commands::train::checkpoints::{Checkpoints, FoundCheckpoint},
    data::{self, Picture, Size},
    device::Device,
    output,
    tasks::{
        CheckpointInfo, Classes, DetectedNetwork, ImageInput, InferenceModel, InputNormalization, InputSpec, Task,
        torch::{self, Flattened},
    },
};
use gradscale::{CheckpointError, Method, checkpoint_metadata};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Preprocessing that fits an image to a network's input.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fit {
    pub resized: Option<Size>,
    /// True if the centre of the image is cropped.
    pub middle: bool,
    /// True if the network is an object detector, whose results are boxes.
    pub boxes: bool,
}

/// Trained network, loaded on a device and ready to predict.
pub struct Ready {
    pub applied: Box<dyn InferenceModel>,
    /// Names of the classes that the network predicts.
    pub classes: Classes,
    /// Preprocessing that fits images to the network's input.
    pub fit: Fit,
}

/// Loads the network of a checkpoint on a device with a number of threads.
pub fn of_checkpoint(found: &FoundCheckpoint, (device, threads): (Device, usize)) -> Result<Ready, Failure> {
    let failed = |cause: String| Failure::file(&found.path, cause);
    let (plan, classes) = (found.plan()?, found.classes()?);
    // In f32, as an exported network computes: rounding to half would change labels at the edges of areas.
    let (network, method) = (plan.setup.chosen.network()?, Method::fp32());
    let fill = |parameters: &mut gradscale::Parameters, _: &[Flattened]| {
        parameters.load(&found.bytes).map(|_| ()).map_err(|error| failed(error.to_string()))
    };
    // Images with one class each are resized or cut as those for scores were.
    let (reading, whole) = (plan.setup.reading(), classes.input.is_some());
    let boxes = plan.setup.task() == Task::Detect;
    let fit = Fit { resized: reading.size.filter(|_| whole), middle: whole && reading.crop.is_some(), boxes };
    let trained = CheckpointInfo { device, threads, network, classes: &classes, method, normal: None };
    let applied = plan.setup.task().kind().apply(trained, &fill)?;
    Ok(Ready { applied, classes, fit })
}

/// Loads the network of a checkpoint or of a PyTorch file.
pub(super) fn network(arguments: &Predict, images: &[PathBuf]) -> Result<Ready, Failure> {
    let path = &arguments.weights;
    let failed = |cause: String| Failure::file(path, cause);
    let (device, threads) = (arguments.device, usize::from(arguments.threads));
    if path.is_dir() {
        return of_checkpoint(&newest_checkpoint(path)?, (device, threads));
    }
    let bytes = fs::read(path).map_err(|error| Failure::file(path, error))?;
    if checkpoint_metadata(&bytes) != Err(CheckpointError::Foreign) {
        return of_checkpoint(&FoundCheckpoint::new(path, bytes)?, (device, threads));
    }
    let recognised = DetectedNetwork::parse(&bytes).map_err(failed)?;
    let mut classes = named(arguments.classes.as_deref(), recognised.classes)?;
    let (mut size, mut fit) = (None, Fit { boxes: recognised.task == Task::Detect, ..Fit::default() });
    if let Some((side, InputSpec::Channels(channels))) = recognised.network.image().map(|side| (side, recognised.input))
    {
        classes.input = Some(ImageInput::new([side, side, channels], [0.0, 1.0]));
        (size, fit) = (Some([side, side, channels]), Fit { middle: true, ..fit });
    } else if let InputSpec::Noise(image) = recognised.input {
        classes.input = Some(ImageInput::new(image, [0.0, 1.0]));
    } else if recognised.whole {
        // All images must have the size of the first.
        let first = images.first().ok_or_else(|| failed("no images".to_owned()))?;
        let picture = Picture::read(first, None)?;
        let image = recognised.image([picture.height, picture.width]).map_err(|cause| Failure::file(first, cause))?;
        classes.input = Some(ImageInput::new(image, [0.0, 1.0]));
        size = Some(image);
    }
    for (option, numbers) in [("--mean", &arguments.mean), ("--std", &arguments.std)] {
        let fits = [1, size.map_or(3, |[_, _, channels]| channels)].contains(&numbers.len());
        if !fits || numbers.iter().any(|number| !number.is_finite() || option == "--std" && *number <= 0.0) {
            return Err(Failure::at(option, "must be one number or one for each channel, and --std positive"));
        }
    }
    let normal = Some(InputNormalization { mean: arguments.mean.clone(), deviation: arguments.std.clone() });
    let (network, method) = (recognised.network, Method::fp32());
    let fill = |parameters: &mut gradscale::Parameters, flattened: &[Flattened]| {
        torch::fill(parameters, &bytes, flattened).map_err(failed)
    };
    let trained = CheckpointInfo { device, threads, network, classes: &classes, method, normal };
    let applied = recognised.task.kind().apply(trained, &fill)?;
    Ok(Ready { applied, classes, fit })
}

/// Returns the newest intact checkpoint in the directory of a training, with a warning about each damaged one.
fn newest_checkpoint(directory: &Path) -> Result<FoundCheckpoint, Failure> {
    let checkpoints = Checkpoints::new(directory);
    if checkpoints.list()?.is_empty() {
        return Err(Failure::file(directory, "no checkpoint; give the directory of a training, or a file of weights"));
    }
    let (found, damaged) = checkpoints.newest()?;
    damaged.iter().for_each(|(_, error)| output::warn(error));
    Ok(found)
}

/// Returns names and colours of `count` classes, from a table or by their numbers.
fn named(table: Option<&Path>, count: usize) -> Result<Classes, Failure> {
    let numbers = || (0..count).map(|id| format!("{id}\t{id}\n")).collect::<String>();
    let (path, text) = match table {
        None if count == 0 => return Ok(classes(Vec::new(), Vec::new())),
        Some(path) => (path, data::text(path)?),
        None => (Path::new("classes"), format!("id\tname\n{}", numbers())),
    };
    let parsed = data::Classes::parse(&text);
    let parsed = parsed.map_err(|(line, cause)| Failure::file(path, format!("line {line}: {cause}")))?;
    let data::Classes { names, colours, .. } = parsed;
    if names.len() != count {
        return Err(Failure::file(path, format!("{} classes, but the network has {count}", names.len())));
    }
    Ok(classes(names, colours))
}

fn classes(names: Vec<String>, colours: Vec<[u8; 3]>) -> Classes {
    Classes { names, colours, ..Classes::default() }
}
