//! Arguments of `gradscale compare`.

use crate::{
    Failure,
    device::Device,
    help::{Completed, heading, methods},
    optimizer::Updates,
    parallel::cores,
    setup::{Chosen, Methods, Seeds, Setup, epochs, steps_of_epochs, threads},
    tasks::{Dataset, LossDivisor, Net, Task},
};
use clap::Args;
use gradscale::{BASELINES, Baseline};
use serde::Serialize;
use std::path::PathBuf;

/// Methods that are compared by default.
const METHODS_BY_DEFAULT: &str = "fp32,fp16,fixed:128,dynamic,gs";
/// Training steps by default.
const STEPS_BY_DEFAULT: u64 = 400;
/// Maximum number of runs at a time, so that a typing error does not start thousands of threads.
const MAX_JOBS: usize = 256;
/// Maximum number of runs of the demonstration at a time: with eight it has three rounds.
const MAX_DEMONSTRATION_JOBS: usize = 8;

/// Reads the number of runs at a time.
fn jobs(text: &str) -> Result<usize, String> {
    let jobs = text.parse().ok().filter(|jobs| (1..=MAX_JOBS).contains(jobs));
    jobs.ok_or_else(|| format!("not a number of runs from 1 to {MAX_JOBS}"))
}

/// `gradscale compare`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(after_help = SHORT_HELP, after_long_help = methods_help())]
pub struct Compare {
    /// Network, data and device.
    #[command(flatten)]
    #[serde(flatten)]
    pub setup: Setup,
    /// Methods, separated by commas.
    #[arg(long, value_name = "LIST", default_value = METHODS_BY_DEFAULT, value_parser = Completed::<Methods>::new(methods), hide_possible_values = true, help_heading = heading::PRECISION)]
    pub methods: Methods,
    /// Compares fp32 with the fixed scales 8 to 32768
    ///
    /// Methods are fixed:8, fixed:16 … fixed:32768: the usual search for a fixed scale.
    #[arg(long, conflicts_with = "methods", help_heading = heading::PRECISION)]
    pub sweep: bool,
    /// Training steps.
    #[arg(long, help_heading = heading::TRAINING, value_name = "N", default_value_t = STEPS_BY_DEFAULT, value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: u64,
    /// Passes over the training data, instead of --iters
    #[arg(long, help_heading = heading::TRAINING, value_name = "N", conflicts_with = "iters", value_parser = epochs)]
    #[serde(skip)]
    pub epochs: Option<f64>,
    /// Divisor of the summed losses: a number, or batch
    ///
    /// A number of pixels, or `batch` for the labelled pixels of the batch. Learning rate, weight decay and --clip are
    /// given for a mean over the batch and are adapted to another divisor, so that training in f32 stays the same [default: 2073600 for segnet, the pixels of twelve images of 360 × 480; batch for
    /// classify, which counts images]
    #[arg(long, value_name = "N|batch", help_heading = heading::PRECISION)]
    pub pixels: Option<LossDivisor>,
    /// Seed of weights, order and flips
    #[arg(long, help_heading = heading::TRAINING, value_name = "S", default_value_t = 0, conflicts_with = "seeds")]
    pub seed: u64,
    /// Several seeds, separated by commas: shows what is chance
    ///
    /// The table shows means and standard deviations.
    #[arg(long, help_heading = heading::TRAINING, value_name = "LIST")]
    pub seeds: Option<Seeds>,
    /// Steps between evaluations; 0: only the final one
    ///
    /// Evaluates on a validation set: a set named val next to test, or else every tenth training image, which is held
    /// out. The final evaluation uses the test set.
    #[arg(long, help_heading = heading::TRAINING, value_name = "N", default_value_t = 0)]
    pub eval_every: u64,
    /// Number of CPU threads; 0: one for each core
    ///
    /// Results do not depend on it.
    #[arg(long, help_heading = heading::DEVICE, value_name = "N", default_value_t = 0, value_parser = threads)]
    pub threads: usize,
    /// Runs at a time [default: 1]
    ///
    /// Each has --threads threads, or its share of the cores. Results do not depend on it, but times do: runs share the
    /// memory's bandwidth. The demonstration on the CPU has as many as there are cores, at most eight.
    #[arg(long, help_heading = heading::DEVICE, value_name = "N", value_parser = jobs)]
    pub jobs: Option<usize>,
    /// Directory for the results [default: a new one, compare-N]
    ///
    /// It receives report.html, table.md and results.json, and must not contain results yet [default: the first of
    /// compare-1, compare-2, … without results]
    #[arg(long, help_heading = heading::RESULTS, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Resumes an interrupted comparison with all its options
    ///
    /// Finished runs are kept, and bits are those of a comparison without interruption. Of the other options only --json
    /// can be given.
    #[arg(long, help_heading = heading::RESULTS, value_name = "DIR", conflicts_with_all = ["Chosen", "data", "DataOptions", "batch", "Updates", "Amp", "device", "methods", "sweep", "iters", "epochs", "pixels", "seed", "seeds", "eval_every", "threads", "jobs", "out", "config"])]
    #[serde(skip)]
    pub resume: Option<PathBuf>,
    /// Prints JSON for scripts
    ///
    /// One line on the standard output; text goes to the standard error.
    #[arg(long, help_heading = heading::RESULTS)]
    #[serde(skip)]
    pub json: bool,
    /// TOML file with options of this command
    ///
    /// For example iters = 600. Options of the command line override it.
    #[arg(long, help_heading = heading::RESULTS, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
}

