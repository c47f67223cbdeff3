//! `gradscale train --times`: durations of the launches of a step, compared with an untimed step.

use crate::{Failure, tasks::TrainingRun};
use gradscale::LaunchTime;
use std::fmt::Write;

/// Steps before anything is timed: the first compiles and allocates, the second is recorded, the third is the first
/// that is repeated.
const WARMUP_STEPS: u64 = 3;
/// Steps that are taken as always, for the time of a step by the host's clock: the median of these.
const UNTIMED_STEPS: u64 = 5;
/// Steps whose launches are timed: clocks of devices count microseconds or less, so a mean of some is steady.
const TIMED: u64 = 5;
/// Characters of a launch's name and shape; with the numbers a line has 80.
const NAME: usize = 41;

/// Timer of a training's launches and steps.
#[derive(Debug)]
pub(super) struct Times {
    /// Number of steps that the training has taken so far.
    steps: u64,
    /// Seconds of each step whose launches were not timed.
    usual: Vec<f64>,
    /// Total seconds of the steps whose launches were timed.
    timed: f64,
}

impl Times {
    /// Starts to time a training with `steps` steps left.
    ///
    /// # Errors
    /// A device without a clock, or too few steps.
    pub fn begin(run: &mut dyn TrainingRun, steps: u64) -> Result<Self, Failure> {
        let needed = WARMUP_STEPS + UNTIMED_STEPS + TIMED;
        if steps < needed {
            let words = format!("needs {needed} steps, but {steps} are left; raise --iters");
            return Err(Failure::at("--times", words));
        }
        // A device without a clock is an error now, not in the middle of a training.
        run.time_launches(true)?;
        run.time_launches(false)?;
        Ok(Self { steps: 0, usual: Vec::new(), timed: 0.0 })
    }

    /// Prepares the timing before a step: launches of some steps are timed.
    pub fn before(&mut self, run: &mut dyn TrainingRun) -> Result<(), Failure> {
        let timed = WARMUP_STEPS + UNTIMED_STEPS..WARMUP_STEPS + UNTIMED_STEPS + TIMED;
        if timed.contains(&self.steps) { run.time_launches(true) } else { Ok(()) }
    }

    /// Records a step of `seconds` seconds; returns the table once it is complete.
    pub fn after(&mut self, run: &mut dyn TrainingRun, seconds: f64) -> Result<Option<String>, Failure> {
        self.steps += 1;
        if self.steps > WARMUP_STEPS && self.steps <= WARMUP_STEPS + UNTIMED_STEPS {
            self.usual.push(seconds);
        }
        if self.steps <= WARMUP_STEPS + UNTIMED_STEPS || self.steps > WARMUP_STEPS + UNTIMED_STEPS + TIMED {
            return Ok(None);
        }
        // Launches between steps, for example of an evaluation, are not timed.
        run.time_launches(false)?;
        self.timed += seconds;
        let ends = self.steps == WARMUP_STEPS + UNTIMED_STEPS + TIMED;
        Ok(ends.then(|| {
            self.usual.sort_by(f64::total_cmp);
            let usual = self.usual[self.usual.len() / 2];
            table(&run.launch_times(), usual, self.timed / TIMED as f64)
        }))
    }
}

/// Formats a number in few characters, with decimals if it is small.
fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Truncates a text to `length` characters, the last one an ellipsis.
fn truncate(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length - 1).chain(['…']).collect()
}

/// Formats the launch times of [`TIMED`] steps as those of one step, with the seconds of an untimed and of a timed
/// step.
fn table(rows: &[LaunchTime], usual: f64, timed: f64) -> String {
    let step = TIMED as f64;
    let mut text = format!(
        "launches of a step, one after another, by the device's clock; mean of {TIMED} steps\n\
         {:NAME$} {:>5} {:>9} {:>6} {:>8} {:>6}\n",
        "launch", "count", "ms", "GB/s", "GFLOP/s", "share"
    );
    let mut line = |name: &str, count: f64, seconds: f64, rates: [String; 2], share: f64| {
        let percent = if share > 0.9995 { "100".to_owned() } else { format!("{:.1}", 1e2 * share) };
        let (ms, share) = (1e3 * seconds, format!("{percent} %"));
        let [bytes, operations] = rates;
        writeln!(
            text,
            "{:NAME$} {:>5} {ms:>9.3} {bytes:>6} {operations:>8} {share:>6}",
            truncate(name, NAME),
            whole(count)
        )
        .ok();
    };
    for row in rows {
        let name = format!("{} {}", row.name, row.shape);
        let rates = [row.gigabytes_per_second(), row.gigaflops()].map(number);
        line(name.trim_end(), row.launches as f64 / step, row.seconds / step, rates, row.share);
    }
    let sum = rows.iter().map(|row| row.seconds).sum::<f64>() / step;
    let count = rows.iter().map(|row| row.launches).sum::<u64>() as f64 / step;
    line("all launches", count, sum, [String::new(), String::new()], 1.0);
    let rest = usual - sum;
    let words = if rest >= 0.0 {
        format!("{:.3} ms ({:.1} %): host, copies, waits, gaps between launches", 1e3 * rest, 1e2 * rest / usual)
    } else {
        format!("none; launches timed singly take {:.3} ms more than a step", -1e3 * rest)
    };
    let (usual, timed) = (1e3 * usual, 1e3 * timed);
    writeln!(text, "an untimed step: {usual:.3} ms (median of {UNTIMED_STEPS}, host's clock); timed: {timed:.3} ms")
        .ok();
    writeln!(text, "not in launches: {words}").ok();
    text
}

/// Formats a count per step, as an integer unless steps differ.
fn whole(count: f64) -> String {
    if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradscale::gradscale_core::backend::Cost;

    fn row(name: &'static str, shape: &str, seconds: f64, bytes: u64, operations: u64, share: f64) -> LaunchTime {
        LaunchTime { name, shape: shape.into(), launches: TIMED, seconds, cost: Cost { bytes, operations }, share }
    }

    #[test]
    fn tables_fit_a_terminal_and_add_up() {
        let long = "forward 1024x1024x1024x1024 777x777x1024 in 1024";
        // Five steps of 2 and of 0.5 ms.
        let rows = [
            row("conv", "forward 12x360x480x64 7x7x64", 10e-3, 30_000_000_000, 4_000_000_000_000, 0.8),
            row("conv", long, 2.5e-3, 0, 1_000_000, 0.2),
        ];
        let text = table(&rows, 4e-3, 3e-3);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "conv forward 12x360x480x64 7x7x64             1     2.000   3000   400000 80.0 %");
        assert!(lines[3].starts_with("conv forward 1024x1024x1024x1024 777x777…"), "{text}");
        assert!(lines[4].starts_with("all launches") && lines[4].contains(" 2     2.500 "), "{text}");
        assert_eq!(lines[5], "an untimed step: 4.000 ms (median of 5, host's clock); timed: 3.000 ms");
        assert_eq!(lines[6], "not in launches: 1.500 ms (37.5 %): host, copies, waits, gaps between launches");
        assert!(table(&rows, 2e-3, 3e-3).contains("launches timed singly take 0.500 ms more than a step"));
    }
}
