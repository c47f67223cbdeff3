//! Recorded rows: what every cast site saw in every step, one JSON object a line.

use crate::{
    Failure, output,
    rule::{TODAY, spelled},
};
use gradscale::{
    Attempt, Operands, SiteReport,
    core::{
        model::terms::Terms,
        solve::Operand,
        stats::{Convention, Detail, Stats, WORDS},
    },
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

/// One step of a training.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// From 1.
    pub iteration: u64,
    /// Whether the training skipped it.
    pub skipped: bool,
    /// Whether this is an attempt that overflowed: the same batch follows again, under the same number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// In the first line, what the training decided by. Older traces do not say: they were made without repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
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
    /// What the paper's rules decide from. Older traces do not have it.
    #[serde(default)]
    pub operands: Option<Decides>,
}

/// Where a gradient was stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The cast site; none for values that are not scaled.
    pub site: Option<String>,
    /// Its exponent in this step.
    pub exponent: i32,
}

/// One operand of a product.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Root mean square, zeros included.
    pub rms: f64,
    /// Largest magnitude.
    pub max: f64,
}

/// Part of a sum.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Where it comes from.
    pub from: Source,
    /// Largest magnitude as it was stored.
    pub amax: f32,
}

/// What the paper's rules decide a site's exponent from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "lowercase")]
pub enum Decides {
    /// Theorem 1. An operand is missing where it is all zero or not finite.
    Product {
        /// Where the incoming gradient comes from.
        from: Source,
        /// That gradient, as it was stored.
        dy: Option<Measured>,
        /// The weights.
        w: Option<Measured>,
        /// Terms of one element: typical, worst.
        terms: [f64; 2],
    },
    /// Theorem 2: the f32 values at the exponent that they came with.
    Softmax {
        /// Where they come from.
        from: Source,
        /// Their row; zeros at the end are left out.
        words: Vec<u32>,
    },
    /// A sum of gradients.
    Sum {
        /// What was added.
        parts: Vec<Part>,
    },
    /// The gradient of what was split. Older traces call it a sum.
    Split {
        /// What was put together.
        parts: Vec<Part>,
    },
    /// Any other cast: the site's row is enough.
    Cast {
        /// Where the values come from.
        from: Source,
    },
}

impl From<&Operand> for Measured {
    fn from(operand: &Operand) -> Self {
        Self { rms: operand.rms, max: operand.max }
    }
}

impl From<&gradscale::Source> for Source {
    fn from(source: &gradscale::Source) -> Self {
        Self { site: source.site.clone(), exponent: source.exponent }
    }
}

impl From<&(gradscale::Source, f32)> for Part {
    fn from((from, amax): &(gradscale::Source, f32)) -> Self {
        Self { from: from.into(), amax: *amax }
    }
}

impl Decides {
    fn of(operands: &Operands) -> Option<Self> {
        Some(match operands {
            Operands::Product { from, dy, w, terms: Terms { typical, worst } } => Self::Product {
                from: from.into(),
                dy: dy.as_ref().map(Into::into),
                w: w.as_ref().map(Into::into),
                terms: [*typical, *worst],
            },
            Operands::Softmax { from, row } => Self::Softmax { from: from.into(), words: words(row) },
            Operands::Sum(parts) => Self::Sum { parts: parts.iter().map(Into::into).collect() },
            Operands::Split(parts) => Self::Split { parts: parts.iter().map(Into::into).collect() },
            Operands::Cast(from) => Self::Cast { from: from.into() },
            _ => return None,
        })
    }
}

/// A row as devices write it, without zeros at the end.
fn words(row: &Stats) -> Vec<u32> {
    let words = row.to_words();
    let end = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    words[..end].to_vec()
}

/// The row of such words.
///
/// # Errors
/// Words that are none.
pub fn row(words: &[u32], exponent: i32) -> Result<Stats, String> {
    let mut all = [0; WORDS];
    all.get_mut(..words.len()).ok_or("too many words")?.copy_from_slice(words);
    Stats::from_words(&all, Convention::FP16, exponent).map_err(|error| error.to_string())
}

impl Seen {
    fn of(name: &str, row: &Stats, next: i32, operands: Option<&Operands>) -> Self {
        let operands = operands.and_then(Decides::of);
        Self { name: name.to_owned(), exponent: row.exponent(), next, words: words(row), operands }
    }

    /// Whether it saw gradients of weights, which are half only where a method asks for that.
    #[must_use]
    pub fn is_of_weights(&self) -> bool {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        let kind = last.split('.').next().unwrap_or_default();
        self.name.contains('/') && matches!(kind, "wgrad" | "bgrad")
    }

    /// The row.
    ///
    /// # Errors
    /// Words that are none.
    pub fn row(&self) -> Result<Stats, String> {
        row(&self.words, self.exponent)
    }
}

/// A trace being written.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    /// For the first line.
    method: Option<String>,
}