const SHORT_HELP: &str = "Methods and all options: gradscale compare --help";

const METHODS: &str = "Methods:
  fp32             all in f32: the baseline
  chaos            all in f32 from weights that differ by 2^-20: with --seeds, the reference for differences of methods
  fp16             mixed precision without a scale
  fixed:SCALE      one scale for all gradients, a power of two: 1024 or 2^10
  dynamic          one scale, from 2^16, doubled after 2000 steps without an overflow, halved after one
  dynamic:N        the paper's baseline: doubled until it overflows, then times 2^(1/N) every step
  logmax           one scale from the distribution of the largest gradients
  delayed          one scale, the largest that the largest gradient of the last steps allows
  amax             a scale for every gradient from its largest magnitude, as in FP8 libraries: of this step (current
                   scaling), or with amax:history=16 of the last 16 steps (delayed scaling)
  gs               a scale for every gradient, from its histogram (= gs:exact)
  gs:paper         the same by the paper's models, with its errors corrected; gs:paper-literal: as printed; gs:authors:
                   with the scales of the authors' code
{baselines}Options follow a method, separated by commas (dynamic:init=1024,interval=500):
  gs               gamma=1e-4, interval=100, calls=each, and for gs:exact window=11, room=6, history=1, outliers=24,
                   forward=off (on: activations have exponents from the first step; repeat, the default: from the first
                   overflow of one; off: such a batch is skipped)
  amax             history=0 (steps, at most 16), margin=0 (binades of headroom), calls=each
  gs:exact, amax   format=e5m2 or e4m3: gradients, activations and weights are rounded to 8 bits, simulated with halves;
                   grad=e5m2, act=e4m3, weight=e4m3: one kind of them alone; products=fp8: CUDA devices from compute
                   capability 8.9 on multiply these in units for 8 bits, and other devices multiply halves
  loss scales      wgrad=half: gradients of weights are stored in half before they are f32, as in PyTorch with half
                   weights; they flush and overflow at separate sites, LAYER/wgrad and LAYER/bgrad
  dynamic          init=2^16, interval=2000 (steps, or steps/20: a part of the run), growth=2, backoff=0.5, min=2^-24, max=2^30;
                   hysteresis=cumulative:N (the Nth overflow since the last growth lowers the scale) or consecutive:N
                   (the Nth without a clean step between); tolerance=0.05 (share of overflows that does not lower it);
                   floor=40000:2^13/150000:2^15 (a rising minimum: from step 40000, from step 150000)
  dynamic:N        min, max
  logmax           mean=0.99, spread=0.999 (decays), quantile=3.09, ceiling=2^16, min, max
  delayed          history=16 (steps, at most 16), margin=0 (binades of headroom), min, max

Results: report.html and table.md to read, results.json for programs. Errors: one line, exit code 2.";

