//! Options in the text of a method: parsed one by one, and written.

use std::{fmt, str::FromStr};

/// Names of the precision options of all methods, for messages.
const EVERYWHERE: &str = "and amp, f32, half, allow, deny, inside, infer for every method";

/// Returns the present name of an option. `least` and `most` are the former names of `min` and `max`, which texts of before
/// contain.
pub(super) fn current_name(key: &str) -> &str {
    match key {
        "least" => "min",
        "most" => "max",
        _ => key,
    }
}

/// Part of a method's text after its name: an optional word, then options.
#[derive(Debug, Default)]
pub(super) struct Options<'a> {
    /// First word of a method's options, which has no key.
    pub first: Option<&'a str>,
    /// Number of steps of the training, if it is known.
    pub steps: Option<u64>,
    rest: Vec<(&'a str, &'a str)>,
}

impl<'a> Options<'a> {
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let mut options = Self::default();
        for (at, part) in text.split(',').map(str::trim).filter(|part| !part.is_empty()).enumerate() {
            match part.split_once('=') {
                Some((key, value)) => {
                    let key = current_name(key.trim());
                    if options.rest.iter().any(|(known, _)| *known == key) {
                        return Err(format!("{key} is given twice"));
                    }
                    options.rest.push((key, value.trim()));
                }
                None if at == 0 => options.first = Some(part),
                None => return Err(format!("{part} is not option=value")),
            }
        }
        Ok(options)
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_empty()
    }

    /// Returns the value of the option `key` and removes it from the options.
    pub fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.rest.iter().position(|(known, _)| *known == key)?;
        Some(self.rest.remove(at).1)
    }

    /// Returns the value of an option, parsed to its type, and removes it; `what` describes the valid values in the
    /// error.
    pub fn read<T: FromStr>(&mut self, key: &str, what: &str) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("{key} must be {what}, not {value}"))
    }

    /// Checks that no option is left; `known` lists the options of `name` for the error.
    pub fn end(&self, name: &str, known: &str) -> Result<(), String> {
        match self.rest.first() {
            Some((key, _)) => Err(format!("{name} has no option {key}; its options are {known}; {EVERYWHERE}")),
            None => Ok(()),
        }
    }
}

/// Text of a method while it is written.
pub(super) struct Text(pub String);

impl Text {
    pub fn push(&mut self, key: &str, value: impl fmt::Display) {
        let separator = if self.0.contains(':') { ',' } else { ':' };
        self.0.push_str(&format!("{separator}{key}={value}"));
    }

    /// Appends an option to the method's text unless it has its default value.
    pub fn unless<T: PartialEq>(&mut self, usual: T, key: &str, value: T, shown: impl fmt::Display) {
        if value != usual {
            self.push(key, shown);
        }
    }
}
