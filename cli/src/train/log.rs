//! The log: one JSON object a line.

use crate::{Failure, output, task::segnet::Metrics};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// One step.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub iteration: u64,
    pub loss: f32,
    pub seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<Metrics>,
}

/// What a line must have.
#[derive(Deserialize)]
struct Numbered {
    iteration: u64,
}

#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// The log of a training that goes on after step `iteration`: what came after it, or was cut off, is left out.
    pub fn open(path: &Path, iteration: u64) -> Result<Self, Failure> {
        let error = |error| Failure::file(path, error);
        if path.exists() {
            let text = fs::read(path).map_err(error)?;
            let mut kept = Vec::new();
            for line in text.split_inclusive(|&byte| byte == b'\n') {
                let numbered: Option<Numbered> = serde_json::from_slice(line).ok();
                if line.ends_with(b"\n") && numbered.is_some_and(|line| line.iteration <= iteration) {
                    kept.extend_from_slice(line);
                }
            }
            output::write(path, &kept)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(error)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub fn push(&mut self, entry: &Entry) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(entry).map_err(|error| Failure::file(&self.path, error))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|error| Failure::file(&self.path, error))
    }

    pub fn sync(&self) -> Result<(), Failure> {
        self.file.sync_data().map_err(|error| Failure::file(&self.path, error))
    }
}
