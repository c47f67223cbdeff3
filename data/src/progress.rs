//! Progress of reading many files, for a program that shows it.

use std::sync::OnceLock;

/// Progress that is shown while many files are read; dropped when they have been read.
pub trait Progress: Sync {
    /// Counts one more file.
    fn advance(&self);
}

/// Function that begins to show a progress, from a number of files and a text.
pub type StartProgress = fn(u64, &'static str) -> Box<dyn Progress>;

static START: OnceLock<StartProgress> = OnceLock::new();

/// Sets how this process shows that many files are read; the first call counts. Without one nothing is shown.
pub fn show_progress(start: StartProgress) {
    // A second call is a second user of one terminal.
    START.set(start).ok();
}

/// Begins to show a progress.
pub(crate) fn start(files: u64, text: &'static str) -> Box<dyn Progress> {
    START.get().map_or_else(|| Box::new(Hidden) as Box<dyn Progress>, |start| start(files, text))
}

/// Progress that nobody sees.
struct Hidden;

impl Progress for Hidden {
    fn advance(&self) {}
}
