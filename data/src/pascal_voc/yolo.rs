//! Label files of YOLO: a line for each object with the number of its class and the box as shares of the image.

use super::annotation::{Annotation, Bounds, Object, ObjectPosition};
use crate::{Cause, DataError, encoding::read_text, files::visible, lists::class_names};
use std::path::{Path, PathBuf};

/// Files with a name in each line.
const NAME_LISTS: [&str; 2] = ["classes.txt", "obj.names"];

/// Reads a label file: lines of a class number and a box (centre, width, height) or a polygon.
///
/// # Errors
/// A file that cannot be read, a line of another form, a class without a name if there are names.
pub(super) fn read(path: &Path, names: &[String]) -> Result<Annotation, DataError> {
    let mut objects = Vec::new();
    for (i, line) in read_text(path)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |reason: String| Cause::Table { line: i + 1, reason }.at(path);
        let mut words = line.split_whitespace();
        let number = words.next().and_then(|word| word.parse::<usize>().ok());
        let number = number.ok_or_else(|| wrong("does not begin with the number of a class".into()))?;
        let class = match names.get(number) {
            Some(name) => name.clone(),
            None if names.is_empty() => number.to_string(),
            None => return Err(wrong(format!("class {number}, but only {} classes have names", names.len()))),
        };
        let values: Result<Vec<f32>, _> = words.map(str::parse).collect();
        let values = values.ok().filter(|values| values.iter().all(|value| value.is_finite()));
        let corners = match values.as_deref() {
            Some(&[x, y, width, height]) => [x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0],
            Some(points) if points.len() >= 6 && points.len() % 2 == 0 => outline(points),
            Some(_) | None => {
                return Err(wrong("expected the centre, width and height of a box as shares of the image".into()));
            }
        };
        let place = ObjectPosition::Line(u32::try_from(i + 1).unwrap_or(u32::MAX));
        objects.push(Object { class, difficult: false, bounds: Bounds::Normalized(corners), place });
    }
    Ok(Annotation { size: None, objects })
}

/// Returns the box around a polygon of points x, y.
fn outline(points: &[f32]) -> [f32; 4] {
    points
        .as_chunks::<2>()
        .0
        .iter()
        .fold([f32::MAX, f32::MAX, f32::MIN, f32::MIN], |[left, top, right, bottom], [x, y]| {
            [left.min(*x), top.min(*y), right.max(*x), bottom.max(*y)]
        })
}

/// Reads the names of the classes by their numbers from `data.yaml` or another YAML file, or from a list of names, in
/// one of these folders. Returns them with their file.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn find_names(folders: &[PathBuf]) -> Result<Option<(PathBuf, Vec<String>)>, DataError> {
    for folder in folders {
        let is_yaml = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        for path in visible(folder)?.into_iter().filter(is_yaml) {
            if let Some(names) = yaml_names(&read_text(&path)?) {
                return Ok(Some((path, names)));
            }
        }
        for path in NAME_LISTS.map(|name| folder.join(name)) {
            if let Some(names) = class_names(&path)? {
                return Ok(Some((path, names)));
            }
        }
    }
    Ok(None)
}

/// Returns the names in a YAML file, in the three forms that YOLO's tools write: `[a, b]`, lines `- a`, and lines `0: a`.
fn yaml_names(text: &str) -> Option<Vec<String>> {
    let plain = |line: &'_ str| line.split(" #").next().unwrap_or(line).to_owned();
    let lines: Vec<String> = text.lines().filter(|line| !line.trim_start().starts_with('#')).map(plain).collect();
    let mut lines = lines.iter().map(String::as_str);
    let head = lines.find_map(|line| line.strip_prefix("names:"))?.trim();
    if let Some(begin) = head.strip_prefix(['[', '{']) {
        let rest: String = std::iter::once(begin).chain(lines).collect::<Vec<_>>().join(" ");
        let inside = rest.split([']', '}']).next()?;
        return numbered(inside.split(',').map(str::trim).filter(|name| !name.is_empty()));
    }
    let inside = lines.skip_while(|line| line.trim().is_empty());
    let inside = inside.take_while(|line| line.starts_with([' ', '\t', '-']) && !line.trim().is_empty());
    numbered(inside.map(|line| line.trim().trim_start_matches('-').trim()))
}

/// Returns names in order, without their numbers and quotes; `None` if the numbers are not those of the order.
fn numbered<'a>(names: impl Iterator<Item = &'a str>) -> Option<Vec<String>> {
    let name = |(i, text): (usize, &str)| {
        let number = text.split_once(':').and_then(|(number, name)| Some((number.trim().parse::<usize>().ok()?, name)));
        let text = match number {
            Some((number, name)) if number == i => name,
            Some(_) => return None,
            None => text,
        };
        Some(text.trim().trim_matches(['"', '\'']).to_owned())
    };
    let names: Option<Vec<String>> = names.enumerate().map(name).collect();
    names.filter(|names| !names.is_empty())
}

#[cfg(test)]
mod tests {
    use super::yaml_names;

    #[test]
    fn names_in_yaml() {
        for text in [
            "train: a\nnc: 2\nnames: ['cat', dog] # two\n",
            "names:\n  0: cat\n  1: dog\nnc: 2\n",
            "names:\n- cat\n- \"dog\"\nroboflow:\n  license: x\n",
            "names: [cat,\n  dog]\n",
            "names: {0: cat, 1: dog}\n",
            "names:\n\n  - cat\n  - dog",
            "names:\n# animals\n- cat\n  # the last one\n- dog # barks\nnc: 2\n",
            "names: [cat,\n  # the last one\n  dog]\n",
        ] {
            assert_eq!(yaml_names(text).expect(text), ["cat", "dog"], "{text}");
        }
        for text in ["nc: 2\n", "names:\nnc: 2\n", "names:\n  1: cat\n  2: dog\n"] {
            assert_eq!(yaml_names(text), None, "{text}");
        }
    }
}
