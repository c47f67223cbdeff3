//! The program, as people call it in a directory.

#![allow(dead_code, reason = "not all programs that share this file need all of it")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Returns standard error without the lines of progress, which a slow machine prints every few seconds.
pub fn without_progress(error: &[u8]) -> String {
    let error = String::from_utf8_lossy(error);
    error.lines().filter(|line| !line.starts_with("progress: ")).map(|line| format!("{line}\n")).collect()
}

/// Exit code, standard output, standard error without progress.
pub fn gradscale(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gradscale"));
    let output = command.args(arguments).current_dir(directory).output().expect("the program starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), without_progress(&output.stderr))
}

/// Runs the program successfully, and returns its standard output.
pub fn done(directory: &Path, arguments: &[&str]) -> String {
    let (code, out, error) = gradscale(directory, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {error}");
    out
}

/// Runs the program with invalid input, and returns its only line of error message.
pub fn refused(directory: &Path, arguments: &[&str]) -> String {
    let (code, _, error) = gradscale(directory, arguments);
    assert_eq!((code, error.lines().count()), (Some(2), 1), "{arguments:?}: {error}");
    error.trim().to_owned()
}

/// The table of a comparison as Markdown: the terminal's is cut to its width.
pub fn table(directory: &Path, out: &str) -> String {
    fs::read_to_string(directory.join(out).join("table.md")).expect("a table")
}

/// The log of a training, a value for each step.
pub fn log(directory: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(directory.join("log.jsonl")).expect("a log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns the log entry of the last step.
pub fn last(directory: &Path) -> serde_json::Value {
    log(directory).pop().expect("a line")
}

/// A checkpoint.
pub fn saved(directory: &Path, iteration: u64) -> PathBuf {
    directory.join(format!("checkpoint-{iteration:06}.safetensors"))
}
