//! The program that `cargo run` builds in this repository: what the first commands need, and therefore quick to compile.

use std::process::ExitCode;

fn main() -> ExitCode {
    gradscale_cli::program::run()
}
