//! Prediction by segmentation networks.

use super::{Predict, png};
use crate::{
    Failure,
    data::{Picture, Size},
    output,
    tasks::{Classes, InferenceModel},
};
use image::ExtendedColorType;
use serde_json::json;
use std::{collections::BTreeMap, path::PathBuf};

/// Predicts the classes of each image's pixels, and writes them as a label image and over the image.
pub(super) fn label(
    arguments: &Predict, files: &[PathBuf], applied: &mut dyn InferenceModel, classes: &Classes, resized: Option<Size>,
) -> Result<(), Failure> {
    for path in files {
        let picture = Picture::read(path, resized)?;
        let labels = applied.predict([picture.height, picture.width, 3], &picture.pixels)?;
        // A class of a pixel is a byte.
        let byte = |&class: &u32| u8::try_from(class).unwrap_or(u8::MAX);
        let labels: Vec<u8> = labels.classes().iter().map(byte).collect();
        let name = path.file_stem().map_or_else(|| "image".into(), |stem| stem.to_string_lossy());
        let [labels_file, overlay_file] = ["labels", "overlay"].map(|kind| format!("{name}-{kind}.png"));
        let [labelled, overlay] = [&labels_file, &overlay_file].map(|file| arguments.out.join(file));
        let grey = |class: &u8| classes.values.get(usize::from(*class)).copied().unwrap_or(*class);
        let greys: Vec<u8> = labels.iter().map(grey).collect();
        output::write_listed(&arguments.out, &labels_file, &png(&labelled, &greys, &picture, ExtendedColorType::L8)?)?;
        let mixed = mix(&picture, &labels, classes);
        output::write_listed(
            &arguments.out,
            &overlay_file,
            &png(&overlay, &mixed, &picture, ExtendedColorType::Rgb8)?,
        )?;
        output::print(&format!("{}: {}\n", overlay.display(), shares(&labels, classes)))?;
        output::print_json(&json!({
            "input": path, "labels": labelled, "overlay": overlay, "pixels": counts(&labels, classes),
        }))?;
    }
    Ok(())
}

/// Mixes an image with the colours of its predicted classes, half each.
fn mix(picture: &Picture, labels: &[u8], classes: &Classes) -> Vec<u8> {
    let colour = |label: u8| classes.colours.get(usize::from(label)).copied().unwrap_or([0; 3]);
    let pixels = picture.pixels.chunks_exact(3).zip(labels);
    pixels.flat_map(|(pixel, &label)| [0, 1, 2].map(|i| pixel[i].midpoint(colour(label)[i]))).collect()
}

/// Returns the number of pixels of each predicted class, by its name.
fn counts<'a>(labels: &[u8], classes: &'a Classes) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for &label in labels {
        let name = classes.names.get(usize::from(label)).map_or("?", String::as_str);
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

/// Formats the three classes with the largest areas, and their shares of the image.
fn shares(labels: &[u8], classes: &Classes) -> String {
    let count = |class: usize| labels.iter().filter(|&&label| usize::from(label) == class).count();
    let mut counts: Vec<(usize, &String)> =
        classes.names.iter().enumerate().map(|(i, name)| (count(i), name)).collect();
    counts.sort_by(|a, b| b.cmp(a));
    let percent = |count: usize| 100.0 * count as f64 / labels.len().max(1) as f64;
    let parts = counts.iter().take(3).map(|(count, name)| format!("{name} {:.0} %", percent(*count)));
    parts.collect::<Vec<_>>().join(", ")
}
