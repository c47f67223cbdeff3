//! `NAME:KEY=VALUE,…`, as methods are written; the colon may be a comma, too.

use std::{fmt, str::FromStr};

/// Parsed settings: a name with options, each of which can be taken once.
#[derive(Debug)]
pub(super) struct ParsedOptions<'a> {
    pub name: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> ParsedOptions<'a> {
    /// Parses a name with its options.
    ///
    /// # Errors
    /// An option without a value, or one that is given twice; in words.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let Some((name, rest)) = text.trim().split_once([':', ',']) else {
            return Ok(Self { name: text.trim(), options: Vec::new() });
        };
        let mut options: Vec<(&str, &str)> = Vec::new();
        for part in rest.split(',').map(str::trim) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not OPTION=VALUE"))?;
            let (key, value) = (key.trim(), value.trim());
            if options.iter().any(|(known, _)| *known == key) {
                return Err(format!("{key:?} is given twice"));
            }
            options.push((key, value));
        }
        Ok(Self { name: name.trim(), options })
    }

    /// Takes the value of an option, which is removed.
    pub fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.options.iter().position(|(known, _)| *known == key)?;
        Some(self.options.remove(at).1)
    }

    /// Takes a number that `fits`; `what` describes the valid ones.
    ///
    /// # Errors
    /// Any other value; the text names it.
    pub fn number<T: FromStr>(
        &mut self, key: &str, what: &str, fits: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = value.parse().ok().filter(fits);
        number.map(Some).ok_or_else(|| format!("{key} must be {what}, not {value:?}"))
    }

    /// Checks that no option is left; `known` lists the valid ones.
    ///
    /// # Errors
    /// An option that there is not, in words.
    pub fn end(self, known: &str) -> Result<(), String> {
        let Self { name, options } = self;
        options.first().map_or(Ok(()), |(key, _)| Err(format!("{name} has no option {key:?}; its options are {known}")))
    }
}

/// Writer of settings as text: a name, then options that differ from their defaults.
pub(super) struct Text<'f, 'a> {
    to: &'f mut fmt::Formatter<'a>,
    separator: char,
}

impl<'f, 'a> Text<'f, 'a> {
    pub fn new(to: &'f mut fmt::Formatter<'a>, name: &str) -> Result<Self, fmt::Error> {
        to.write_str(name)?;
        Ok(Self { to, separator: ':' })
    }

    /// Writes an option unless it has its default value.
    pub fn unless<T: PartialEq>(&mut self, usual: &T, key: &str, value: &T, shown: impl fmt::Display) -> fmt::Result {
        if value == usual {
            return Ok(());
        }
        write!(self.to, "{}{key}={shown}", self.separator)?;
        self.separator = ',';
        Ok(())
    }
}

/// Formats a number in few characters that are parsed as it: 0.9, and 1e-8.
pub(super) fn shortest(number: impl fmt::Display + fmt::LowerExp) -> String {
    let (plain, exponential) = (format!("{number}"), format!("{number:e}"));
    if plain.len() <= exponential.len() + 1 { plain } else { exponential }
}
