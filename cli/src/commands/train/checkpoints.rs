//! Checkpoint files: the last two, written atomically.

use super::{Plan, history::History};
use crate::{
    Failure,
    device::Device,
    output,
    tasks::{Classes, TrainingRun},
};
use gradscale::distributed::Group;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const RETAINED_CHECKPOINTS: usize = 2;
const STEM: &str = "checkpoint-";

#[derive(Debug)]
pub struct Checkpoints {
    directory: PathBuf,
}

/// Returns the bytes of a checkpoint. All ranks must call it together; they get the same bytes except for settings of
/// one rank.
pub fn content(run: &dyn TrainingRun, plan: &Plan, history: &History) -> Result<Vec<u8>, Failure> {
    let json = |json: Result<String, serde_json::Error>| json.map_err(|error| Failure::at("checkpoint", error));
    let (plan, history) = (json(serde_json::to_string(plan))?, json(serde_json::to_string(history))?);
    run.save(&BTreeMap::from([("plan".to_owned(), plan), ("history".to_owned(), history)]))
}

/// Checkpoint that has been read and found intact.
#[derive(Debug)]
pub struct FoundCheckpoint {
    pub path: PathBuf,
    pub iteration: u64,
    pub bytes: Vec<u8>,
    metadata: BTreeMap<String, String>,
}

impl Checkpoints {
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Returns the path of the checkpoint after a step.
    pub fn path(&self, iteration: u64) -> PathBuf {
        self.directory.join(format!("{STEM}{iteration:06}.safetensors"))
    }

    /// Returns the paths of all checkpoints, by iteration.
    pub fn list(&self) -> Result<BTreeMap<u64, PathBuf>, Failure> {
        let numbered = self.entries()?.into_iter().filter_map(|path| {
            let number = path.file_name()?.to_str()?.strip_prefix(STEM)?.strip_suffix(".safetensors")?.parse().ok()?;
            Some((number, path))
        });
        Ok(numbered.collect())
    }

    fn entries(&self) -> Result<Vec<PathBuf>, Failure> {
        let entries = fs::read_dir(&self.directory).and_then(|entries| entries.map(|one| Ok(one?.path())).collect());
        entries.map_err(|error| Failure::file(&self.directory, error))
    }

    /// Returns the latest intact checkpoint, and the errors of later ones.
    pub fn newest(&self) -> Result<(FoundCheckpoint, Vec<(PathBuf, Failure)>), Failure> {
        let mut damaged = Vec::new();
        for (iteration, path) in self.list()?.into_iter().rev() {
            match FoundCheckpoint::read(&path) {
                Ok(found) => return Ok((FoundCheckpoint { iteration, ..found }, damaged)),
                Err(error) => damaged.push((path, error)),
            }
        }
        let none = "no checkpoint to resume from";
        Err(match damaged.into_iter().map(|(_, error)| error.to_string()).reduce(|all, one| format!("{all}; {one}")) {
            Some(errors) => Failure::file(&self.directory, format!("{none} is intact: {errors}")),
            None => Failure::file(&self.directory, none),
        })
    }

    /// Writes a checkpoint, and removes those before the last two.
    pub fn save(&self, content: &[u8], iteration: u64) -> Result<(), Failure> {
        output::write(&self.path(iteration), content)?;
        self.prune()
    }

    /// Deletes all but the last two checkpoints, and incomplete files of a killed process.
    pub fn prune(&self) -> Result<(), Failure> {
        let all = self.list()?;
        for path in self.entries()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // Earlier versions named them without the dot.
            if name.trim_start_matches('.').starts_with(STEM) && name.ends_with(output::TEMPORARY) {
                fs::remove_file(&path).map_err(|error| Failure::file(&path, error))?;
            }
        }
        for old in all.values().rev().skip(RETAINED_CHECKPOINTS) {
            fs::remove_file(old).map_err(|error| Failure::file(old, error))?;
        }
        Ok(())
    }
}

