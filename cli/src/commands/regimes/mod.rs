//! `gradscale regimes`: results of scaling rules under losses, targets and inputs that are hard for them. Small
//! networks run under all regimes, with a score for each regime and method; then come regimes from practice, and
//! figures.

mod classifier;
mod data;
mod eight_bits;
mod figure;
mod figures;
mod images;
mod learn;
mod lock;
mod network;
mod one_in_n;
mod page;
mod regime;
mod results;
mod scale_by_size;
mod speech;
mod table;
mod training;

#[cfg(test)]
mod tests;

use data::Data;
use figures::Kind;
use images::Images;
use regime::{Regime, Task, list_regimes};
use training::{Row, train};

use crate::{
    Failure,
    build_feature::BuildFeature,
    data::{DataOptions, Labelled, Speech},
    machine::Origin,
    output::{self, Progress, layout},
    parallel,
    setup::{CHAOS, Methods, Seeds, threads},
};
use clap::Args;
use gradscale::Method;
use results::Results;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Default methods: f32, the common loss scales, an earlier rule of ours, and the current one.
const METHODS: [&str; 5] = ["fp32", "dynamic", "dynamic:10", "gs:exact,room=6,history=0", "gs"];
/// Default methods in natural regimes: torch.amp with its defaults and with a floor, a fixed scale, and per-tensor
/// scales from largest magnitudes.
const NATURAL: [&str; 6] = ["fp32", "torch", "torch-floor", "fixed:128", "amax:history=16", "gs"];
/// Default methods in the regimes of 8 bits: FP16 and formats of 8 bits with a scale for each tensor, by our rule and by
/// those of FP8 libraries, and blocks of the sizes of DeepSeek-V3 and of MX, also with scales rounded up.
const EIGHT_BITS: [&str; 10] = [
    "fp32",
    "gs",
    "gs:format=e5m2",
    "gs:format=e4m3",
    "gs:grad=e5m2,act=e4m3,weight=e4m3",
    "amax:grad=e5m2,act=e4m3,weight=e4m3",
    "amax:history=16,margin=1,grad=e5m2,act=e4m3,weight=e4m3",
    "block:format=e4m3,size=128",
    "block:format=e4m3,size=32",
    "block:format=e4m3,size=32,scale=up",
];
/// Additional method for regimes with fill values as targets; it ignores outliers.
const OUTLIERS: &str = "gs:outliers=24";

const SHORT_HELP: &str = "Regimes: gradscale regimes --help";

const HELP: &str = "Regimes, by NAME or by the part before its colon:
  1in3:2^P, 1in40:2^P, 1in500:2^P   one batch in 3, 40 or 500 has 2^P times the loss of the others;
                                    P is -20, -12, -8, 8, 12, 20 or 40
  blocks:10, blocks:24, blocks:100  10, 24 or 100 large batches, then the same number with 2^-20
                                    times the loss
  fill:1in50, fill:1in500           one target of a batch is 1e20
  infinite:…, nan:…                 one input of a batch is ∞ or NaN, which no scale can fix
  jump:2^-12, jump:2^12, jump:2^40  losses change in the middle
  drift:2^-30                       losses fall steadily to 2^-30 of the first
  masked                            losses are zero for 100 steps in every 300
  lognormal                         losses times e^3z, z from a normal distribution
  rnn                               recurrent gradients explode in one batch of 20
  heads                             five heads whose losses count 1 to 1e-12, under Adam
Natural causes, with ordinary networks and values:
  bad-sample:nan, :infinite, :corrupt
                                    one training image is NaN, has an infinite pixel, or is read
                                    from a corrupt file; 60 epochs
  short-recordings                  recordings shorter than their transcript, whose CTC loss is ∞
  short-recordings:zero-infinity    the same with the option that ignores them, the right fix
  rare-reward                       a combination lock, learned by REINFORCE
Formats of 8 bits:
  eight-bits:ordinary               an ordinary classifier
  eight-bits:examples               five tasks whose losses count 1 to 1e-12, one for each image: rows
                                    of a gradient differ in magnitude
  eight-bits:outputs                the same, all of them for each image: values of a row differ
Computed without a training:
  one-in-n                          share of large batches that a dynamic scale skips
  scale-by-size                     loss scales that work, by image size, batch, sum or mean

In the first group gradients are clipped by norm, so that f32 trains and other methods can be compared
with it. A minimum of the scale, a fixed scale, per-tensor scales or the right option also fix the
second group; their columns are shown next to gs.
Results: report.html and table.md to read, regimes.json for programs. Errors: one line, exit code 2.";