impl Writer {
    /// A new file, or one that is there and empty: that of a training that had no space to begin.
    ///
    /// # Errors
    /// A file with something in it, or one that cannot be made.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let open = |options: &mut OpenOptions| options.write(true).open(path);
        let file = match fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() == 0 => open(&mut OpenOptions::new()),
            Ok(_) | Err(_) => open(OpenOptions::new().create_new(true)),
        };
        Ok(Self::over(path, file.map_err(|error| Failure::file(path, error))?))
    }

    /// Goes on with a file after step `iteration`; what it has of later steps, which are done again, is left out. If the
    /// file is gone or damaged, says so: it is set aside, and the steps that can be read are kept.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn resume(path: &Path, iteration: u64, method: &str) -> Result<Self, Failure> {
        let failed = |error| Failure::file(path, error);
        if !path.exists() {
            let warning = format!("it is gone; the trace begins anew after step {iteration}");
            output::warn(&Failure::file(path, warning));
            return Ok(Self::create(path)?.made_by(method));
        }
        if let Some(end) = end_of(path, iteration).map_err(failed)? {
            let file = OpenOptions::new().append(true).open(path).map_err(failed)?;
            file.set_len(end).map_err(failed)?;
            return Ok(Self::over(path, file));
        }
        let aside = output::set_aside(path)?;
        // The line that named the method may be lost.
        let mut writer = Self::over(path, File::create_new(path).map_err(failed)?).made_by(method);
        let (mut lines, mut line, mut kept) = (BufReader::new(File::open(&aside).map_err(failed)?), Vec::new(), 0);
        while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
            if number(&line).is_some_and(|(step, _)| step <= iteration) {
                writer.file.write_all(&line).map_err(failed)?;
                kept += 1;
            }
            line.clear();
        }
        let warning = format!("{kept} of {iteration} steps can be read; the file is kept as {}", aside.display());
        output::warn(&Failure::file(path, warning));
        Ok(writer)
    }

    fn over(path: &Path, file: File) -> Self {
        Self { path: path.to_owned(), file: BufWriter::new(file), method: None }
    }

    /// Says by which method the exponents were decided.
    #[must_use]
    pub fn made_by(self, method: &str) -> Self {
        Self { method: Some(spelled(method, TODAY)), ..self }
    }

    /// Appends the attempts of a step that were repeated; before [`Writer::push`].
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn push_repeated<'a>(
        &mut self, iteration: u64, attempts: impl IntoIterator<Item = &'a Attempt>,
    ) -> Result<(), Failure> {
        for attempt in attempts {
            let mut operands: BTreeMap<&str, &Operands> = attempt.operands().collect();
            let seen = attempt.sites().map(|(name, next, row)| Seen::of(name, row, next, operands.remove(name)));
            let sites = seen.collect();
            self.line(Step { iteration, skipped: false, repeated: true, method: None, sites })?;
        }
        Ok(())
    }

    /// Appends what the last step saw.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn push<'a>(
        &mut self, iteration: u64, skipped: bool, sites: impl IntoIterator<Item = SiteReport<'a>>,
        operands: impl IntoIterator<Item = (&'a str, &'a Operands)>,
    ) -> Result<(), Failure> {
        let mut operands: BTreeMap<&str, &Operands> = operands.into_iter().collect();
        let seen = sites.into_iter().map(|site| Seen::of(site.name, site.row, site.alpha, operands.remove(site.name)));
        let sites = seen.collect();
        self.line(Step { iteration, skipped, repeated: false, method: None, sites })
    }

    fn line(&mut self, step: Step) -> Result<(), Failure> {
        let step = Step { method: self.method.take(), ..step };
        let mut line = serde_json::to_vec(&step).map_err(|error| Failure::file(&self.path, error))?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.flush());
        written.map_err(|error| Failure::file(&self.path, error))
    }
}

/// The step of a whole line, and whether it is an attempt that was repeated.
fn number(line: &[u8]) -> Option<(u64, bool)> {
    #[derive(Deserialize)]
    struct Numbered {
        iteration: u64,
        #[serde(default)]
        repeated: bool,
    }
    let numbered = line.ends_with(b"\n").then(|| serde_json::from_slice::<Numbered>(line));
    numbered?.ok().map(|numbered| (numbered.iteration, numbered.repeated))
}

/// Where step `iteration` ends in a file that has all steps from its first until there, one after the other, each behind
/// its attempts that were repeated.
fn end_of(path: &Path, iteration: u64) -> io::Result<Option<u64>> {
    let mut lines = BufReader::new(File::open(path)?);
    let (mut line, mut last, mut read, mut end) = (Vec::new(), None, 0, 0);
    while last.unwrap_or(0) < iteration && lines.read_until(b'\n', &mut line)? > 0 {
        let Some((found, repeated)) = number(&line) else { break };
        if last.is_some_and(|last| found != last + 1) {
            break;
        }
        read += line.len() as u64;
        if !repeated {
            (last, end) = (Some(found), read);
        }
        line.clear();
    }
    Ok((last.unwrap_or(0) == iteration).then_some(end))
}

/// All steps of a trace. A last line that was cut off is left out.
///
/// # Errors
/// A file that cannot be read, is no trace, or whose rows have no histograms.
pub fn read(path: &Path) -> Result<Vec<Step>, Failure> {
    let file = File::open(path).map_err(|error| Failure::file(path, error))?;
    parse(BufReader::new(file)).map_err(|cause| Failure::file(path, cause))
}

/// All steps of a trace's text.
///
/// # Errors
/// As [`read`], in words.
pub fn parse(text: impl BufRead) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line = line.map_err(|error| error.to_string())?;
        let step: Step = match serde_json::from_str(&line) {
            Ok(step) => step,
            Err(_) if lines.peek().is_none() && number > 0 => break,
            Err(error) => return Err(format!("line {}: {error}", number + 1)),
        };
        for seen in &step.sites {
            let wrong = |cause: String| format!("line {}, {}: {cause}", number + 1, seen.name);
            if seen.row().map_err(wrong)?.detail() < Detail::Full {
                return Err(wrong("a row without a histogram".to_owned()));
            }
        }
        steps.push(step);
    }
    if steps.is_empty() { Err("no steps".to_owned()) } else { Ok(steps) }
}