impl FoundCheckpoint {
    /// Reads a checkpoint file, with the settings of its training.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let bytes = fs::read(path).map_err(|error| Failure::file(path, error))?;
        Self::new(path, bytes)
    }

    /// Reads a checkpoint from the bytes of its file.
    pub fn new(path: &Path, bytes: Vec<u8>) -> Result<Self, Failure> {
        let metadata = gradscale::checkpoint_metadata(&bytes).map_err(|cause| Failure::file(path, cause))?;
        Ok(Self { path: path.to_owned(), iteration: 0, bytes, metadata })
    }

    /// Broadcasts the checkpoint of rank 0 to all ranks.
    pub fn shared(here: Option<&Self>, group: &Group) -> Result<Self, Failure> {
        let place = here.map(|here| (here.iteration, here.path.to_string_lossy().into_owned()));
        let json = |error: serde_json::Error| Failure::at("checkpoint", error);
        let place = group.broadcast_from_rank0(&serde_json::to_vec(&place).map_err(json)?)?;
        let place: Option<(u64, String)> = serde_json::from_slice(&place).map_err(json)?;
        let bytes = group.broadcast_from_rank0(here.map_or(&[], |here| &here.bytes))?;
        let (iteration, path) = place.unwrap_or_default();
        Ok(Self { iteration, ..Self::new(Path::new(&path), bytes)? })
    }

    fn words(&self, key: &str, otherwise: &str) -> Result<&str, Failure> {
        let words = self.metadata.get(key).ok_or_else(|| Failure::file(&self.path, otherwise))?;
        Ok(words)
    }

    /// Returns the names of the network's classes.
    pub fn classes(&self) -> Result<Classes, Failure> {
        let classes = self.words("classes", "has no classes; give a checkpoint of gradscale train")?;
        serde_json::from_str(classes).map_err(|error| Failure::file(&self.path, error))
    }

    /// Returns the plan of the training that wrote the checkpoint.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let plan = self.words("plan", "not a checkpoint of gradscale train")?;
        let mut plan: Plan = serde_json::from_str(plan).map_err(|error| Failure::file(&self.path, error))?;
        let chosen = &mut plan.setup.chosen;
        // Earlier versions wrote a classifier's network for every task.
        chosen.net = chosen.net.filter(|net| net.task() == chosen.task());
        Ok(plan)
    }

    /// Checks that this machine has the device of the checkpoint's training.
    pub fn check_device(&self) -> Result<(), Failure> {
        #[derive(serde::Deserialize)]
        struct On {
            device: String,
        }
        let plan = self.words("plan", "not a checkpoint of gradscale train")?;
        let On { device } = serde_json::from_str(plan).map_err(|error| Failure::file(&self.path, error))?;
        let known = device.parse::<Device>();
        let trained = format!("trained on --device {device}");
        known.map(|_| ()).map_err(|cause| {
            Failure::file(&self.path, format!("{trained}: {cause}")).hint("choose another with --device")
        })
    }

    /// Returns the losses of the steps before the checkpoint; empty if an earlier version wrote it.
    pub fn history(&self) -> Result<History, Failure> {
        let history = self.metadata.get("history").map(|text| serde_json::from_str(text)).transpose();
        Ok(history.map_err(|error| Failure::file(&self.path, error))?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradscale::{Cpu, Method, Parameters, Trainer, nn::Linear, optim::Sgd};

    fn checkpoint(iteration: u64) -> Vec<u8> {
        let mut parameters = Parameters::seeded(iteration);
        Linear::new(&mut parameters.at("net"), 2, 3);
        let device = Cpu::new(1).expect("a thread");
        let trainer = Trainer::new(device, parameters, Sgd::new(0.1), Method::mixed()).expect("a trainer");
        trainer.save(&BTreeMap::from([("position".to_owned(), iteration.to_string())])).expect("a checkpoint")
    }

    #[test]
    fn the_last_two_are_kept_and_nothing_half_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let names = ["checkpoint-000001.safetensors", "checkpoint-000002.safetensors", "checkpoint-000010.safetensors"];
        let others =
            ["checkpoint-000011.part", ".checkpoint-000012.safetensors.part", "log.jsonl", "checkpoint-x.safetensors"];
        for name in names.iter().chain(&others) {
            fs::write(directory.path().join(name), b"").expect("a file");
        }
        Checkpoints::new(directory.path()).prune().expect("a directory");
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).expect("a directory").map(|one| one.expect("one").file_name()).collect();
        left.sort();
        assert_eq!(left, [names[1], names[2], "checkpoint-x.safetensors", "log.jsonl"]);
    }

    #[test]
    fn a_device_that_this_program_has_not_is_named() {
        let path = Path::new("checkpoint-000001.safetensors");
        let trained = |device: &str| {
            let mut parameters = Parameters::seeded(0);
            Linear::new(&mut parameters.at("net"), 1, 1);
            let cpu = Cpu::new(1).expect("a thread");
            let trainer = Trainer::new(cpu, parameters, Sgd::new(0.1), Method::mixed()).expect("a trainer");
            let plan = format!("{{\"device\":\"{device}\"}}");
            let bytes = trainer.save(&BTreeMap::from([("plan".to_owned(), plan)])).expect("a checkpoint");
            FoundCheckpoint::new(path, bytes).expect("a checkpoint").check_device()
        };
        assert!(trained("cpu").is_ok());
        let error = trained("tpu:1").expect_err("no such device").to_string();
        assert!(error.contains("trained on --device tpu:1: ") && error.ends_with("choose another with --device"));
    }

    /// Damages the newest checkpoint at every byte and cuts it to every length.
    #[test]
    fn the_intact_one_before_a_damaged_one_is_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let checkpoints = Checkpoints::new(directory.path());
        let path = |iteration: u64| directory.path().join(format!("checkpoint-{iteration:06}.safetensors"));
        let good = checkpoint(20);
        fs::write(path(10), checkpoint(10)).expect("a file");
        fs::write(path(20), &good).expect("a file");
        let (found, damaged) = checkpoints.newest().expect("a checkpoint");
        assert!((found.iteration, damaged.len()) == (20, 0) && found.bytes == good);
        let flipped = (0..good.len()).map(|i| {
            let mut bytes = good.clone();
            bytes[i] ^= 1 << (i % 8);
            bytes
        });
        let cut = (0..good.len()).map(|end| good[..end].to_vec());
        for bytes in flipped.chain(cut) {
            fs::write(path(20), bytes).expect("a file");
            let (found, damaged) = checkpoints.newest().expect("the one before");
            assert_eq!((found.iteration, &found.path), (10, &path(10)));
            let [(named, error)] = &damaged[..] else { panic!("{damaged:?}") };
            assert_eq!(named, &path(20));
            assert!(error.to_string().contains("checkpoint-000020.safetensors: "), "{error}");
        }
        fs::write(path(10), b"").expect("a file");
        let error = checkpoints.newest().expect_err("none").to_string();
        assert!(error.contains("is intact") && error.contains("000010") && error.contains("000020"), "{error}");
    }
}