/// `gradscale regimes`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(after_help = SHORT_HELP, after_long_help = HELP)]
pub struct Regimes {
    /// Runs one seed and few steps: all regimes in under two minutes on two cores instead of almost an hour.
    #[arg(long)]
    quick: bool,
    /// Regimes, separated by commas [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Methods, separated by commas, as for `compare` [default: fp32, dynamic, dynamic:10, gs:exact,room=6,history=0
    /// (gs without history and repeats), gs; with fill values also gs:outliers=24. For natural causes: fp32, torch,
    /// torch-floor, fixed:128, amax:history=16, gs. For eight-bits: fp32, gs, formats of 8 bits under gs and amax, blocks]
    #[arg(long, value_name = "LIST")]
    methods: Option<Methods>,
    /// Seeds, separated by commas; tables show means and standard deviations [default: 0,1,2; with --quick 0]
    #[arg(long, value_name = "LIST")]
    seeds: Option<Seeds>,
    /// Images with one class each, as for `compare --task classify` [default: synthetic digits]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Recordings for short-recordings, as for `compare --task speech` [default: synthetic words of tones]
    #[arg(long, value_name = "PATH")]
    recordings: Option<PathBuf>,
    /// Number of trainings at the same time; 0: one for each core. Results do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Prints the results as one line of JSON; text goes to the standard error.
    #[arg(long)]
    #[serde(skip)]
    json: bool,
    /// Directory for report.html, table.md and regimes.json; it must not contain results yet [default: the first of
    /// regimes-1, regimes-2, … without results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Files that are written again after each regime.
const PAGES: [&str; 2] = ["report.html", "table.md"];

/// Training that is to be run: regime, method and seed.
#[derive(Debug)]
struct Job<'a> {
    regime: &'a Regime,
    method: (String, Method),
    seed: u64,
    steps: u64,
}

impl Regimes {
    /// Returns the figures that `--only` requests.
    fn figures(&self) -> Vec<Kind> {
        let chosen = |kind: &Kind| self.only.is_empty() || self.only.iter().any(|name| name == kind.name());
        Kind::ALL.into_iter().filter(chosen).collect()
    }

    /// Returns the regimes that `--only` requests; by default all that this build can train.
    fn chosen(&self) -> Result<Vec<Regime>, Failure> {
        let all = list_regimes();
        let figures = Kind::ALL.map(Kind::name);
        let is_known =
            |name: &String| figures.contains(&name.as_str()) || all.iter().any(|regime| regime.is_called(name));
        if let Some(unknown) = self.only.iter().find(|name| !is_known(name)) {
            let names: Vec<&str> = all.iter().map(|regime| regime.name.as_str()).chain(figures).collect();
            return Err(Failure::at(
                "--only",
                format!("{unknown:?} is not a regime; choose from {}", names.join(", ")),
            ));
        }
        let chosen = |regime: &Regime| match self.only[..] {
            [] => regime.is_built(),
            _ => self.only.iter().any(|name| regime.is_called(name)),
        };
        Ok(all.into_iter().filter(chosen).collect())
    }

    fn images(&self) -> Result<Images, Failure> {
        let labelled = match &self.data {
            Some(path) => Labelled::load(path, &DataOptions::default())?,
            None => Labelled::synthetic(0),
        };
        let count = labelled.train.count;
        if count < network::BATCH {
            let cause =
                format!("{} has {count} training images, fewer than a batch of {}", labelled.name, network::BATCH);
            return Err(Failure::at("--data", cause));
        }
        labelled.notes.taken.iter().try_for_each(|line| output::print(&format!("{}\n", Failure::plain(line))))?;
        Images::read(&labelled)
    }

    /// Loads the data that the regimes need.
    fn read(&self, regimes: &[Regime]) -> Result<Data, Failure> {
        let speaks = regimes.iter().any(|regime| matches!(regime.task, Task::ShortRecordings { .. }));
        let reading = DataOptions { short_recordings: true, ..DataOptions::default() };
        if speaks {
            BuildFeature::Speech.check()?;
        }
        let recordings = match &self.recordings {
            _ if !speaks => None,
            Some(path) => Some(Speech::load(path, &reading)?),
            None => {
                let words = Speech::synthetic(0, &reading).map_err(|cause| Failure::at("synthetic words", cause))?;
                Some(data::cut_some(words))
            }
        };
        Ok(Data { images: self.images()?, recordings })
    }

    fn methods(&self, regime: &Regime, images: &Images) -> Vec<(String, Method)> {
        let named = |name: &&str| Some(((*name).to_owned(), name.parse().ok()?));
        match &self.methods {
            Some(methods) => methods.for_steps(regime.steps(self.quick, images)).0,
            None if regime.task.has_eight_bits() => EIGHT_BITS.iter().filter_map(named).collect(),
            None if regime.task.is_natural() => NATURAL.iter().filter_map(named).collect(),
            None => METHODS.iter().chain(regime.fills().then_some(&OUTLIERS)).filter_map(named).collect(),
        }
    }

