//! Help of options: headings by purpose, and values that shells complete.

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, TypedValueParser},
};
use gradscale::BASELINES;
use std::{error, ffi::OsStr, marker::PhantomData, str::FromStr};

/// Headings under which the help of commands lists options by purpose.
pub mod heading {
    pub const NETWORK: &str = "Network";
    pub const DATA: &str = "Data";
    pub const TRAINING: &str = "Training";
    pub const PRECISION: &str = "Precision and scaling";
    pub const DEVICE: &str = "Device and ranks";
    pub const RESULTS: &str = "Results";
}

/// Methods that shells complete, besides those named after libraries.
const METHODS: [&str; 14] = [
    "fp32",
    "chaos",
    "fp16",
    "fixed:128",
    "dynamic",
    "dynamic:10",
    "logmax",
    "delayed",
    "amax",
    "block:format=e4m3",
    "gs",
    "gs:paper",
    "gs:paper-literal",
    "gs:authors",
];

/// Returns the methods that shells complete.
pub fn methods() -> Vec<&'static str> {
    METHODS.into_iter().chain(BASELINES.iter().map(|baseline| baseline.name)).collect()
}

/// Returns the devices of this program that shells complete.
pub fn devices() -> Vec<&'static str> {
    let gpus = [(cfg!(feature = "wgpu"), "wgpu"), (cfg!(feature = "cuda"), "cuda")];
    std::iter::once("cpu").chain(gpus.into_iter().filter(|(is_built, _)| *is_built).map(|(_, name)| name)).collect()
}

/// Returns the learning-rate schedules that shells complete.
pub fn schedules() -> Vec<&'static str> {
    vec!["constant", "cosine", "cosine:warmup=20", "polynomial", "step:every=100", "step:at=200/300"]
}

/// Returns the optimizers that shells complete.
pub fn optimizers() -> Vec<&'static str> {
    vec![
        "sgd",
        "sgd:momentum=0.9",
        "sgd:momentum=0.9,nesterov=yes",
        "adam",
        "adamw",
        "lamb",
        "rmsprop",
        "adagrad",
        "lion",
    ]
}

/// Parser of an option's value from its text, with common values that shells complete. Others are valid too, so the help
/// hides them.
#[derive(Clone, Debug)]
pub struct Completed<T> {
    names: fn() -> Vec<&'static str>,
    parsed: PhantomData<fn() -> T>,
}

impl<T> Completed<T> {
    /// Creates the parser of an option for which shells complete these names.
    #[must_use]
    pub const fn new(names: fn() -> Vec<&'static str>) -> Self {
        Self { names, parsed: PhantomData }
    }
}

impl<T> TypedValueParser for Completed<T>
where
    T: FromStr<Err: Into<Box<dyn error::Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        (|text: &str| text.parse::<T>()).parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.names)().into_iter().map(PossibleValue::new)))
    }
}
