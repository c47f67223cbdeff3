//! Terminal output, and files that are written atomically.

mod claim;
pub(crate) mod layout;
mod progress;

pub use claim::{Claim, check_absent, check_listed, check_own, check_replaceable, claim, write_listed};
pub use progress::{Counter, Progress, show_file_progress};

use crate::Failure;
use serde::Serialize;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

/// True after `--json`: the standard output then has JSON only, and text for readers goes to the standard error.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets whether the standard output has JSON only.
pub fn set_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

/// Writes text for readers to the standard output, or with `--json` to the standard error. A reader that has gone away
/// (`| head`) is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    if IS_JSON.load(Ordering::Relaxed) {
        // A closed standard error cannot be reported anywhere.
        anstream::stderr().lock().write_all(text.as_bytes()).ok();
        return Ok(());
    }
    write_out(text)
}

/// Writes a value as one line of JSON to the standard output if `--json` was given.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    if !IS_JSON.load(Ordering::Relaxed) {
        return Ok(());
    }
    let line = serde_json::to_string(value).map_err(|error| Failure::at("--json", error))?;
    write_out(&format!("{line}\n"))
}

fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::at("standard output", error)),
        _ => Ok(()),
    }
}

/// Prints a warning to the standard error.
pub fn warn(what: &Failure) {
    // A closed standard error cannot be reported anywhere.
    writeln!(anstream::stderr(), "gradscale: {what}").ok();
}

/// Returns a command line of this program, quoted for a shell. `directory` is its last argument.
pub fn command(arguments: &str, directory: &Path) -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "gradscale".into());
    // A name must not pass for an option.
    let dashed = directory.as_os_str().as_encoded_bytes().starts_with(b"-");
    let directory = if dashed { Path::new(".").join(directory) } else { directory.to_owned() };
    format!("{} {arguments} {}", quoted(&program.to_string_lossy()), quoted(&directory.to_string_lossy()))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:+@%=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Renames a damaged file to the first unused of NAME.damaged-1, NAME.damaged-2, … and returns its path.
pub fn set_aside(path: &Path) -> Result<PathBuf, Failure> {
    let name = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        PathBuf::from(name)
    };
    let free = (1..=u32::MAX).map(name).find(|free| !free.exists());
    let free = free.ok_or_else(|| Failure::file(path, "too many damaged files of this name; delete some"))?;
    fs::rename(path, &free).map_err(|error| Failure::file(path, error))?;
    Ok(free)
}

/// Ending of temporary files.
pub const TEMPORARY: &str = ".part";

/// Writes a file as a whole, or not at all.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    gradscale::write_file(path, content).map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        assert_eq!(quoted("runs/a-1"), "runs/a-1");
        assert_eq!(quoted("my run"), "'my run'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert!(command("train --resume", Path::new("-x")).ends_with("train --resume ./-x"));
    }
}
