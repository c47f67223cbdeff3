//! `gradscale completions`.

use crate::{Failure, output};
use clap::Command;
use clap_complete::Shell;

/// Prints the completion script of the program for a shell.
///
/// # Errors
/// An output that cannot be written.
pub fn run(program: &mut Command, shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, program, "gradscale", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
