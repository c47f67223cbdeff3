//! `gradscale predict`: applies a trained network to files.

mod boxes;
mod classes;
mod made;
mod network;
mod pixels;
mod texts;

pub(super) use network::{Ready, of_checkpoint};

use crate::{
    Failure,
    data::Picture,
    device::Device,
    help::{Completed, devices},
    output,
};
use clap::Args;
use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// `gradscale predict`.
#[derive(Clone, Debug, Args)]
pub struct Predict {
    /// A checkpoint of `gradscale train`, or the directory of a training, whose newest checkpoint is used; or a PyTorch
    /// model: a safetensors file of its state_dict. Its modules must have the names that `gradscale plan` lists, without
    /// the network's name (encoder.conv1.weight). Predictions are computed in f32.
    #[arg(value_name = "WEIGHTS")]
    weights: PathBuf,
    /// Input files, or directories that contain them. For images, PNG or JPEG files: for segnet and detect of any size,
    /// for classify of the size of the training images unless these were resized. For tables, CSV files. For speech,
    /// WAV files, which are mixed down and resampled if necessary. For translation, files of lines, plain or compressed with gzip. For
    /// language, text files that the network continues. Generators read no files.
    #[arg(value_name = "IMAGES")]
    images: Vec<PathBuf>,
    /// For language: a beginning that the network continues, in addition to files with beginnings. Words are separated
    /// by blanks.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// For language: number of tokens to generate
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    length: u32,
    /// For language: sampling temperature; 0 selects the likeliest token
    #[arg(long, value_name = "T", default_value_t = 0.8, value_parser = temperature)]
    temperature: f64,
    /// For language: sample from the K likeliest tokens; 0 samples from all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// For generators: number of images. Their noise depends on --seed only, so it is the same for every checkpoint.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    count: u16,
    /// Seed of sampled text and of the noise of generated images. The report of a training uses the noise of that
    /// training's seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Output directory. For segnet: NAME-labels.png (grey values as in the training's label images if these were grey,
    /// or else class ids) and NAME-overlay.png. For classify: classes.tsv. For detect: boxes.tsv, in pixels, and
    /// NAME-boxes.png. For speech: transcripts.tsv. For translation: translations.tsv (source and translation) and
    /// translations.txt. For language: NAME-continued.txt. For generators: made.png. These files may exist only if
    /// predict wrote them.
    #[arg(long, value_name = "DIR", default_value = "predictions")]
    out: PathBuf,
    /// For PyTorch models: file with names and colours of the classes, in the format of a data set's `classes.tsv`
    /// [default: numbers]
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// For PyTorch models: mean to subtract from images, whose values are 0 to 1: one number, or one for each channel.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0", allow_hyphen_values = true)]
    mean: Vec<f32>,
    /// For PyTorch models: standard deviation that divides images after the subtraction of --mean: one number, or one
    /// for each channel.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1")]
    std: Vec<f32>,
    /// Prints a line of JSON for each input, for scripts; text goes to the standard error.
    #[arg(long)]
    json: bool,
    /// Device to run on
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = Completed::<Device>::new(devices), hide_possible_values = true)]
    device: Device,
    /// Number of CPU threads; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4096))]
    threads: u16,
}

const PROMPT: &str = "is for networks of --task language; name a file for other networks";

fn temperature(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=1e3).contains(number));
    number.ok_or_else(|| "must be a number from 0 to 1000".to_owned())
}

/// Applies the network to all files, or generates images.
///
/// # Errors
/// A checkpoint or a file that cannot be used, results that cannot be written.
pub fn run(arguments: &Predict) -> Result<(), Failure> {
    output::set_json(arguments.json);
    let files = files(&arguments.images)?;
    let Ready { mut applied, classes, fit } = network::network(arguments, &files)?;
    let applied = &mut *applied;
    if files.is_empty() && arguments.prompt.is_none() {
        return made::make(arguments, applied);
    }
    fs::create_dir_all(&arguments.out).map_err(|error| Failure::file(&arguments.out, error))?;
    if classes.text.is_some() {
        return texts::go_on(arguments, &files, applied);
    }
    if arguments.prompt.is_some() {
        return Err(Failure::at("--prompt", PROMPT));
    }
    if fit.boxes {
        return boxes::look(arguments, &files, applied, &classes);
    }
    if let Some(sound) = classes.sound {
        return texts::hear(arguments, &files, applied, sound.rate);
    }
    if classes.sentences.is_some() {
        return texts::translate(arguments, &files, applied);
    }
    if !classes.columns.is_empty() {
        return classes::rows(arguments, &files, applied, &classes);
    }
    match classes.input {
        Some(input) => classes::images(arguments, &files, applied, &classes, (input.size, fit)),
        None => pixels::label(arguments, &files, applied, &classes, fit.resized),
    }
}

/// Returns the named files, and the image files of named directories.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| Failure::file(path, error))?;
        let image = |path: &PathBuf| {
            let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
            extension.is_some_and(|extension| ["png", "jpg", "jpeg", "wav", "txt"].contains(&extension.as_str()))
        };
        let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(image).collect();
        if found.is_empty() {
            return Err(Failure::file(path, "no .png, .jpg, .wav or .txt files"));
        }
        found.sort();
        files.extend(found);
    }
    // Results are named after the files.
    let mut stems: Vec<_> = files.iter().map(|path| path.file_stem()).collect();
    stems.sort();
    if let Some(twice) = stems.windows(2).find(|pair| pair[0] == pair[1]).and_then(|pair| pair[0]) {
        return Err(Failure::at(
            twice.to_string_lossy(),
            "two inputs have this name, and their results would overwrite \
            each other; rename one",
        ));
    }
    Ok(files)
}

fn png(path: &Path, data: &[u8], picture: &Picture, colour: ExtendedColorType) -> Result<Vec<u8>, Failure> {
    let side = |size: usize| u32::try_from(size).map_err(|error| Failure::file(path, error));
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new(&mut bytes);
    let done = encoder.write_image(data, side(picture.width)?, side(picture.height)?, colour);
    done.map_err(|error| Failure::file(path, error))?;
    Ok(bytes)
}
