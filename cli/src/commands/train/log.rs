//! The log: one JSON object a line.

use super::history::History;
use crate::{
    Failure, output,
    record::{LogEntry, event::Event},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Creates the log of a new training.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { path: path.to_owned(), file: file.map_err(|error| Failure::file(path, error))? })
    }

    /// Opens the log of a training that resumes after step `iteration`, and returns its steps until there. Later steps,
    /// and a last line that was cut off, are dropped, because those steps run again. Any other damage is reported: the
    /// file is set aside, and the steps in the checkpoint replace it.
    pub fn resume(path: &Path, iteration: u64, history: &History) -> Result<(Self, Vec<LogEntry>), Failure> {
        let text = match fs::read(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::file(path, error)),
        };
        let mut read = Read::new(text.as_deref().unwrap_or_default(), iteration);
        let found = read.lines.len();
        let wrong = read.compare(iteration, history);
        let mut mended = Vec::new();
        for (line, _) in read.lines.values() {
            mended.extend_from_slice(line);
        }
        if !wrong.is_empty() {
            let unknown =
                if wrong.iter().any(|step| history.step(*step).is_none()) { " where it has them" } else { "" };
            let mend = format!("losses of {} are taken from the checkpoint{unknown}", steps(&wrong));
            let cause = match &text {
                None => "not found".to_owned(),
                Some(_) => {
                    let aside = output::set_aside(path)?;
                    format!(
                        "only {found} of {iteration} steps can be read; the damaged file was renamed to {}",
                        aside.display()
                    )
                }
            };
            output::warn(&Failure::file(path, format!("{cause}; {mend}")));
        } else if read.damaged > 0 {
            let aside = output::set_aside(path)?;
            let cause = format!(
                "{} lines are not log lines and were dropped; the damaged file was renamed to {}",
                read.damaged,
                aside.display()
            );
            output::warn(&Failure::file(path, cause));
        }
        if text.is_none_or(|text| text != mended) {
            output::write(path, &mended)?;
        }
        Ok((Self::create(path)?, read.lines.into_values().map(|(_, entry)| entry).collect()))
    }

    pub fn push(&mut self, entry: &LogEntry) -> Result<(), Failure> {
        let line = line(entry).map_err(|error| Failure::file(&self.path, error))?;
        self.file.write_all(&line).map_err(|error| Failure::file(&self.path, error))
    }

    pub fn sync(&self) -> Result<(), Failure> {
        self.file.sync_data().map_err(|error| Failure::file(&self.path, error))
    }
}

fn line(entry: &LogEntry) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    Ok(line)
}

/// Part of a log file that could be read.
struct Read {
    /// Entries and lines of the steps until the checkpoint.
    lines: BTreeMap<u64, (Vec<u8>, LogEntry)>,
    /// Number of complete lines that are no steps or repeat one.
    damaged: usize,
}

impl Read {
    fn new(text: &[u8], iteration: u64) -> Self {
        let mut read = Self { lines: BTreeMap::new(), damaged: 0 };
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            match serde_json::from_slice::<LogEntry>(line) {
                Ok(entry) if entry.iteration > iteration => {}
                Ok(entry) if entry.iteration > 0 && !read.lines.contains_key(&entry.iteration) => {
                    let mut line = line.trim_ascii_end().to_vec();
                    line.push(b'\n');
                    read.lines.insert(entry.iteration, (line, entry));
                }
                // A process that is killed may leave half a line at the end.
                Err(_) if !line.ends_with(b"\n") => {}
                Ok(_) | Err(_) => read.damaged += 1,
            }
        }
        read
    }

    /// Replaces missing or differing steps by those of the checkpoint; returns their numbers.
    fn compare(&mut self, iteration: u64, history: &History) -> BTreeSet<u64> {
        let mut wrong = BTreeSet::new();
        for step in 1..=iteration {
            let known = history.step(step);
            // JSON has no number for NaN and ∞.
            let finite = |loss: f32| if loss.is_finite() { loss } else { f32::NAN };
            let bits = |loss: f32| finite(loss).to_bits();
            let logged = self.lines.get(&step).map(|(_, entry)| bits(entry.loss));
            if logged.is_some_and(|logged| known.is_none_or(|known| bits(known.loss) == logged)) {
                continue;
            }
            wrong.insert(step);
            let reason = "the log of this step was lost";
            let entry = LogEntry {
                iteration: step,
                loss: known.map_or(f32::NAN, |known| known.loss),
                losses: BTreeMap::new(),
                seconds: 0.0,
                skipped: known.is_some_and(|known| known.skipped).then(|| Event::from_sentence(reason)),
                repeated: Vec::new(),
                scores: None,
                validation: None,
                sites: Vec::new(),
                activations: Vec::new(),
                ranks: None,
            };
            // An entry of numbers and a text has a line.
            self.lines.insert(step, (line(&entry).unwrap_or_default(), entry));
        }
        wrong
    }
}

