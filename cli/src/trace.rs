//! Recorded rows: what every cast site saw in every step, one JSON object a line.

use crate::Failure;
use gradscale::{
    SiteReport,
    core::stats::{Convention, Detail, Stats},
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

/// One step of a training.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// From 1.
    pub iteration: u64,
    /// Whether the training skipped it.
    pub skipped: bool,
    /// Sites in the order of the backward pass.
    pub sites: Vec<Seen>,
}

/// What one site saw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Layer and operator.
    pub name: String,
    /// Exponent at which the values were seen.
    pub exponent: i32,
    /// Exponent for the next step.
    pub next: i32,
    /// The row as devices write it; zeros at the end are left out.
    pub words: Vec<u32>,
}

impl Seen {
    /// The row.
    ///
    /// # Errors
    /// Words that are none.
    pub fn row(&self) -> Result<Stats, String> {
        let mut words = [0; gradscale::core::stats::WORDS];
        let start = words.get_mut(..self.words.len()).ok_or("too many words")?;
        start.copy_from_slice(&self.words);
        Stats::from_words(&words, Convention::FP16, self.exponent).map_err(|error| error.to_string())
    }
}

/// A trace being written.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Writer {
    /// A new file.
    ///
    /// # Errors
    /// A file that is there already, or cannot be made.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create_new(path).map_err(|error| Failure::file(path, error))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }

    /// Appends what the last step saw.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn push(&mut self, iteration: u64, skipped: bool, sites: &[SiteReport<'_>]) -> Result<(), Failure> {
        let seen = sites.iter().map(|site| {
            let words = site.row.to_words();
            let end = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
            let (name, exponent) = (site.name.to_owned(), site.row.exponent());
            Seen { name, exponent, next: site.alpha, words: words[..end].to_vec() }
        });
        let step = Step { iteration, skipped, sites: seen.collect() };
        let mut line = serde_json::to_vec(&step).map_err(|error| Failure::file(&self.path, error))?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.flush());
        written.map_err(|error| Failure::file(&self.path, error))
    }
}

/// All steps of a trace. A last line that was cut off is left out.
///
/// # Errors
/// A file that cannot be read, is no trace, or whose rows have no histograms.
pub fn read(path: &Path) -> Result<Vec<Step>, Failure> {
    let file = File::open(path).map_err(|error| Failure::file(path, error))?;
    let mut steps = Vec::new();
    let mut lines = BufReader::new(file).lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line = line.map_err(|error| Failure::file(path, error))?;
        let step: Step = match serde_json::from_str(&line) {
            Ok(step) => step,
            Err(_) if lines.peek().is_none() && number > 0 => break,
            Err(error) => return Err(Failure::file(path, format!("line {}: {error}", number + 1))),
        };
        for seen in &step.sites {
            let wrong = |cause: String| Failure::file(path, format!("line {}, {}: {cause}", number + 1, seen.name));
            if seen.row().map_err(wrong)?.detail() < Detail::Full {
                return Err(wrong("a row without a histogram".to_owned()));
            }
        }
        steps.push(step);
    }
    if steps.is_empty() { Err(Failure::file(path, "no steps")) } else { Ok(steps) }
}
