//! `results.json`: all runs, with the arguments.

use super::Compare;
use crate::{
    machine::Origin,
    record::{
        Description, Record,
        verdict::{Evaluation, Sentence, evaluate, verdict},
    },
    tasks::{Dataset, Net},
};
use gradscale::{BASELINES, Method};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::path::Path;

/// Explanation of the training with a bad image.
const BAD_IMAGE: &str = "One training image is NaN, as after 0/0 in an augmentation. Its batch has no finite gradients, so \
                         every method skips it, once in each of 60 epochs. A dynamic loss scale also halves each time, \
                         and grows again only after 2000 clean steps, or 26 epochs. Settings are those of a study with \
                         photographs (docs/natural.md). With this noise f32 classifies as many of the digits correctly as \
                         of photographs; nothing else decided it. Digits that a network soon knows by heart lose \
                         nothing, because nothing is left to learn when the scale is gone.";

/// Explanation of the recordings that are too short.
const SHORT_RECORDINGS: &str = "The network keeps every fourth frame, as many speech networks do, so a word that is said \
                                very fast has fewer steps than letters. Its CTC loss is infinite with PyTorch’s default \
                                zero_infinity=False. Every method skips such batches, and a dynamic loss scale also \
                                halves each time. Words, durations and settings are those of a study with spoken digits \
                                (docs/natural.md). With this noise f32 learns about as fast as there; nothing else \
                                decided it. zero_infinity=True is a cure as well, for who knows the cause.";

/// Explanation of the two towers.
const TOWERS: &str = "Two towers share one trunk, and each classifies the digit. The second tower’s loss counts 2⁻⁴⁶ of \
                      the first’s and its learning rate 2⁴⁶ times as much, so that in f32 both train alike; in FP16 no \
                      single scale holds the gradients of both.";

/// Results of a comparison: the requested case, and those shown with it.
#[derive(Debug)]
pub struct Results<'a> {
    pub origin: Origin,
    /// Cases that were compared, the requested one first.
    pub cases: Vec<Case<'a>>,
    /// Number of runs of all cases, including those that are not finished.
    pub planned: usize,
}

impl<'a> Results<'a> {
    /// Creates the results of so many runs, of which none is finished.
    pub fn new(planned: usize) -> Self {
        Self { origin: Origin::here(), cases: Vec::new(), planned }
    }

    /// Returns the number of finished runs.
    pub fn finished(&self) -> usize {
        self.cases.iter().map(|case| case.runs.len()).sum()
    }

    /// Returns true if all runs are finished.
    pub fn is_complete(&self) -> bool {
        self.finished() == self.planned
    }

    /// Returns the sentence that runs are missing and how to go on; `None` if the results are complete.
    pub fn notice(&self, directory: &Path) -> Option<String> {
        let (finished, planned) = (self.finished(), self.planned);
        (finished != planned).then(|| {
            let missing = planned - finished;
            let (are, them) = if missing == 1 { ("is", "it") } else { ("are", "them") };
            let resume = super::resume_command(directory);
            format!("Not complete: {missing} of {planned} runs {are} missing. Run {them} with: {resume}")
        })
    }
}

/// Fields of a run without its time series.
const RUN_FIELDS: [&str; 10] = [
    "method",
    "seed",
    "iterations",
    "final_loss",
    "metrics",
    "skipped_steps",
    "repeats",
    "seconds",
    "failure",
    "doubts",
];

/// Returns the content of `results.json` without time series, for `--json`.
pub fn summarize(directory: &Path, results: &Value) -> Value {
    let fields = |of: &Value, names: &[&str]| -> Map<String, Value> {
        names.iter().map(|name| ((*name).to_owned(), of[*name].clone())).collect()
    };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let part = |part: &Value| {
        let mut all = fields(part, &["title", "verdict"]);
        let runs = list(&part["runs"]).iter().map(|run| Value::Object(fields(run, &RUN_FIELDS))).collect();
        all.insert("runs".to_owned(), runs);
        Value::Object(all)
    };
    let beside = list(&results["beside"]);
    let parts: Vec<Value> = std::iter::once(results).chain(&beside).map(part).collect();
    json!({
        "directory": directory, "report": directory.join("report.html"), "complete": results["complete"],
        "parts": parts,
    })
}

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct ResultsFile<'a> {
            #[serde(flatten)]
            origin: &'a Origin,
            complete: bool,
            #[serde(flatten)]
            first: Option<&'a Case<'a>>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            beside: &'a [Case<'a>],
        }
        let (complete, first) = (self.is_complete(), self.cases.first());
        let beside = self.cases.get(1..).unwrap_or_default();
        ResultsFile { origin: &self.origin, complete, first, beside }.serialize(serializer)
    }
}