/// Formats step numbers as ranges, for example `steps 3, 7–9`.
fn steps(all: &BTreeSet<u64>) -> String {
    let mut ranges: Vec<[u64; 2]> = Vec::new();
    for &step in all {
        match ranges.last_mut() {
            Some([_, end]) if *end + 1 == step => *end = step,
            _ => ranges.push([step, step]),
        }
    }
    let range = |[start, end]: &[u64; 2]| if start == end { start.to_string() } else { format!("{start}–{end}") };
    const MAX_RANGES: usize = 8;
    let mut words: Vec<String> = ranges.iter().take(MAX_RANGES).map(range).collect();
    if ranges.len() > MAX_RANGES {
        words.push(format!("… ({} in all)", all.len()));
    }
    format!("{} {}", if all.len() == 1 { "step" } else { "steps" }, words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Recorder;

    const STEPS: u64 = 5;
    /// Losses of five steps, of which the third is skipped.
    const LOSSES: [f32; 5] = [2.5, 0.1, f32::NAN, 1.0 / 3.0, f32::INFINITY];

    /// Returns a log of five steps, and the history that a checkpoint stores of them.
    fn example(path: &Path) -> (Vec<u8>, History) {
        let mut recorder = Recorder::new("gs", 0, STEPS, &[]);
        let mut log = Log::create(path).expect("a log");
        for entry in entries() {
            log.push(&entry).expect("a line");
            recorder.restore(&entry);
        }
        log.sync().expect("a disk");
        (fs::read(path).expect("a log"), History::from_record(recorder.record()))
    }

    fn entries() -> Vec<LogEntry> {
        let entry = |(iteration, loss)| {
            let skipped = (iteration == 3).then(|| Event::from_sentence("skipped: somewhere"));
            LogEntry {
                iteration,
                loss,
                losses: BTreeMap::new(),
                seconds: 0.25,
                skipped,
                repeated: Vec::new(),
                scores: None,
                validation: None,
                sites: Vec::new(),
                activations: Vec::new(),
                ranks: None,
            }
        };
        (1..).zip(LOSSES).map(entry).collect()
    }

    fn bits(entries: &[LogEntry]) -> Vec<(u64, u32)> {
        // ∞ is NaN in JSON.
        let bits = |loss: f32| if loss.is_finite() { loss.to_bits() } else { f32::NAN.to_bits() };
        entries.iter().map(|entry| (entry.iteration, bits(entry.loss))).collect()
    }

    fn right() -> Vec<(u64, u32)> {
        bits(&entries())
    }

    fn resumed(path: &Path, history: &History) -> Vec<LogEntry> {
        let (_, entries) = Log::resume(path, STEPS, history).expect("a log");
        assert!(entries[2].skipped.is_some());
        let (_, again) = Log::resume(path, STEPS, history).expect("a log");
        assert_eq!(bits(&again), bits(&entries), "what was mended is whole");
        entries
    }

    #[test]
    fn a_log_is_mended_wherever_it_is_cut() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.jsonl");
        let (whole, history) = example(&path);
        assert_eq!(bits(&resumed(&path, &history)), right());
        assert_eq!(fs::read(&path).expect("a log"), whole, "a whole log stays as it is");
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).expect("a file");
            assert_eq!(bits(&resumed(&path, &history)), right(), "cut at {end}");
        }
        fs::remove_file(&path).expect("a file");
        assert_eq!(bits(&resumed(&path, &history)), right());
    }

    #[test]
    fn garbage_and_other_losses_are_mended_and_kept_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.jsonl");
        let (whole, history) = example(&path);
        let text = String::from_utf8(whole.clone()).expect("text");
        let mut aside = 0;
        for damaged in [
            text.replacen("0.1,", "0.2,", 1),
            text.replacen('{', "[", 1),
            text.replacen('\n', "\ngarbage\n", 2),
            text.replacen("\"iteration\":2", "\"iteration\":1", 1),
            format!("{text}{text}"),
        ] {
            fs::write(&path, &damaged).expect("a file");
            assert_eq!(bits(&resumed(&path, &history)), right(), "{damaged}");
            aside += 1;
            let kept = directory.path().join(format!("log.jsonl.damaged-{aside}"));
            assert_eq!(fs::read(kept).expect("the log as it was"), damaged.into_bytes());
        }
        // Steps after the checkpoint and half a line are the normal result of a kill, not damage.
        let later = text.lines().nth(1).expect("a line").replace("\"iteration\":2", "\"iteration\":6");
        fs::write(&path, format!("{text}{later}\n{}", &later[..9])).expect("a file");
        assert_eq!(bits(&resumed(&path, &history)), right());
        assert_eq!(fs::read(&path).expect("a log"), whole);
        assert!(!directory.path().join(format!("log.jsonl.damaged-{}", aside + 1)).exists());
    }

    /// Checks that with a checkpoint of an earlier version, which stores no losses, gaps stay gaps and later losses
    /// keep their places.
    #[test]
    fn what_nobody_knows_stays_unknown() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log.jsonl");
        let (whole, _) = example(&path);
        let first = whole.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
        fs::write(&path, &whole[first..]).expect("a file");
        let entries = resumed(&path, &History::default());
        assert!(entries[0].loss.is_nan() && bits(&entries)[1..] == right()[1..]);
    }

    #[test]
    fn ranges_of_steps() {
        let said = |all: &[u64]| steps(&all.iter().copied().collect());
        assert_eq!(said(&[3]), "step 3");
        assert_eq!(said(&[3, 7, 8, 9]), "steps 3, 7–9");
        assert!(said(&(0..40).map(|i| 2 * i).collect::<Vec<_>>()).ends_with("… (40 in all)"));
    }
}
