//! `gradscale train --times`: the table of a step's launches, and a training that is the same with it.

mod checkpoint;
mod command;

use command::{done, refused, saved};
use std::path::Path;

const SETTINGS: [&str; 9] = ["train", "--batch", "2", "--width", "2", "--threads", "1", "--iters", "14"];

fn weights(directory: &Path, name: &str) -> std::collections::BTreeMap<String, Vec<u8>> {
    checkpoint::content(&saved(&directory.join(name), 14))
}

#[test]
fn launches_of_a_step_in_80_columns() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let said = done(here, &[&SETTINGS[..], &["--out", "timed", "--times"]].concat());
    let table: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("launches of a step")).collect();
    assert!(table.len() > 30, "{said}");
    let end = table.iter().position(|line| line.starts_with("not in launches: ")).expect("what is left");
    assert!(table[..=end].iter().all(|line| line.chars().count() <= 80), "{said}");
    // The first convolution of two images of three channels, with two outputs: once in a step.
    let first = table.iter().find(|line| line.starts_with("conv forward 2x") && line.contains("x3 7x7x2 "));
    let columns: Vec<&str> = first.expect("the first convolution").split_whitespace().collect();
    assert_eq!((columns.len(), columns[4], columns[9]), (10, "1", "%"), "{columns:?}");
    let milliseconds = |line: &str, at: usize| -> f64 {
        line.split_whitespace().nth(at).and_then(|word| word.parse().ok()).expect("a time")
    };
    let row = |line: &&&str| line.ends_with('%');
    let rows: f64 = table[2..end - 2]
        .iter()
        .filter(row)
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            milliseconds(line, words.len() - 5)
        })
        .sum();
    let all = milliseconds(table[end - 2], 3);
    assert!(table[end - 2].starts_with("all launches") && (rows - all).abs() < 0.05 * all + 0.1, "{rows} of {all} ms");
    done(here, &[&SETTINGS[..], &["--out", "plain"]].concat());
    assert!(weights(here, "timed") == weights(here, "plain"), "weights of a training that was timed");
}

#[test]
fn too_few_steps_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = refused(directory.path(), &["train", "--batch", "2", "--width", "2", "--iters", "12", "--times"]);
    assert!(said.contains("--times: needs 13 steps, but 12 are left; raise --iters"), "{said}");
    assert!(!directory.path().join("train-1").exists(), "nothing was begun");
}
