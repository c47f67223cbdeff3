//! The log: one JSON object a line.

use crate::{Failure, compare::record::Entry, output};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// The log of a training that goes on after step `iteration`, and the steps that it has: what came after that
    /// step, or was cut off, is left out.
    pub fn open(path: &Path, iteration: u64) -> Result<(Self, Vec<Entry>), Failure> {
        let error = |error| Failure::file(path, error);
        let mut entries = Vec::new();
        if path.exists() {
            let text = fs::read(path).map_err(error)?;
            let mut kept = Vec::new();
            for line in text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n")) {
                let entry: Option<Entry> = serde_json::from_slice(line).ok();
                if let Some(entry) = entry.filter(|entry| entry.iteration <= iteration) {
                    kept.extend_from_slice(line);
                    entries.push(entry);
                }
            }
            output::write(path, &kept)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(error)?;
        Ok((Self { path: path.to_owned(), file }, entries))
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
