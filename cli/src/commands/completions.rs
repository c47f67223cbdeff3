//! `gradscale completions`.

use crate::{Failure, args::Arguments, output};
use clap::CommandFactory;
use clap_complete::Shell;

/// Prints completions.
///
/// # Errors
/// An output that cannot be written.
pub fn run(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "gradscale", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