/// Returns the help text of all methods, including the presets named after libraries.
fn methods_help() -> String {
    let baseline = |Baseline { name, method, about }: &Baseline| format!("  {name:16} {method}\n{:19}{about}\n", "");
    let named: String = BASELINES.iter().map(baseline).collect();
    METHODS.replace("{baselines}", &format!("Presets named after libraries:\n{named}"))
}

impl Compare {
    /// Returns these arguments with the task's defaults filled in.
    fn resolved(&self) -> Result<Self, Failure> {
        let mut all = Self { setup: self.setup.for_data().0, ..self.clone() };
        all.setup.updates = all.setup.recipe(self.iters)?.to_updates();
        all.setup = all.setup.resolved()?;
        all.setup.reading.validation = self.eval_every != 0;
        all.pixels = Some(self.divisor());
        if self.sweep {
            all.methods = Methods::sweep();
        }
        all.methods = all.methods.for_steps(self.iters);
        Ok(all)
    }

    /// Returns these arguments with the number of steps that `--epochs` asks for; `asked` are those without defaults.
    ///
    /// # Errors
    /// Those of [`Setup::recipe`].
    pub fn with_epochs(self, asked: &Self, data: &dyn Dataset) -> Result<Self, Failure> {
        let Some(epochs) = asked.epochs else { return Ok(self) };
        let iters = steps_of_epochs(epochs, data.counts()[0], self.setup.batch());
        // A schedule may depend on the number of steps.
        let setup = Setup { updates: asked.setup.updates.clone(), ..self.setup.clone() };
        Self { iters, setup, ..self }.resolved()
    }

    /// Returns the divisor of the summed losses.
    #[must_use]
    pub fn divisor(&self) -> LossDivisor {
        self.pixels.unwrap_or_else(|| self.setup.task().kind().divisor())
    }

    /// Returns the seeds with which each method trains.
    #[must_use]
    pub fn all_seeds(&self) -> Vec<u64> {
        self.seeds.as_ref().map_or_else(|| vec![self.seed], |seeds| seeds.0.clone())
    }

