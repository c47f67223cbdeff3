//! `gradscale completions`.

use crate::{Failure, output};
use clap::Command;
use clap_complete::Shell;

/// Prints completions of a program.
///
/// # Errors
/// An output that cannot be written.
pub fn run(program: &mut Command, shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, program, "gradscale", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
