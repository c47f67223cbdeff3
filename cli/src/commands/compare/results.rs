//! `results.json`: all runs, with the arguments.

use super::Compare;
use crate::{
    machine::Origin,
    record::{
        Description, Record,
        verdict::{Comparison, Sentence, comparisons, verdict},
    },
    tasks::Dataset,
};
use gradscale::{BASELINES, Method};
use serde::{Serialize, Serializer};

/// Results of a comparison: the requested case, and those shown with it.
#[derive(Debug)]
pub struct Results<'a> {
    pub origin: Origin,
    /// Cases that were compared, the requested one first.
    pub cases: Vec<Case<'a>>,
}

impl Serialize for Results<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct File<'a> {
            #[serde(flatten)]
            origin: &'a Origin,
            #[serde(flatten)]
            first: Option<&'a Case<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            beside: Option<&'a Case<'a>>,
        }
        File { origin: &self.origin, first: self.cases.first(), beside: self.cases.get(1) }.serialize(serializer)
    }
}

/// Case of a comparison: one network and data set, trained by all methods and seeds.
#[derive(Debug, Serialize)]
pub struct Case<'a> {
    pub arguments: &'a Compare,
    #[serde(rename = "data")]
    pub described: Description,
    pub runs: Vec<Record>,
    /// Paired comparisons with the baseline, if there are at least two seeds.
    pub paired: Vec<Comparison>,
    #[serde(skip)]
    pub data: &'a dyn Dataset,
}

impl<'a> Case<'a> {
    /// Creates the case of a data set, with no runs yet.
    pub fn new(arguments: &'a Compare, data: &'a dyn Dataset) -> Self {
        Self { arguments, described: Description::from_dataset(data), runs: Vec::new(), paired: Vec::new(), data }
    }

    /// Appends the record of a finished run, and updates the paired comparisons.
    pub fn push(&mut self, record: Record) {
        self.runs.push(record);
        let methods: Vec<&str> = self.methods().collect();
        let baseline =
            methods.iter().find(|method| **method == "fp32").or(methods.first()).copied().unwrap_or_default();
        self.paired = comparisons(&methods, baseline, &self.runs.iter().collect::<Vec<_>>());
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
        self.described.circumstances(setup, pixels, arguments.iters, &seeds, origin)
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

    /// Returns the verdict on the compared methods, as sentences.
    pub fn verdict(&self) -> Vec<Sentence> {
        let said = verdict(self.methods(), &self.runs.iter().collect::<Vec<_>>(), self.data.baseline());
        said.into_iter().chain(self.notes()).collect()
    }
}