    /// Returns the number of runs that train at a time.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.jobs.unwrap_or(1)
    }

    /// Returns the number of threads of a run; 0: one for each core.
    #[must_use]
    pub fn threads_per_run(&self) -> usize {
        match (self.threads, self.jobs()) {
            (0, 2..) => (cores() / self.jobs()).max(1),
            (threads, _) => threads,
        }
    }

    /// Returns the cases to compare: without options a demonstration, otherwise the requested task. If none is
    /// requested, two towers on synthetic digits are compared, too, since no single scale can train them.
    ///
    /// # Errors
    /// Those of [`Setup::recipe`].
    pub fn cases(&self) -> Result<Vec<Self>, Failure> {
        let Setup { chosen: Chosen { task, net, size, .. }, data, batch, .. } = &self.setup;
        let chosen = task.is_some()
            || net.is_some()
            || size.is_some()
            || data.is_some()
            || batch.is_some()
            || self.pixels.is_some();
        // Layers and learning rates are those of one network.
        let chosen = chosen || self.setup.amp.names_layers() || self.setup.updates != Updates::default() || self.sweep;
        let cases = match (chosen, self.is_plain()) {
            (true, _) => vec![self.clone()],
            (false, false) => vec![self.clone(), self.towers()],
            (false, true) => self.demonstration()?,
        };
        cases.iter().map(Self::resolved).collect()
    }

    fn towers(&self) -> Self {
        let mut towers = self.clone();
        (towers.setup.chosen.task, towers.setup.chosen.net) = (Some(Task::Classify), Some(Net::Towers));
        towers
    }

    /// Returns true if methods, seeds, steps and widths are the default ones.
    fn is_plain(&self) -> bool {
        let methods: Vec<&str> = self.methods.0.iter().map(|(name, _)| name.as_str()).collect();
        methods.join(",") == METHODS_BY_DEFAULT
            && self.iters == STEPS_BY_DEFAULT
            && self.epochs.is_none()
            && (self.seed, self.eval_every) == (0, 0)
            && self.seeds.is_none()
            && self.setup.chosen.width.is_none()
    }

    /// Returns the demonstration, which takes less than a minute on two cores: natural failures first.
    fn demonstration(&self) -> Result<Vec<Self>, Failure> {
        let parse = |cause: String| Failure::at("demonstration", cause);
        let mut bad_image = self.clone();
        let setup = &mut bad_image.setup;
        (setup.chosen.task, setup.chosen.net) = (Some(Task::Classify), Some(Net::Mlp));
        // The settings of the study with photographs, which were fixed before this data set existed.
        (setup.chosen.width, setup.batch) = (Some(4), Some(128));
        setup.updates.lr = Some(0.02);
        setup.updates.schedule = Some("cosine".parse().map_err(parse)?);
        setup.reading.bad_image = true;
        bad_image.iters = 60 * (10_000 / 128);
        bad_image.methods = "fp32,dynamic,gs".parse().map_err(parse)?;
        let mut short = self.clone();
        let setup = &mut short.setup;
        (setup.chosen.task, setup.chosen.net) = (Some(Task::Speech), Some(Net::ConvCtc));
        // Those of the study with spoken digits.
        (setup.batch, setup.updates.lr, setup.updates.clip) = (Some(16), Some(2e-3), Some(5.0));
        setup.updates.optimizer = Some("adamw".parse().map_err(parse)?);
        setup.updates.schedule = Some("cosine:warmup=50".parse().map_err(parse)?);
        setup.reading.short_recordings = true;
        short.iters = 800;
        // One seed, since its runs take longest.
        short.seeds = Some("0".parse().map_err(parse)?);
        short.methods = "fp32,dynamic,gs".parse().map_err(parse)?;
        let (mut towers, mut segnet) = (self.towers(), self.clone());
        (segnet.setup.chosen.width, segnet.iters) = (Some(4), 200);
        for case in [&mut towers, &mut segnet] {
            case.methods = "fp32,fp16,dynamic,gs".parse().map_err(parse)?;
        }
        let mut cases = vec![bad_image, short, towers, segnet];
        for case in &mut cases {
            if case.seeds.is_none() {
                case.seeds = Some("0,1".parse().map_err(parse)?);
            }
            // Two threads are slower than one for networks so small.
            if self.threads == 0 && self.setup.device() == Device::Cpu {
                case.threads = 1;
                case.jobs = self.jobs.or(Some(cores().min(MAX_DEMONSTRATION_JOBS)));
            }
        }
        Ok(cases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};
    use std::collections::BTreeSet;

    fn cases(options: &[&str]) -> Vec<Compare> {
        let command = Compare::augment_args(Command::new("compare"));
        let matches = command.try_get_matches_from([&["compare"], options].concat()).expect("options");
        Compare::from_arg_matches(&matches).expect("arguments").cases().expect("cases")
    }

    /// The demonstration has data and settings in every build, also in one without the features for recordings.
    #[test]
    fn without_options_four_parts_are_compared() {
        let all = cases(&[]);
        let networks: Vec<Net> = all.iter().map(|case| case.setup.chosen.net()).collect();
        assert_eq!(networks, [Net::Mlp, Net::ConvCtc, Net::Towers, Net::SegnetBasic]);
        for case in &all {
            let data = case.setup.load(case.seed).expect("data");
            data.check(&case.setup.settings(case.divisor(), case.iters).expect("settings")).expect("a batch that fits");
            assert!(case.jobs() >= 1 && case.threads_per_run() == 1, "{networks:?}");
        }
        assert_eq!(cases(&["--threads", "3"]).iter().map(Compare::threads_per_run).collect::<Vec<_>>(), [3; 4]);
        let chosen = cases(&["--network", "mlp", "--jobs", "256"]);
        assert_eq!((chosen.len(), chosen[0].jobs(), chosen[0].threads_per_run()), (1, 256, 1));
    }

    /// Checks that a resume takes no option but `--json`, since the comparison has its options.
    #[test]
    fn resume_takes_no_other_options() {
        let command = Compare::augment_args(Command::new("compare"));
        let resume = command.get_arguments().find(|argument| argument.get_id() == "resume").expect("an option");
        let conflicts: BTreeSet<_> = command.get_arg_conflicts_with(resume).iter().map(|one| one.get_id()).collect();
        for argument in command.get_arguments().map(clap::Arg::get_id) {
            let is_allowed = argument == "resume" || argument == "json";
            assert_eq!(conflicts.contains(argument), !is_allowed, "{argument}");
        }
    }
}