/// Case of a comparison: one network and data set, trained by all methods and seeds.
#[derive(Debug)]
pub struct Case<'a> {
    pub arguments: &'a Compare,
    pub described: Description,
    pub runs: Vec<Record>,
    pub data: &'a dyn Dataset,
}

impl Serialize for Case<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct CaseFile<'a> {
            title: String,
            verdict: Vec<Sentence>,
            arguments: &'a Compare,
            data: &'a Description,
            runs: &'a [Record],
            #[serde(flatten)]
            evaluation: Evaluation,
        }
        let runs: Vec<&Record> = self.runs.iter().collect();
        let evaluation = evaluate(self.methods(), &runs, self.data.baseline());
        let (title, verdict, data) = (self.title(), self.verdict(), &self.described);
        CaseFile { title, verdict, arguments: self.arguments, data, runs: &self.runs, evaluation }.serialize(serializer)
    }
}

impl<'a> Case<'a> {
    /// Creates the case of a data set, with no runs yet.
    pub fn new(arguments: &'a Compare, data: &'a dyn Dataset) -> Self {
        Self { arguments, described: Description::from_dataset(data), runs: Vec::new(), data }
    }

    /// Returns the names of the methods, in the order of the command line.
    pub fn methods(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.arguments.methods.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns network and data set in one line.
    pub fn title(&self) -> String {
        self.described.title(&self.arguments.setup)
    }

    /// Returns the settings, program and machine of the comparison.
    pub fn circumstances(&self, origin: &Origin) -> String {
        let arguments = self.arguments;
        let seeds = arguments.all_seeds();
        let (setup, pixels) = (&arguments.setup, arguments.divisor());
        let all = self.described.circumstances(setup, pixels, arguments.iters, &seeds, origin);
        match arguments.jobs() {
            1 => all,
            jobs => format!("{all} Up to {jobs} runs at a time, so that a step takes longer than alone."),
        }
    }

    /// Returns notes about the methods: loss scales that cannot grow in so short a run, and the expansion of names and
    /// of intervals relative to the run.
    pub fn notes(&self) -> Vec<Sentence> {
        let iters = self.arguments.iters;
        let note = |(name, method): &(String, Method)| {
            let shown = method.to_string();
            let stands_for =
                BASELINES.iter().any(|baseline| name.starts_with(baseline.name)) || name.contains("steps/");
            let meant = (stands_for && shown != *name).then(|| format!("stands for {shown}."));
            let texts = meant.into_iter().chain(method.growth_warning(iters));
            texts.map(|text| Sentence { about: name.clone(), text }).collect::<Vec<_>>()
        };
        self.arguments.methods.0.iter().flat_map(note).collect()
    }

    /// Returns the network and how its loss is divided, as the subject of the verdict.
    pub fn subject(&self) -> String {
        self.arguments.setup.subject(self.arguments.divisor())
    }

    /// Returns an explanation of what the case shows; empty for ordinary networks.
    pub fn about(&self) -> &'static str {
        let setup = &self.arguments.setup;
        if setup.reading.bad_image {
            BAD_IMAGE
        } else if setup.reading.short_recordings {
            SHORT_RECORDINGS
        } else if setup.chosen.net() == Net::Towers {
            TOWERS
        } else {
            ""
        }
    }

    /// Returns the verdict on the compared methods, as sentences.
    pub fn verdict(&self) -> Vec<Sentence> {
        let runs: Vec<&Record> = self.runs.iter().collect();
        let sentences = verdict(&self.subject(), self.methods(), &runs, self.data.baseline());
        sentences.into_iter().chain(self.notes()).collect()
    }
}
