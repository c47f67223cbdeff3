//! Data sets on disk: layouts that are read, and corrupt and foreign input, which gets one line and never a panic.

mod boxes;
mod directories;
mod files;
mod fingerprints;
mod folders;
mod idx;
mod images;
mod layouts;
mod masks;
mod mutated;
mod numbers;
mod real;
#[cfg(feature = "speech")]
mod recordings;
mod validation;

use files::{packed, put, unpacked};
use gradscale_cli::data::{DataError, DataOptions, Segmentation};
use std::error::Error;
use tempfile::TempDir;

fn load(dir: &TempDir) -> Result<Segmentation, DataError> {
    Segmentation::load(dir.path(), &DataOptions::default())
}

fn refused<T>(result: Result<T, DataError>, file: &str, cause: &str) {
    let error = result.err().expect("an error");
    let line = error.to_string();
    let path = error.path().display().to_string().replace('\n', "\\n");
    assert!(line.starts_with(&format!("{path}: ")), "{line}");
    assert!(error.path().ends_with(file), "{file} is not in: {line}");
    assert!(line.contains(cause), "{cause:?} is not in: {line}");
    assert!(!line.chars().any(char::is_control), "{line:?}");
    assert!(error.source().is_some());
}

/// Loads the folders of image files after one file has been replaced.
fn unpacked_but(name: &str, bytes: &[u8]) -> Result<Segmentation, DataError> {
    let dir = unpacked();
    put(&dir, name, bytes);
    load(&dir)
}

/// Loads the IDX files after one has been replaced.
fn packed_but(name: &str, bytes: &[u8]) -> Result<Segmentation, DataError> {
    let dir = packed();
    put(&dir, name, bytes);
    load(&dir)
}
