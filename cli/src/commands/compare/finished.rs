//! `runs.jsonl`: the finished runs of a comparison, so that it can be resumed. The file is deleted when all are done.
//!
//! The first line has the command line, each other line one run of any part. JSON has no NaN and ∞, so losses are also
//! stored by their bits.

use crate::{Failure, machine::Origin, output, record::Record, tasks::Predictions};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::HashMap,
    env,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

/// Name of the file of finished runs.
pub const NAME: &str = "runs.jsonl";

/// First line of the file: how the comparison was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beginning {
    /// Commit of the program, because another one may compute other bits.
    pub commit: String,
    /// Directory in which the command was given, for relative paths of data.
    pub directory: PathBuf,
    /// The command line without the name of the program; a `--config` file is expanded.
    pub arguments: Vec<String>,
}

impl Beginning {
    /// Returns the beginning of a comparison that this process was started for.
    ///
    /// # Errors
    /// A current directory that is gone.
    pub fn here(arguments: &[OsString]) -> Result<Self, Failure> {
        let directory = env::current_dir().map_err(|error| Failure::at("current directory", error))?;
        let arguments = arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
        Ok(Self { commit: Origin::here().commit.to_owned(), directory, arguments })
    }
}

/// Run by its part of the comparison, method and seed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Number of the part, from 0.
    pub part: usize,
    pub method: String,
    pub seed: u64,
}

/// Line of a finished run.
#[derive(Serialize, Deserialize)]
struct Line<R> {
    #[serde(flatten)]
    key: Key,
    run: R,
}

/// Result of a run that can be stored as JSON and restored without a difference.
pub trait Stored: Sized {
    /// Form in which the result is stored.
    type Form: Serialize + DeserializeOwned;

    /// Returns the form of the result.
    fn store(&self) -> Self::Form;

    /// Returns the result of a form.
    fn restore(form: Self::Form) -> Self;
}

/// Record of a run as the file stores it.
#[derive(Serialize, Deserialize)]
pub struct StoredRecord {
    record: Record,
    /// Bits of each loss, since JSON has neither NaN nor ∞.
    loss_bits: Vec<u32>,
    /// Predictions for the page, which results for programs do not have.
    samples: Predictions,
}

impl Stored for Record {
    type Form = StoredRecord;

    fn store(&self) -> StoredRecord {
        let loss_bits = self.loss.iter().map(|loss| loss.to_bits()).collect();
        StoredRecord { record: self.clone(), loss_bits, samples: self.samples.clone() }
    }

    fn restore(StoredRecord { record, loss_bits, samples }: StoredRecord) -> Self {
        let loss: Vec<f32> = loss_bits.into_iter().map(f32::from_bits).collect();
        let record = Self { loss, samples, ..record };
        let final_loss = record.metrics.as_ref().and_then(|_| record.mean_loss());
        Self { final_loss, ..record }
    }
}

/// Checks that no comparison was interrupted in a directory.
///
/// # Errors
/// One that was.
pub fn check_absent(directory: &Path) -> Result<(), Failure> {
    if !directory.join(NAME).exists() {
        return Ok(());
    }
    let resume = super::resume_command(directory);
    let cause = format!("a comparison was interrupted here; resume it with {resume}, or choose another --out");
    Err(Failure::file(directory, cause))
}

/// Finished runs of a comparison, and the file that has them.
#[derive(Debug)]
pub struct Finished {
    path: PathBuf,
    file: File,
    /// Lines of runs that an earlier process finished.
    lines: HashMap<Key, String>,
}

impl Finished {
    /// Creates the file of a new comparison.
    ///
    /// # Errors
    /// A disk that cannot be written to.
    pub fn create(directory: &Path, beginning: &Beginning) -> Result<Self, Failure> {
        let path = directory.join(NAME);
        let mut line = serde_json::to_vec(beginning).map_err(|error| Failure::file(&path, error))?;
        line.push(b'\n');
        output::write(&path, &line)?;
        Self::open(path, HashMap::new())
    }

