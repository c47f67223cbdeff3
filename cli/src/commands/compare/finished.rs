//! `runs.jsonl`: the finished runs of a comparison, so that it can be resumed. The file is deleted when all are done.
//!
//! The first line has the command line, each other line one run of any part. JSON has no NaN and ∞, so losses are also
//! stored by their bits.

use crate::{Failure, data::Fingerprint, machine::Origin, output, record::Record, tasks::Predictions};
use serde::{Deserialize, Serialize, de::IgnoredAny};
use std::{
    collections::HashMap,
    env,
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    mem,
    path::{Path, PathBuf},
};

/// Name of the file of finished runs.
pub const NAME: &str = "runs.jsonl";

/// First line of the file: how the comparison was started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beginning {
    /// Commit of the program, because another one may compute other bits.
    pub commit: String,
    /// Machine of the first process, because another one has other times; `None` in earlier files.
    #[serde(default)]
    pub machine: Option<String>,
    /// Files of the data of each part, since runs on other data cannot be compared; empty in earlier files.
    #[serde(default)]
    pub data_files: Vec<Option<Fingerprint>>,
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
        let Origin { commit, machine, .. } = Origin::here();
        Ok(Self { commit: commit.to_owned(), machine: Some(machine), data_files: Vec::new(), directory, arguments })
    }

    /// Returns the warnings of a resume by this program on this machine.
    pub fn differences(&self, origin: &Origin) -> Vec<String> {
        let mut all = Vec::new();
        if self.commit != origin.commit {
            all.push(
                "begun by another version of gradscale, so that bits of its runs may differ from those that follow"
                    .to_owned(),
            );
        }
        if let Some(machine) = self.machine.as_ref().filter(|machine| **machine != origin.machine) {
            all.push(format!("begun on another machine ({machine}), so that times of its runs cannot be compared"));
        }
        all
    }

    /// Checks that the data of a resume have the files of the comparison's start. `parts` has the path and the files of
    /// each part.
    ///
    /// # Errors
    /// Files that were added, removed, renamed or changed in size.
    pub fn check_data<'a>(
        &self, parts: impl IntoIterator<Item = (Option<&'a Path>, Option<Fingerprint>)>,
    ) -> Result<(), Failure> {
        for (begun, (path, found)) in self.data_files.iter().zip(parts) {
            if let (Some(begun), Some(found), Some(path)) = (begun, found, path)
                && let Some(change) = begun.describe_change(&found)
            {
                let cause = format!("changed since this comparison began ({change}); restore the files");
                return Err(Failure::file(path, cause).hint("or start a new comparison"));
            }
        }
        Ok(())
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

/// Record of a run as the file stores it, so that it can be restored without a difference.
#[derive(Serialize, Deserialize)]
struct StoredRecord {
    /// The record without its losses.
    record: Record,
    /// Bits of each loss, since JSON has neither NaN nor ∞.
    loss_bits: Vec<u32>,
    /// Predictions for the page, which results for programs do not have.
    samples: Predictions,
}

impl StoredRecord {
    fn new(record: &Record) -> Self {
        let mut record = record.clone();
        let loss_bits = mem::take(&mut record.loss).into_iter().map(f32::to_bits).collect();
        Self { loss_bits, samples: record.samples.clone(), record }
    }

    fn restore(self) -> Record {
        let Self { record, loss_bits, samples } = self;
        let record = Record { loss: loss_bits.into_iter().map(f32::from_bits).collect(), samples, ..record };
        let final_loss = record.metrics.as_ref().and_then(|_| record.mean_loss());
        Record { final_loss, ..record }
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
    lines: HashMap<Key, Vec<u8>>,
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
        // Bytes, because a process that was killed may leave half a character.
        let bytes = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Failure::file(directory, "no interrupted comparison to resume"),
            _ => Failure::file(&path, error),
        })?;
        let mut whole = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let first = whole.next().unwrap_or_default();
        let beginning = serde_json::from_slice(first)
            .map_err(|error| Failure::file(&path, format!("not the file of a comparison: {error}")))?;
        let (mut lines, mut kept) = (HashMap::new(), first.to_owned());
        for line in whole {
            match serde_json::from_slice::<Line<IgnoredAny>>(line) {
                Ok(Line { key, .. }) => {
                    kept.extend_from_slice(line);
                    lines.insert(key, line.to_owned());
                }
                Err(error) => output::warn(&Failure::file(&path, format!("a damaged run starts again: {error}"))),
            }
        }
        if kept != bytes {
            output::write(&path, &kept)?;
        }
        Ok((Self::open(path, lines)?, beginning))
    }

    fn open(path: PathBuf, lines: HashMap<Key, Vec<u8>>) -> Result<Self, Failure> {
        let file = OpenOptions::new().append(true).open(&path).map_err(|error| Failure::file(&path, error))?;
        Ok(Self { path, file, lines })
    }

    /// Returns the result of a run that was finished before; `None` if it has to run, also because its line cannot be read.
    pub fn result(&self, key: &Key) -> Option<Record> {
        let read = serde_json::from_slice::<Line<StoredRecord>>(self.lines.get(key)?);
        let read = read.map_err(|error| {
            let Key { method, seed, .. } = key;
            output::warn(&Failure::file(&self.path, format!("{method}, seed {seed} starts again: {error}")));
        });
        read.ok().map(|line| line.run.restore())
    }

    /// Appends the result of a finished run.
    ///
    /// # Errors
    /// A disk that cannot be written to.
    pub fn push(&mut self, key: Key, record: &Record) -> Result<(), Failure> {
        let line = serde_json::to_vec(&Line { key, run: StoredRecord::new(record) });
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
        let beginning = Beginning {
            commit: "a".into(),
            machine: None,
            data_files: Vec::new(),
            directory: "/b".into(),
            arguments: vec!["compare".into()],
        };
        let key = |seed| Key { part: 1, method: "gs".into(), seed };
        let mut finished = Finished::create(directory.path(), &beginning).expect("a file");
        finished.push(key(3), &record).expect("a line");
        // A line that ends within the two bytes of "é".
        finished.file.write_all(b"{\"part\":1,\"method\":\"g\xC3").expect("half a line");
        let (again, begun) = Finished::resume(directory.path()).expect("a file");
        assert_eq!((begun.commit.as_str(), &begun.arguments), ("a", &beginning.arguments));
        let found = again.result(&key(3)).expect("a run");
        let bits = |record: &Record| record.loss.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(
            (bits(&found), &found.samples, found.final_loss),
            (bits(&record), &record.samples, record.final_loss)
        );
        assert!(found.metrics.is_some() && again.result(&key(4)).is_none());
        let text = fs::read_to_string(directory.path().join(NAME)).expect("a file");
        assert!(text.lines().count() == 2 && text.ends_with('\n'), "{text}");
        assert!(check_absent(directory.path()).is_err());
        again.delete().expect("a file");
        assert!(check_absent(directory.path()).is_ok());
    }

    /// Checks what a resume refuses and what it warns about. Files of earlier versions know nothing of either.
    #[test]
    fn changed_data_and_machines() {
        let origin = Origin { version: "1", commit: "a", machine: "a machine".into() };
        let begun = |text: &str| serde_json::from_str::<Beginning>(text).expect("a beginning");
        let earlier = begun(r#"{"commit": "a", "directory": "/", "arguments": []}"#);
        assert!(earlier.differences(&origin).is_empty());
        let files = |checksum| Some(Fingerprint { files: 2, checksum });
        assert!(earlier.check_data([(Some(Path::new("d")), files(1))]).is_ok());
        let other = Beginning {
            commit: "b".into(),
            machine: Some("another".into()),
            data_files: vec![None, files(1)],
            ..earlier
        };
        let warnings = other.differences(&origin);
        assert!(warnings[0].starts_with("begun by another version") && warnings.len() == 2, "{warnings:?}");
        assert!(warnings[1].starts_with("begun on another machine (another), so that times"), "{warnings:?}");
        let check = |files| other.check_data([(None, None), (Some(Path::new("d")), files)]);
        assert!(check(files(1)).is_ok() && check(None).is_ok());
        assert_eq!(
            check(files(2)).expect_err("a change").to_string(),
            "d: changed since this comparison began (names, order or sizes of its 2 files); restore the files; or start \
             a new comparison"
        );
        assert!(check(Some(Fingerprint { files: 3, checksum: 1 })).is_err());
    }
}
