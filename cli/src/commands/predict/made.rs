//! Images from generators.

use super::{Predict, png};
use crate::{
    Failure,
    data::Picture,
    output,
    tasks::{GeneratedImages, InferenceModel},
};
use image::ExtendedColorType;
use serde_json::json;
use std::fs;

/// File of the generated images.
const IMAGE: &str = "made.png";

/// Generates images from noise, and writes them to one file.
pub(super) fn make(arguments: &Predict, applied: &mut dyn InferenceModel) -> Result<(), Failure> {
    let Some(made) = applied.make(arguments.count.into(), arguments.seed)? else {
        return Err(Failure::file(&arguments.weights, "name the images, recordings or texts to predict"));
    };
    fs::create_dir_all(&arguments.out).map_err(|error| Failure::file(&arguments.out, error))?;
    let GeneratedImages { size: [height, width], pixels } = made.tiled();
    let path = arguments.out.join(IMAGE);
    let picture = Picture { height, width, pixels: Vec::new() };
    output::write_listed(&arguments.out, IMAGE, &png(&path, &pixels, &picture, ExtendedColorType::Rgb8)?)?;
    output::print(&format!("{}: {} images\n", path.display(), arguments.count))?;
    output::print_json(&json!({ "image": path, "count": arguments.count, "seed": arguments.seed }))
}
