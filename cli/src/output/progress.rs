//! Progress of long commands: one line that is redrawn on a terminal, or else a line every few seconds.

use super::layout;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    fmt::Write as _,
    io::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Time between two lines where there is no terminal: a log of an hour gets 720 lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Position in a sequence, for example step 58 of 400. A sequence of one is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Noun for the members of the sequence.
    pub noun: &'static str,
    /// Number of the current member, from 1.
    pub at: u64,
    /// Number of members.
    pub of: u64,
}

/// Progress of a command in steps.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// True if lines go to a standard error that is not a terminal.
    prints_lines: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    begun: Instant,
    /// Number of steps that were done before, for example by a training that is resumed.
    skipped: u64,
    counters: Vec<Counter>,
    detail: String,
    last_line: Instant,
}

impl Progress {
    /// Creates the progress of `steps` steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        // Not a number from `indicatif`, whose estimate forgets that steps of another method took longer.
        let bar =
            ProgressStyle::with_template("{msg}").map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style));
        let prints_lines = bar.is_hidden();
        let now = Instant::now();
        let state = State { begun: now, skipped: 0, counters: Vec::new(), detail: String::new(), last_line: now };
        Self { bar, prints_lines, state: Mutex::new(state) }
    }

    /// Creates a progress that is never shown.
    #[must_use]
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), prints_lines: false, ..Self::new(0) }
    }

    /// Counts steps that were done before this process.
    #[must_use]
    pub fn with_position(self, steps: u64) -> Self {
        self.skip(steps);
        self
    }

    /// Sets the text behind the counters.
    #[must_use]
    pub fn with_message(self, detail: impl Into<String>) -> Self {
        self.set_message(detail);
        self
    }

    /// Counts steps that take no time, for example because their results are known.
    pub fn skip(&self, steps: u64) {
        self.bar.inc(steps);
        self.state().skipped += steps;
    }

    /// Counts finished steps.
    pub fn inc(&self, steps: u64) {
        self.bar.inc(steps);
        self.show();
    }

    /// Sets the position in all sequences, the outermost first.
    pub fn set_counters(&self, counters: &[Counter]) {
        let shown = counters.iter().copied().filter(|counter| counter.of > 1);
        self.state().counters = shown.collect();
    }

    /// Sets the text behind the counters.
    pub fn set_message(&self, detail: impl Into<String>) {
        self.state().detail = detail.into();
    }

    /// Calls a function that prints, while no progress is on the screen.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Removes the progress from the screen.
    pub fn finish_and_clear(&self) {
        self.bar.finish_and_clear();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Its parts are valid at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self) {
        let mut state = self.state();
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        if self.prints_lines {
            if state.last_line.elapsed() >= LINE_INTERVAL {
                state.last_line = Instant::now();
                // A closed standard error cannot be reported anywhere.
                writeln!(std::io::stderr(), "progress: {}", state.text(done, all, usize::MAX)).ok();
            }
        } else if !self.bar.is_hidden() {
            self.bar.set_message(state.text(done, all, layout::error_width()));
        }
    }
}

/// Progress of reading many files.
struct FileProgress(Progress);

impl gradscale_data::Progress for FileProgress {
    fn advance(&self) {
        self.0.inc(1);
    }
}

impl Drop for FileProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Shows a progress while many files of a data set are read.
pub fn show_file_progress() {
    gradscale_data::show_progress(|files, text| Box::new(FileProgress(Progress::new(files).with_message(text))));
}

impl State {
    /// Returns the line that fits a width: counters, time left, detail; the least important parts are dropped first.
    fn text(&self, done: u64, all: u64, width: usize) -> String {
        let left = self.left(done, all);
        let long = |counter: &Counter| format!("{} {} of {}", counter.noun, counter.at, counter.of);
        let short = |counter: &Counter| format!("{} {}/{}", counter.noun, counter.at, counter.of);
        let total = [Counter { noun: "step", at: done, of: all }];
        let counters = if self.counters.is_empty() { &total[..] } else { &self.counters[..] };
        let joined = |name: &dyn Fn(&Counter) -> String, rest: &[&str]| {
            let words = counters
                .iter()
                .map(name)
                .chain(rest.iter().filter(|rest| !rest.is_empty()).map(|&rest| rest.to_owned()));
            words.collect::<Vec<_>>().join(", ")
        };
        let with_left = if left.is_empty() { String::new() } else { format!("{left} left") };
        let lines = [
            joined(&long, &[&with_left, &self.detail]),
            joined(&long, &[&with_left]),
            joined(&short, &[&with_left]),
            joined(&short, &[&left]),
        ];
        // On a very narrow terminal the start is cut, because the fastest counter and the time are at the end.
        let fits = lines.iter().find(|line| line.chars().count() < width);
        fits.cloned().unwrap_or_else(|| {
            let line = &lines[lines.len() - 1];
            line.chars().skip(line.chars().count().saturating_sub(width.saturating_sub(1))).collect()
        })
    }

    /// Returns the time that the remaining steps will take; empty before there is an estimate.
    fn left(&self, done: u64, all: u64) -> String {
        let own = done.saturating_sub(self.skipped);
        let elapsed = self.begun.elapsed().as_secs_f64();
        // Estimates of the first half second are of programs that are compiled and of cold caches.
        if own == 0 || elapsed < 0.5 || done > all {
            return String::new();
        }
        duration(elapsed / own as f64 * (all - done) as f64)
    }
}

/// Formats seconds with at most two units.
pub(crate) fn duration(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, and saturates")]
    let seconds = seconds.round() as u64;
    let mut text = String::new();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => write!(text, "{seconds} s"),
        (0, minutes @ 1..=4, seconds) => write!(text, "{minutes} min {seconds} s"),
        (0, minutes, _) => write!(text, "{minutes} min"),
        (hours, minutes, _) => write!(text, "{hours} h {minutes} min"),
    }
    .ok();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks lines for 80 columns, for 40 and for 20, of a comparison that has been at work for 40 seconds.
    #[test]
    fn lines_fit_the_width() {
        let counter = |noun, at, of| Counter { noun, at, of };
        let counters = vec![counter("method", 2, 5), counter("seed", 1, 3), counter("step", 58, 400)];
        let begun = Instant::now().checked_sub(Duration::from_secs(40)).expect("a clock");
        let state = State { begun, skipped: 100, counters, detail: "loss 0.31".into(), last_line: begun };
        let text = |width| state.text(200, 300, width);
        assert_eq!(text(usize::MAX), "method 2 of 5, seed 1 of 3, step 58 of 400, 40 s left, loss 0.31");
        assert_eq!(text(60), "method 2 of 5, seed 1 of 3, step 58 of 400, 40 s left");
        assert_eq!(text(40), "method 2/5, seed 1/3, step 58/400, 40 s");
        assert_eq!(text(20), ", step 58/400, 40 s");
        let whole = State { counters: Vec::new(), ..state };
        assert_eq!(whole.text(200, 300, 80), "step 200 of 300, 40 s left, loss 0.31");
        assert_eq!([9.6, 75.0, 600.0, 5000.0].map(duration), ["10 s", "1 min 15 s", "10 min", "1 h 23 min"]);
    }
}
