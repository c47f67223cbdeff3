//! The `gradscale` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    gradscale_cli::program::run()
}
