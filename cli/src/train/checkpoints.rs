//! Checkpoints on disk: the last two, each whole or not there.

use super::Plan;
use crate::{
    Failure, output,
    task::{Classes, Run},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const KEPT: usize = 2;

#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
}

/// A checkpoint that has been read.
#[derive(Debug)]
pub struct Found {
    pub path: PathBuf,
    pub iteration: u64,
    pub bytes: Vec<u8>,
}

impl Checkpoints {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Paths by iteration, in order.
    fn all(&self) -> Result<BTreeMap<u64, PathBuf>, Failure> {
        let entries = fs::read_dir(&self.directory).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| Failure::file(&self.directory, error))?;
        let numbered = entries.into_iter().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = name.strip_prefix("checkpoint-")?.strip_suffix(".safetensors")?;
            Some((number.parse().ok()?, entry.path()))
        });
        Ok(numbered.collect())
    }

    /// The latest.
    pub fn last(&self) -> Result<Found, Failure> {
        let (iteration, path) =
            self.all()?.pop_last().ok_or_else(|| Failure::file(&self.directory, "no checkpoint to resume from"))?;
        let bytes = fs::read(&path).map_err(|error| Failure::file(&path, error))?;
        Ok(Found { path, iteration, bytes })
    }

    /// Writes one, and forgets those before the last two.
    pub fn save(&self, run: &dyn Run, plan: &Plan, iteration: u64) -> Result<(), Failure> {
        let path = self.directory.join(format!("checkpoint-{iteration:06}.safetensors"));
        let plan = serde_json::to_string(plan).map_err(|error| Failure::file(&path, error))?;
        let bytes = run.save(&BTreeMap::from([("plan".to_owned(), plan)]))?;
        output::write(&path, &bytes)?;
        self.prune()
    }

    /// Forgets those before the last two.
    pub fn prune(&self) -> Result<(), Failure> {
        let all = self.all()?;
        for old in all.values().rev().skip(KEPT) {
            fs::remove_file(old).map_err(|error| Failure::file(old, error))?;
        }
        Ok(())
    }
}

impl Found {
    /// One file, wherever it lies.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(|error| Failure::file(path, error))?;
        Ok(Self { path: path.to_owned(), iteration: 0, bytes })
    }

    /// The classes that the network tells apart.
    pub fn classes(&self) -> Result<Classes, Failure> {
        let metadata = gradscale::checkpoint_metadata(&self.bytes).map_err(|cause| Failure::file(&self.path, cause))?;
        let classes = metadata.get("classes").ok_or_else(|| Failure::file(&self.path, "does not name its classes"))?;
        serde_json::from_str(classes).map_err(|error| Failure::file(&self.path, error))
    }

    /// The settings that the training was begun with.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let metadata = gradscale::checkpoint_metadata(&self.bytes).map_err(|cause| Failure::file(&self.path, cause))?;
        let plan = metadata.get("plan").ok_or_else(|| Failure::file(&self.path, "not written by gradscale train"))?;
        serde_json::from_str(plan).map_err(|error| Failure::file(&self.path, error))
    }
}
