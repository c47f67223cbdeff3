//! A configuration file: the flags of a command, in TOML.
//!
//! `iters = 600` is `--iters 600`; lists are joined by commas; `true` is a flag without a value. Options on the command
//! line have priority.

use crate::{Failure, args::Arguments};
use clap::{Arg, CommandFactory};
use std::{ffi::OsString, fs, path::Path};
use toml::{Table, Value};

/// Returns the command-line arguments, extended by those of the file that `--config` names.
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
    let program = Arguments::command();
    let command = texts.iter().skip(1).find_map(|text| program.find_subcommand(text));
    let known = |key: &str| command.is_some_and(|one| one.get_arguments().any(|argument| is_called(argument, key)));
    for (key, flag) in flags(&text, known).map_err(|cause| Failure::file(path, cause))? {
        let given = format!("--{key}");
        if !texts.iter().any(|text| *text == given || text.starts_with(&format!("{given}="))) {
            arguments.push(flag.into());
        }
    }
    Ok(arguments)
}

/// Returns true if an option has this name or had it in an earlier version.
fn is_called(argument: &Arg, key: &str) -> bool {
    let before = argument.get_all_aliases().unwrap_or_default();
    argument.get_long() == Some(key) || before.contains(&key)
}

/// Returns the keys of a file, each with its flag. Keys set to `false` are omitted.
///
/// # Errors
/// Text that is no TOML, keys that are not `known`, values that no flag can have; in words.
pub fn flags(text: &str, known: impl Fn(&str) -> bool) -> Result<Vec<(String, String)>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let start = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = 1 + text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
        format!("line {line}: {}", error.message())
    })?;
    let mut flags = Vec::new();
    for (key, value) in table {
        if !known(&key) || key == "config" {
            return Err(format!("{key} is not an option of this command"));
        }
        let text = match &value {
            Value::Boolean(true) => {
                flags.push((key.clone(), format!("--{key}")));
                continue;
            }
            Value::Boolean(false) => continue,
            Value::Array(values) => values.iter().map(plain).collect::<Option<Vec<_>>>().map(|values| values.join(",")),
            value => plain(value),
        };
        let text = text.ok_or_else(|| format!("{key} must be a string, a number or a list of these"))?;
        flags.push((key.clone(), format!("--{key}={text}")));
    }
    Ok(flags)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}
