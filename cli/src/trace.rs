//! Traces: the statistics rows of every cast site in every step, one JSON object a line.

use crate::{
    Failure, output,
    rule_versions::{CURRENT_HISTORY, spelled},
};
use gradscale::{
    Attempt, Operands, SiteReport, Skipped, gradscale_core::step_outcome::NonFiniteKind, replay::OverflowedActivation,
};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
};

pub use gradscale::replay::{Seen, Step, parse, row};

/// Writer of a trace file, which `gradscale replay` reads.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
    /// Name of the method, which the first line records.
    method: Option<String>,
}

impl Writer {
    /// Creates a trace file, or takes one that is there and empty: that of a training that had no space to begin.
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

    /// Opens a trace file to continue after step `iteration`. Later steps are dropped, because they run again. If the
    /// file is missing or damaged, that is reported: it is set aside, and the readable steps are kept.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn resume(path: &Path, iteration: u64, method: &str) -> Result<Self, Failure> {
        let failed = |error| Failure::file(path, error);
        if !path.exists() {
            let warning = format!("not found; a new trace begins after step {iteration}");
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
        let warning = format!(
            "only {kept} of {iteration} steps can be read; the damaged file was renamed to {}",
            aside.display()
        );
        output::warn(&Failure::file(path, warning));
        Ok(writer)
    }

    fn over(path: &Path, file: File) -> Self {
        Self { path: path.to_owned(), file: BufWriter::new(file), method: None }
    }

    /// Sets the method that decided the exponents, which the first line records.
    #[must_use]
    pub fn made_by(self, method: &str) -> Self {
        Self { method: Some(spelled(method, CURRENT_HISTORY)), ..self }
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
            let seen = attempt.sites().map(|(name, next, row)| Seen::from_row(name, row, next, operands.remove(name)));
            let sites = seen.collect();
            let activation = attempt.activation();
            let activation =
                activation.map(|(site, exponent)| OverflowedActivation { site: site.to_owned(), exponent });
            self.line(Step { iteration, skipped: false, repeated: true, activation, method: None, sites })?;
        }
        Ok(())
    }

    /// Appends the rows of all sites in the last step, and the activation because of which it was skipped, if it was.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn push<'a>(
        &mut self, iteration: u64, skipped: bool, activation: Option<OverflowedActivation>,
        sites: impl IntoIterator<Item = SiteReport<'a>>, operands: impl IntoIterator<Item = (&'a str, &'a Operands)>,
    ) -> Result<(), Failure> {
        let mut operands: BTreeMap<&str, &Operands> = operands.into_iter().collect();
        let seen =
            sites.into_iter().map(|site| Seen::from_row(site.name, site.row, site.alpha, operands.remove(site.name)));
        let sites = seen.collect();
        self.line(Step { iteration, skipped, repeated: false, activation, method: None, sites })
    }

    fn line(&mut self, step: Step) -> Result<(), Failure> {
        let step = Step { method: self.method.take(), ..step };
        let mut line = serde_json::to_vec(&step).map_err(|error| Failure::file(&self.path, error))?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.flush());
        written.map_err(|error| Failure::file(&self.path, error))
    }
}

/// Returns the activation because of which a step was skipped; `activations` are all forward stores.
#[must_use]
pub fn overflowed_activation<'a>(
    skipped: Option<&Skipped>, activations: impl IntoIterator<Item = SiteReport<'a>>,
) -> Option<OverflowedActivation> {
    let skipped = skipped?;
    let (site, _) = skipped.site.as_ref().filter(|(_, kind)| *kind == NonFiniteKind::Overflow)?;
    let is_activation = activations.into_iter().any(|one| one.name == site);
    is_activation.then(|| OverflowedActivation { site: site.clone(), exponent: skipped.exponent })
}

/// Returns the step of a whole line, and whether it is an attempt that was repeated.
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

/// Returns the offset after step `iteration` in a file that has all steps up to it in order, each preceded by its
/// retried attempts; `None` for any other file.
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

/// Reads all steps of a trace. An incomplete last line is ignored.
///
/// # Errors
/// A file that cannot be read, is no trace, or whose rows have no histograms.
pub fn read(path: &Path) -> Result<Vec<Step>, Failure> {
    let file = File::open(path).map_err(|error| Failure::file(path, error))?;
    parse(BufReader::new(file)).map_err(|cause| {
        if is_training_log(path) {
            let cause = "the log of a training, not a trace; record one with gradscale train --trace FILE";
            return Failure::file(path, cause);
        }
        Failure::file(path, cause)
    })
}

/// Returns true if the first line is one of `log.jsonl`, which has losses, and a trace has none.
fn is_training_log(path: &Path) -> bool {
    let mut line = String::new();
    let read = File::open(path).and_then(|file| BufReader::new(file).read_line(&mut line));
    let value = read.ok().and_then(|_| serde_json::from_str::<serde_json::Value>(&line).ok());
    value.is_some_and(|value| value.get("iteration").is_some() && value.get("loss").is_some())
}
