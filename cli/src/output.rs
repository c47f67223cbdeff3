//! Terminal output, and files that are written atomically.

use crate::Failure;
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

/// Writes to the standard output. A reader that has gone away (`| head`) is no error.
pub fn print(text: &str) -> Result<(), Failure> {
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

/// Writes a file atomically: to a temporary file, synced, then renamed.
pub fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let temporary = path.with_extension("part");
    let steps = || {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        // The rename itself is on disk once the directory is.
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    };
    steps().map_err(|error: std::io::Error| {
        fs::remove_file(&temporary).ok();
        Failure::file(path, error)
    })
}

/// Creates the directory for results: the requested one, which must not hold the file `result` yet, or the first of
/// STEM-1, STEM-2 … that is not there.
pub fn directory(asked: Option<&Path>, stem: &str, result: &str) -> Result<PathBuf, Failure> {
    if let Some(path) = asked {
        fs::create_dir_all(path).map_err(|error| Failure::file(path, error))?;
        let results = path.join(result);
        if results.exists() {
            return Err(Failure::file(&results, "exists already; choose another directory for --out"));
        }
        return Ok(path.to_owned());
    }
    for number in 1u32.. {
        let path = PathBuf::from(format!("{stem}-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::file(&path, error)),
        }
    }
    Err(Failure::at(stem, "too many directories of this name; choose one with --out"))
}

/// Creates a progress bar for `steps` steps, hidden if the output is no terminal.
pub fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}");
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}
