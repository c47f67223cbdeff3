//! Prediction by detectors.

use super::{Predict, png};
use crate::{
    Failure,
    data::Picture,
    drawing::{MIN_DRAWN_SCORE, framed},
    output,
    tasks::{Classes, InferenceModel, colour},
};
use image::ExtendedColorType;
use serde_json::json;
use std::{fmt::Write, path::PathBuf};

/// File of the detected boxes.
const TABLE: &str = "boxes.tsv";

/// Detects objects: draws boxes on each image and writes all of them to a table.
pub(super) fn look(
    arguments: &Predict, files: &[PathBuf], applied: &mut dyn InferenceModel, classes: &Classes,
) -> Result<(), Failure> {
    // Before the work, whose result would be lost.
    output::check_listed(&arguments.out, TABLE)?;
    let mut table = "image\tclass\tscore\tleft\ttop\tright\tbottom\n".to_owned();
    for path in files {
        let picture = Picture::read(path, None)?;
        let size = [picture.height, picture.width];
        let answers = applied.predict([size[0], size[1], 3], &picture.pixels)?;
        let found = answers.boxes().first().map_or(&[][..], |found| found);
        let mut listed = Vec::new();
        let mut counts = vec![0usize; classes.names.len()];
        for one in found {
            let name = classes.names.get(one.class as usize).map_or("?", String::as_str);
            let [left, right] = [0, 2].map(|i| one.corners[i] * size[1] as f32);
            let [top, bottom] = [1, 3].map(|i| one.corners[i] * size[0] as f32);
            listed.push(json!({
                "class": one.class, "name": name, "score": one.score, "left": left, "top": top, "right": right,
                "bottom": bottom,
            }));
            let place = format!("{left:.1}\t{top:.1}\t{right:.1}\t{bottom:.1}");
            writeln!(table, "{}\t{name}\t{:.4}\t{place}", path.display(), one.score).ok();
            if let (true, Some(count)) = (one.score >= MIN_DRAWN_SCORE, counts.get_mut(one.class as usize)) {
                *count += 1;
            }
        }
        let name = path.file_stem().map_or_else(|| "image".into(), |stem| stem.to_string_lossy());
        let file = format!("{name}-boxes.png");
        let drawn = arguments.out.join(&file);
        let pixels = framed(&picture.pixels, size, found, colour);
        output::write_listed(&arguments.out, &file, &png(&drawn, &pixels, &picture, ExtendedColorType::Rgb8)?)?;
        let counted = classes.names.iter().zip(&counts).filter(|(_, count)| **count > 0);
        let words: Vec<String> = counted.map(|(name, count)| format!("{count} × {name}")).collect();
        let words = if words.is_empty() { "nothing likely".to_owned() } else { words.join(", ") };
        output::print(&format!("{}: {words}\n", drawn.display()))?;
        output::print_json(&json!({ "input": path, "boxes": listed, "image": drawn }))?;
    }
    output::write_listed(&arguments.out, TABLE, table.as_bytes())
}
