//! `results.json`: all runs, with what was asked for.

use super::Compare;
use crate::{
    machine::Origin,
    record::{
        Description, Record,
        verdict::{Sentence, verdict},
    },
    tasks::Dataset,
};
use serde::{Serialize, Serializer};

/// What was asked for, and what was shown beside it.
#[derive(Debug)]
pub struct Results<'a> {
    pub origin: Origin,
    /// The first is what was asked for.
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

/// One network with its data, by all methods and seeds.
#[derive(Debug, Serialize)]
pub struct Case<'a> {
    pub arguments: &'a Compare,
    #[serde(rename = "data")]
    pub described: Description,
    pub runs: Vec<Record>,
    #[serde(skip)]
    pub data: &'a dyn Dataset,
}

impl<'a> Case<'a> {
    /// Before any run.
    pub fn new(arguments: &'a Compare, data: &'a dyn Dataset) -> Self {
        Self { arguments, described: Description::of(data), runs: Vec::new(), data }
    }

    /// Names of the methods, in the order asked for.
    pub fn methods(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.arguments.methods.0.iter().map(|(name, _)| name.as_str())
    }

    /// What is trained, in a line.
    pub fn title(&self) -> String {
        self.described.title(&self.arguments.setup)
    }

    /// How, and by what.
    pub fn circumstances(&self, origin: &Origin) -> String {
        let arguments = self.arguments;
        let seeds = arguments.all_seeds();
        let (setup, pixels) = (&arguments.setup, arguments.divisor());
        self.described.circumstances(setup, pixels, arguments.iters, &seeds, origin)
    }

    /// What it says.
    pub fn verdict(&self) -> Vec<Sentence> {
        verdict(self.methods(), &self.runs.iter().collect::<Vec<_>>(), self.data.exam())
    }
}
