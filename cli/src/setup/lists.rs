//! Options that are lists: methods, seeds.

use gradscale::{
    Method,
    gradscale_core::loss_scale::{Fixed, LossScale, SWEEP},
};
use serde::Serialize;
use std::str::FromStr;

/// Name of the method that is f32 from weights perturbed by 2^-20: its differences from f32 are the effect of rounding
/// errors.
pub const CHAOS: &str = "chaos";

/// List of different seeds, as the command line takes it.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Seeds(pub Vec<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut seeds = Vec::new();
        for part in text.split(',').map(str::trim) {
            let seed = part.parse().map_err(|_| {
                format!(
                    "{part:?} is not a seed; give whole numbers, separated by \
                commas"
                )
            })?;
            if seeds.contains(&seed) {
                return Err(format!("{seed} is given twice; the same seed shows nothing about chance"));
            }
            seeds.push(seed);
        }
        Ok(Self(seeds))
    }
}

/// List of methods, with the names by which the command line gave them.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Methods(#[serde(serialize_with = "names")] pub Vec<(String, Method)>);

/// Steps by which a list is read before the length of the training is known: enough for any part of a run.
pub(crate) const NOMINAL_STEPS: u64 = 1000;

impl Methods {
    /// Returns the methods for a training of `steps` steps, which resolves relative intervals such as
    /// `interval=steps/20`.
    pub fn for_steps(&self, steps: u64) -> Self {
        let read = |(name, method): &(String, Method)| {
            // The name was parsed before, so it is valid; methods that a sweep has created are not changed.
            (name.clone(), Method::for_steps(name, steps).unwrap_or_else(|_| method.clone()))
        };
        Self(self.0.iter().map(read).collect())
    }

    /// Returns `fp32` and the fixed scales of the papers.
    pub fn sweep() -> Self {
        let fixed = SWEEP.filter_map(|exponent| {
            let schedule = LossScale::Fixed(Fixed::new(exponent)?);
            Some((format!("fixed:{}", 1u64 << exponent), Method::loss_scale(schedule)))
        });
        Self(std::iter::once(("fp32".to_owned(), Method::fp32())).chain(fixed).collect())
    }
}

fn names<S: serde::Serializer>(methods: &[(String, Method)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(methods.iter().map(|(name, _)| name))
}

impl FromStr for Methods {
    type Err = String;

    /// Parses a list in which commas separate methods, and also the options of one.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut names: Vec<String> = Vec::new();
        for part in text.split(',').map(str::trim) {
            match names.last_mut() {
                // An option begins with its key, a method with options of its own has a colon before one.
                Some(last) if part.split_once('=').is_some_and(|(key, _)| !key.contains(':')) => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => names.push(part.to_owned()),
            }
        }
        if let Some(twice) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            return Err(format!("{} is given twice", twice.1));
        }
        let parse = |name: String| {
            if name == CHAOS {
                return Ok((name, Method::fp32()));
            }
            let read = Method::for_steps(&name, NOMINAL_STEPS);
            read.map(|method| (name, method)).map_err(|error| error.to_string())
        };
        names.into_iter().map(parse).collect::<Result<_, _>>().map(Self)
    }
}