    /// Reads the file of an interrupted comparison. A last line that was cut off is dropped, because its run starts again.
    ///
    /// # Errors
    /// A file that is missing or is none of a comparison.
    pub fn resume(directory: &Path) -> Result<(Self, Beginning), Failure> {
        let path = directory.join(NAME);
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::file(directory, "no interrupted comparison to resume"),
            _ => Failure::file(&path, error),
        })?;
        let mut whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let first = whole.next().unwrap_or("");
        let beginning = serde_json::from_str(first)
            .map_err(|error| Failure::file(&path, format!("not the file of a comparison: {error}")))?;
        let (mut lines, mut kept) = (HashMap::new(), first.to_owned());
        for line in whole {
            match serde_json::from_str::<Line<serde::de::IgnoredAny>>(line) {
                Ok(Line { key, .. }) => {
                    kept.push_str(line);
                    lines.insert(key, line.to_owned());
                }
                Err(error) => output::warn(&Failure::file(&path, format!("a damaged run starts again: {error}"))),
            }
        }
        if kept != text {
            output::write(&path, kept.as_bytes())?;
        }
        Ok((Self::open(path, lines)?, beginning))
    }

    fn open(path: PathBuf, lines: HashMap<Key, String>) -> Result<Self, Failure> {
        let file = OpenOptions::new().append(true).open(&path).map_err(|error| Failure::file(&path, error))?;
        Ok(Self { path, file, lines })
    }

    /// Returns the result of a run that was finished before; `None` if it has to run, also because its line cannot be read.
    pub fn result<R: Stored>(&self, key: &Key) -> Option<R> {
        let read = serde_json::from_str::<Line<R::Form>>(self.lines.get(key)?);
        let read = read.map_err(|error| {
            let Key { method, seed, .. } = key;
            output::warn(&Failure::file(&self.path, format!("{method}, seed {seed} starts again: {error}")));
        });
        read.ok().map(|line| R::restore(line.run))
    }

    /// Appends the result of a finished run.
    ///
    /// # Errors
    /// A disk that cannot be written to.
    pub fn push<R: Stored>(&mut self, key: Key, result: &R) -> Result<(), Failure> {
        let line = serde_json::to_vec(&Line { key, run: result.store() });
        let mut line = line.map_err(|error| Failure::file(&self.path, error))?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|error| Failure::file(&self.path, error))
    }

    /// Deletes the file, since the results are complete.
    ///
    /// # Errors
    /// A directory that cannot be written to.
    pub fn delete(self) -> Result<(), Failure> {
        fs::remove_file(&self.path).map_err(|error| Failure::file(&self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks that a run comes back from its line with all bits, NaN and ∞ too, and that half a line is dropped.
    #[test]
    fn runs_come_back_as_they_were() {
        let directory = tempfile::tempdir().expect("a directory");
        let record = json!({
            "method": "gs", "seed": 3, "iterations": 4, "skipped_steps": 0, "seconds": 0.1, "activation_bytes": 0,
            "metrics": {"top_1": null}, "loss": [], "skipped_at": [], "scores": [], "sites": [], "samples": [1, 2],
        });
        let mut record: Record = serde_json::from_value(record).expect("a record");
        record.loss = vec![0.1, f32::NAN, f32::INFINITY, f32::from_bits(0xFFC0_0001)];
        record.final_loss = record.mean_loss();
        let beginning = Beginning { commit: "a".into(), directory: "/b".into(), arguments: vec!["compare".into()] };
        let key = |seed| Key { part: 1, method: "gs".into(), seed };
        let mut finished = Finished::create(directory.path(), &beginning).expect("a file");
        finished.push(key(3), &record).expect("a line");
        finished.file.write_all(b"{\"part\":1,\"met").expect("half a line");
        let (again, begun) = Finished::resume(directory.path()).expect("a file");
        assert_eq!((begun.commit.as_str(), &begun.arguments), ("a", &beginning.arguments));
        let found: Record = again.result(&key(3)).expect("a run");
        let bits = |record: &Record| record.loss.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(
            (bits(&found), &found.samples, found.final_loss),
            (bits(&record), &record.samples, record.final_loss)
        );
        assert!(found.metrics.is_some() && again.result::<Record>(&key(4)).is_none());
        let text = fs::read_to_string(directory.path().join(NAME)).expect("a file");
        assert!(text.lines().count() == 2 && text.ends_with('\n'), "{text}");
        assert!(check_absent(directory.path()).is_err());
        again.delete().expect("a file");
        assert!(check_absent(directory.path()).is_ok());
    }
}
