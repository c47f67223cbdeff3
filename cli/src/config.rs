//! A configuration file: the flags of a command, in TOML.
//!
//! `iters = 600` is `--iters 600`; lists are joined by commas; `true` is a flag without a value. What stands on the
//! command line wins.

use crate::{Failure, args::Arguments};
use clap::CommandFactory;
use std::{ffi::OsString, fs, path::Path};
use toml::{Table, Value};

/// Arguments with those of the file that `--config` names.
///
/// # Errors
/// A file that cannot be read, is no TOML, or has keys that the command does not know.
pub fn expand(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let texts: Vec<String> = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let named = texts.iter().enumerate().find_map(|(i, text)| match text.strip_prefix("--config") {
        Some("") => texts.get(i + 1).cloned(),
        Some(rest) => rest.strip_prefix('=').map(str::to_owned),
        None => None,
    });
    let Some(path) = named else { return Ok(arguments) };
    let path = Path::new(&path);
    let text = fs::read_to_string(path).map_err(|error| Failure::file(path, error))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        Failure::file(path, format!("line {line}: {}", error.message()))
    })?;
    let program = Arguments::command();
    let command = texts.iter().skip(1).find_map(|text| program.find_subcommand(text));
    let known =
        |key: &str| command.is_some_and(|one| one.get_arguments().any(|argument| argument.get_long() == Some(key)));
    for (key, value) in &table {
        if !known(key) || key == "config" {
            return Err(Failure::file(path, format!("{key} is no option of this command")));
        }
        let flag = format!("--{key}");
        if texts.iter().any(|text| *text == flag || text.starts_with(&format!("{flag}="))) {
            continue;
        }
        let text = match value {
            Value::Boolean(true) => {
                arguments.push(flag.into());
                continue;
            }
            Value::Boolean(false) => continue,
            Value::Array(values) => values.iter().map(plain).collect::<Option<Vec<_>>>().map(|values| values.join(",")),
            value => plain(value),
        };
        let text =
            text.ok_or_else(|| Failure::file(path, format!("{key} must be a text, a number or a list of these")))?;
        arguments.push(format!("{flag}={text}").into());
    }
    Ok(arguments)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}
