//! `gradscale predict`: a trained network on images.

use crate::{
    Failure,
    data::Picture,
    output,
    task::segnet::{Classes, network, optimizer},
    train::checkpoints::Found,
};
use clap::Args;
use gradscale::{Batch, Cpu, Trainer, models::SegNet, nn::Module};
use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// `gradscale predict`.
#[derive(Clone, Debug, Args)]
pub struct Predict {
    /// A checkpoint of `gradscale train`.
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: PathBuf,
    /// PNG or JPEG files, or directories with such; each may have a size of its own.
    #[arg(value_name = "IMAGES", required = true)]
    images: Vec<PathBuf>,
    /// Directory for NAME-labels.png (grey values are class ids) and NAME-overlay.png.
    #[arg(long, value_name = "DIR", default_value = "predictions")]
    out: PathBuf,
    /// Threads of the CPU; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4096))]
    threads: u16,
}

/// Predicts the classes of all pixels of all images.
///
/// # Errors
/// A checkpoint or an image that cannot be used, results that cannot be written.
pub fn run(arguments: &Predict) -> Result<(), Failure> {
    let found = Found::read(&arguments.checkpoint)?;
    let (plan, classes) = (found.plan()?, found.classes()?);
    let (parameters, net, _) = network(0, plan.width, &vec![1.0; classes.names.len()]);
    let device = Cpu::new(usize::from(arguments.threads)).map_err(|error| Failure::at("--threads", error))?;
    let mut trainer = Trainer::new(device, parameters, optimizer(1.0), plan.method()?)?;
    trainer.load(&found.bytes).map_err(|error| Failure::file(&found.path, error))?;
    let images = files(&arguments.images)?;
    fs::create_dir_all(&arguments.out).map_err(|error| Failure::file(&arguments.out, error))?;
    for path in images {
        let picture = Picture::read(&path)?;
        let labels = predict(&mut trainer, &net, &picture)?;
        let name = path.file_stem().map_or_else(|| "image".into(), |stem| stem.to_string_lossy());
        let labelled = arguments.out.join(format!("{name}-labels.png"));
        output::write(&labelled, &png(&labelled, &labels, &picture, ExtendedColorType::L8)?)?;
        let overlay = arguments.out.join(format!("{name}-overlay.png"));
        let mixed = mix(&picture, &labels, &classes);
        output::write(&overlay, &png(&overlay, &mixed, &picture, ExtendedColorType::Rgb8)?)?;
        output::print(&format!("{}: {}\n", overlay.display(), shares(&labels, &classes)))?;
    }
    Ok(())
}

fn predict(trainer: &mut Trainer<Cpu>, net: &SegNet, picture: &Picture) -> Result<Vec<u8>, Failure> {
    let batch = [Batch::u8([1, picture.height, picture.width, 3], &picture.pixels)];
    let best = trainer.evaluate(batch, |[x]| net.forward(x)?.argmax())?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes are bytes")]
    Ok(best.data.into_iter().map(|class| class as u8).collect())
}

/// Files as they are named, and all images of directories.
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
            extension.is_some_and(|extension| ["png", "jpg", "jpeg"].contains(&extension.as_str()))
        };
        let mut found: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(image).collect();
        if found.is_empty() {
            return Err(Failure::file(path, "no PNG or JPEG files"));
        }
        found.sort();
        files.extend(found);
    }
    // Results are named after the files.
    let mut stems: Vec<_> = files.iter().map(|path| path.file_stem()).collect();
    stems.sort();
    if let Some(twice) = stems.windows(2).find(|pair| pair[0] == pair[1]).and_then(|pair| pair[0]) {
        return Err(Failure::at(twice.to_string_lossy(), "two images of this name would overwrite each other"));
    }
    Ok(files)
}

/// Half image, half colour of the class.
fn mix(picture: &Picture, labels: &[u8], classes: &Classes) -> Vec<u8> {
    let colour = |label: u8| classes.colours.get(usize::from(label)).copied().unwrap_or([0; 3]);
    let pixels = picture.pixels.chunks_exact(3).zip(labels);
    pixels.flat_map(|(pixel, &label)| [0, 1, 2].map(|i| pixel[i].midpoint(colour(label)[i]))).collect()
}

/// The three classes with the largest areas.
fn shares(labels: &[u8], classes: &Classes) -> String {
    let count = |class: usize| labels.iter().filter(|&&label| usize::from(label) == class).count();
    let mut counts: Vec<(usize, &String)> =
        classes.names.iter().enumerate().map(|(i, name)| (count(i), name)).collect();
    counts.sort_by(|a, b| b.cmp(a));
    let percent = |count: usize| 100.0 * count as f64 / labels.len().max(1) as f64;
    let parts = counts.iter().take(3).map(|(count, name)| format!("{name} {:.0} %", percent(*count)));
    parts.collect::<Vec<_>>().join(", ")
}

fn png(path: &Path, data: &[u8], picture: &Picture, colour: ExtendedColorType) -> Result<Vec<u8>, Failure> {
    let side = |size: usize| u32::try_from(size).map_err(|error| Failure::file(path, error));
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new(&mut bytes);
    let done = encoder.write_image(data, side(picture.width)?, side(picture.height)?, colour);
    done.map_err(|error| Failure::file(path, error))?;
    Ok(bytes)
}
