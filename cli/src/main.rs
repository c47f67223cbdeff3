//! The `gradscale` program.

use clap::Parser;
use gradscale_cli::args::{Arguments, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Compare(compare) => gradscale_cli::compare::run(&compare),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gradscale: {error}");
            ExitCode::from(2)
        }
    }
}
