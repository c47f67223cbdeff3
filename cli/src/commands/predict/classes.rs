//! Prediction by classifiers of images or of table rows.

use super::{Predict, network::Fit};
use crate::{
    Failure,
    data::{self, Picture, TableRows},
    output,
    tasks::{Classes, InferenceModel, Predictions},
};
use serde_json::json;
use std::{fmt::Write, path::PathBuf};

/// Name of the file with the predicted classes.
const TABLE: &str = "classes.tsv";
/// Maximum number of classes that a line of the terminal counts.
const MAX_SHOWN_CLASSES: usize = 10;

/// Predicts the class of each row of some tables, and writes them.
pub(super) fn rows(
    arguments: &Predict, files: &[PathBuf], applied: &mut dyn InferenceModel, classes: &Classes,
) -> Result<(), Failure> {
    output::check_listed(&arguments.out, TABLE)?;
    let mut table = String::new();
    for path in files {
        let TableRows { features, unknown } = data::rows(path, &classes.columns)?;
        if let Some(unknown) = unknown {
            output::warn(&Failure::file(path, unknown));
        }
        let mut counts = vec![0_usize; classes.names.len()];
        for (row, numbers) in features.iter().enumerate() {
            let (class, name) = told(&applied.predict([1, classes.columns.len(), 1], numbers)?, classes);
            writeln!(table, "{}:{}\t{class}\t{name}", path.display(), row + 1).ok();
            if let Some(count) = counts.get_mut(class) {
                *count += 1;
            }
            output::print_json(&json!({ "input": path, "row": row + 1, "class": class, "name": name }))?;
        }
        let counted = classes.names.iter().zip(&counts).filter(|(_, count)| **count > 0);
        let mut counted: Vec<(&String, &usize)> = counted.collect();
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let more = counted.len().saturating_sub(MAX_SHOWN_CLASSES);
        let words = counted.iter().take(MAX_SHOWN_CLASSES).map(|(name, count)| format!("{name} {count}"));
        let more = (more > 0).then(|| format!("{more} more classes"));
        let words: Vec<String> = words.chain(more).collect();
        let rows = if features.len() == 1 { "1 row".to_owned() } else { format!("{} rows", features.len()) };
        output::print(&format!("{}: {rows}: {}\n", path.display(), words.join(", ")))?;
    }
    write(arguments, &table)?;
    if table.is_empty() { Ok(()) } else { output::print(&format!("{}\n", arguments.out.join(TABLE).display())) }
}

/// Predicts the class of each image, and writes them; `size` is that of the network's input.
pub(super) fn images(
    arguments: &Predict, files: &[PathBuf], applied: &mut dyn InferenceModel, classes: &Classes,
    (size, fit): ([usize; 3], Fit),
) -> Result<(), Failure> {
    output::check_listed(&arguments.out, TABLE)?;
    let mut table = String::new();
    for path in files {
        let mut picture = Picture::read(path, fit.resized)?;
        if fit.middle {
            picture = picture.middle(size[0]);
        }
        let pixels = fitting(&picture, size).map_err(|cause| Failure::file(path, cause))?;
        let (class, name) = told(&applied.predict(size, &pixels)?, classes);
        writeln!(table, "{}\t{class}\t{name}", path.display()).ok();
        output::print(&format!("{}: {name}\n", path.display()))?;
        output::print_json(&json!({ "input": path, "class": class, "name": name }))?;
    }
    write(arguments, &table)
}

/// Returns the class that was predicted for the first image, and its name.
fn told<'a>(answers: &Predictions, classes: &'a Classes) -> (usize, &'a str) {
    let class = answers.classes().first().map_or(0, |&class| class as usize);
    (class, classes.names.get(class).map_or("?", String::as_str))
}

fn write(arguments: &Predict, table: &str) -> Result<(), Failure> {
    if table.is_empty() {
        return Ok(());
    }
    output::write_listed(&arguments.out, TABLE, format!("image\tclass\tname\n{table}").as_bytes())
}

/// Returns the pixels of an image for a network of one size; grey networks take one value each.
fn fitting(picture: &Picture, [height, width, channels]: [usize; 3]) -> Result<Vec<u8>, String> {
    if [picture.height, picture.width] != [height, width] {
        let (found, expected) = ((picture.height, picture.width), (height, width));
        return Err(format!(
            "{} × {} (rows × columns), but the network takes {} × {}; resize the image",
            found.0, found.1, expected.0, expected.1
        ));
    }
    if channels == 3 {
        return Ok(picture.pixels.clone());
    }
    // Luma of ITU-R BT.601, in 1000ths; of grey images, the grey.
    let luma =
        |pixel: &[u8]| (299 * u32::from(pixel[0]) + 587 * u32::from(pixel[1]) + 114 * u32::from(pixel[2])) / 1000;
    Ok(picture.pixels.chunks_exact(3).map(|pixel| u8::try_from(luma(pixel)).unwrap_or(u8::MAX)).collect())
}
