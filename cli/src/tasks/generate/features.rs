//! Features for comparing generated with real images: outputs of a classifier, or pixel means.

use crate::{
    Failure,
    data::Element,
    tasks::{
        Classes, Net, Network, Task,
        classify::{Classifier, network},
        run,
    },
};
use gradscale::{Cpu, Method, Trainer, checkpoint_metadata, optim::Sgd};
use serde::Deserialize;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Maximum number of rows and columns of the means that are features of pixels.
const CELLS: usize = 8;
/// Maximum number of channels of a classifier whose answers are features.
const MOST_WIDTH: usize = 4096;
/// Number of images that the classifier reads at once.
const CHUNK: usize = 250;

/// Feature extractor by which generated and real images are compared.
#[derive(Debug)]
pub enum Features {
    /// Means of parts of an image, as many as 8 × 8, of each channel, from 0 to 1.
    Pixels,
    /// Answers of a classifier before softmax, one feature for each class.
    Answers(Box<Mutex<Answering>>),
}

/// Classifier on the CPU whose answers are features of images.
#[derive(Debug)]
pub struct Answering {
    trainer: Trainer<Cpu>,
    net: Classifier,
    classes: usize,
    path: PathBuf,
}

/// Settings of the network that a checkpoint contains.
#[derive(Deserialize)]
struct Settings {
    #[serde(default)]
    net: Option<Net>,
    width: Option<usize>,
    #[serde(default)]
    size: Option<String>,
}

impl Features {
    /// Opens a checkpoint of `gradscale train --task classify` for images of this size; without one, features are pixel
    /// means.
    ///
    /// # Errors
    /// A file that is no such checkpoint.
    pub fn new(path: Option<&Path>, size: [usize; 3]) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::Pixels) };
        let wrong = |cause: String| Failure::file(path, cause);
        let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let metadata = checkpoint_metadata(&bytes).map_err(|error| wrong(error.to_string()))?;
        let words = |key: &str| {
            metadata.get(key).ok_or_else(|| {
                wrong(
                    "not a checkpoint of gradscale \
            train"
                        .to_owned(),
                )
            })
        };
        let classes: Classes = serde_json::from_str(words("classes")?).map_err(|error| wrong(error.to_string()))?;
        let settings: Settings = serde_json::from_str(words("plan")?).map_err(|error| wrong(error.to_string()))?;
        let input = classes.input.filter(|_| classes.columns.is_empty());
        let net = settings.net.filter(|net| net.task() == Task::Classify);
        let (Some(input), Some(net)) = (input, net) else {
            return Err(wrong("not a classifier of images; train one with gradscale train --task classify".to_owned()));
        };
        if input.size != size {
            let [there, here] = [input.size, size].map(|[h, w, c]| format!("{h} × {w} × {c}"));
            return Err(wrong(format!("its network takes images of {there}, but these are {here}")));
        }
        let small = !settings.size.is_some_and(|size| size.contains("paper"));
        let width = settings.width.filter(|width| (1..=MOST_WIDTH).contains(width));
        let width = width.ok_or_else(|| wrong("lacks the width of its network".to_owned()))?;
        let of = Network { net, width, small };
        let (mut parameters, net) = network(0, of, input, classes.names.len())?;
        let _ = parameters.load(&bytes).map_err(|error| wrong(error.to_string()))?;
        let device = Cpu::new(0).map_err(|error| Failure::at("cpu", error))?;
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), Method::fp32())?;
        let (classes, path) = (classes.names.len(), path.to_owned());
        Ok(Self::Answers(Box::new(Mutex::new(Answering { trainer, net, classes, path }))))
    }

    /// Computes the features of each image `[n, h, w, c]`, one image after another.
    ///
    /// # Errors
    /// The CPU's.
    pub fn extract(&self, images: &[u8], [height, width, channels]: [usize; 3]) -> Result<Vec<f64>, Failure> {
        let bytes = height * width * channels;
        match self {
            Self::Pixels => {
                let all = images.chunks_exact(bytes);
                Ok(all.flat_map(|image| means(image, [height, width, channels])).collect())
            }
            Self::Answers(answering) => {
                let Answering { trainer, net, .. } = &mut *lock(answering);
                let mut features = Vec::new();
                for part in images.chunks(CHUNK * bytes) {
                    let size = [part.len() / bytes, height, width, channels];
                    let logits = run::logits(trainer, &*net, (size, Element::Byte), part)?;
                    features.extend(logits.into_iter().map(f64::from));
                }
                Ok(features)
            }
        }
    }

    /// Returns the number of features of an image.
    pub fn count(&self, [height, width, channels]: [usize; 3]) -> usize {
        match self {
            Self::Pixels => height.min(CELLS) * width.min(CELLS) * channels,
            Self::Answers(answering) => lock(answering).classes,
        }
    }

    /// Describes the feature extractor in a sentence.
    pub fn words(&self, [height, width, _]: [usize; 3]) -> String {
        match self {
            Self::Pixels => format!(
                "images are compared by the pixel means of {} × {} parts; --features CLASSIFIER compares better",
                height.min(CELLS),
                width.min(CELLS)
            ),
            Self::Answers(answering) => {
                let answering = lock(answering);
                format!("images are compared by the {} outputs of {}", answering.classes, answering.path.display())
            }
        }
    }
}

/// Waits until no other run uses the classifier. A panic in another run leaves nothing half done that this one would read.
fn lock(answering: &Mutex<Answering>) -> MutexGuard<'_, Answering> {
    answering.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Computes the mean of each part of an image.
fn means(image: &[u8], [height, width, channels]: [usize; 3]) -> Vec<f64> {
    let (rows, columns) = (height.min(CELLS), width.min(CELLS));
    let mut all = Vec::with_capacity(rows * columns * channels);
    for row in 0..rows {
        for column in 0..columns {
            for channel in 0..channels {
                let part = |i: usize, of: usize, parts: usize| i * of / parts..(i + 1) * of / parts;
                let (down, across) = (part(row, height, rows), part(column, width, columns));
                let count = (down.len() * across.len()) as f64;
                let at = |y: usize, x: usize| f64::from(image[(y * width + x) * channels + channel]);
                let sum: f64 = down.map(|y| across.clone().map(|x| at(y, x)).sum::<f64>()).sum();
                all.push(sum / count / 255.0);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_in_parts() {
        // 16 × 16: parts of 2 × 2, of which the first is 0, 51, 102, 255 in its first channel.
        let mut image = vec![0; 16 * 16 * 3];
        for (at, value) in [(0, 0), (3, 51), (16 * 3, 102), (17 * 3, 255)] {
            image[at] = value;
        }
        let features = Features::Pixels.extract(&image, [16, 16, 3]).expect("pixels");
        assert_eq!((features.len(), Features::Pixels.count([16, 16, 3])), (192, 192));
        assert!((features[0] - 0.4).abs() < 1e-12 && features[1..].iter().all(|&x| x == 0.0));
        // Parts of unlike sizes, each pixel in one of them; an image that is smaller than the parts.
        let features = Features::Pixels.extract(&[255; 28 * 28], [28, 28, 1]).expect("pixels");
        assert!(features.len() == 64 && features.iter().all(|&x| (x - 1.0).abs() < 1e-12));
        assert_eq!(Features::Pixels.extract(&[255, 0], [1, 2, 1]).expect("pixels"), [1.0, 0.0]);
    }
}