    fn seeds(&self) -> Vec<u64> {
        let default = if self.quick { vec![0] } else { vec![0, 1, 2] };
        self.seeds.as_ref().map_or(default, |seeds| seeds.0.clone())
    }

    fn jobs<'a>(&self, regimes: &'a [Regime], images: &Images) -> Vec<Job<'a>> {
        let mut jobs = Vec::new();
        for regime in regimes {
            for method in self.methods(regime, images) {
                let steps = regime.steps(self.quick, images);
                let job = |seed| Job { regime, method: method.clone(), seed, steps };
                jobs.extend(self.seeds().into_iter().map(job));
            }
        }
        jobs
    }
}

/// Trains all requested regimes, and writes the results after each.
///
/// # Errors
/// A regime that there is not, data that cannot be read, results that cannot be written.
pub fn run(arguments: &Regimes) -> Result<(), Failure> {
    output::set_json(arguments.json);
    let regimes = arguments.chosen()?;
    if arguments.methods.as_ref().is_some_and(|methods| methods.0.iter().any(|(name, _)| name == CHAOS)) {
        return Err(Failure::at("--methods", format!("{CHAOS} is for gradscale compare only")));
    }
    if arguments.only.is_empty() && !BuildFeature::Speech.is_built() {
        output::warn(&Failure::at("short-recordings", BuildFeature::Speech.missing()));
    }
    // Output that cannot be written is reported before any training.
    let asked = serde_json::to_value(arguments).map_err(|error| Failure::at("regimes.json", error))?;
    let data = arguments.read(&regimes)?;
    let claim = output::claim(arguments.out.as_deref(), "regimes", &PAGES)?;
    let directory = &claim.path;
    output::check_absent(&directory.join("regimes.json"))?;
    let jobs = arguments.jobs(&regimes, &data.images);
    let name = data.name();
    let bar = Progress::new(jobs.iter().map(|job| job.steps).sum());
    let mut results = Results::new(asked, Origin::here(), &name, &regimes);
    let threads = match arguments.threads {
        0 => parallel::cores(),
        threads => threads,
    };
    side_by_side(&jobs, &data, threads, &bar, |rows| {
        results.rows.extend(rows);
        bar.suspend(|| output::print(&table::last(&results)))?;
        write(directory, &results)
    })?;
    for kind in arguments.figures() {
        let figure = kind.draw(arguments.quick)?;
        bar.suspend(|| output::print(&format!("{}: {}\n{}", figure.name, figure.about, figure.text)))?;
        results.figures.push(figure);
        write(directory, &results)?;
    }
    bar.finish_and_clear();
    let text = table::text(&results, layout::width());
    output::print(&format!("\n{text}\n{}\n", directory.join("report.html").display()))?;
    output::print_json(&results)
}

/// Does all jobs, several at a time, and hands out the rows of each regime, in order, when it is done.
fn side_by_side(
    jobs: &[Job<'_>], data: &Data, threads: usize, bar: &Progress,
    mut done: impl FnMut(Vec<Row>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let work = |at: usize| {
        let Job { regime, method: (name, method), seed, steps } = &jobs[at];
        train(regime, data, (name, method), *seed, *steps, || bar.inc(1))
    };
    let mut rows: Vec<Option<Row>> = jobs.iter().map(|_| None).collect();
    let mut from = 0;
    parallel::run(jobs.len(), threads, work, |at, trained| {
        let row = trained?;
        bar.set_message(format!("{}, {}, seed {}", row.regime, row.method, row.seed));
        rows[at] = Some(row);
        while from < jobs.len() {
            let name = &jobs[from].regime.name;
            let to = jobs[from..].iter().position(|job| job.regime.name != *name).map_or(jobs.len(), |to| from + to);
            if rows[from..to].iter().any(Option::is_none) {
                break;
            }
            done(rows[from..to].iter_mut().filter_map(Option::take).collect())?;
            from = to;
        }
        Ok(true)
    })
}

fn write(directory: &Path, results: &Results<'_>) -> Result<(), Failure> {
    let path = directory.join("regimes.json");
    let mut json = serde_json::to_vec_pretty(results).map_err(|error| Failure::file(&path, error))?;
    json.push(b'\n');
    output::write(&path, &json)?;
    output::write(&directory.join("table.md"), table::table(results).as_bytes())?;
    output::write(&directory.join("report.html"), page::html(results).as_bytes())
}
