//! The `gradscale` program.

use clap::{Parser, error::ErrorKind};
use gradscale_cli::{
    args::{Arguments, Command},
    commands,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let done = match arguments.command {
        Command::Compare(compare) => gradscale_cli::compare::run(&compare),
        Command::Train(train) => gradscale_cli::train::run(&train),
        Command::Predict(predict) => gradscale_cli::predict::run(&predict),
        Command::Replay(replay) => gradscale_cli::replay::run(&replay),
        Command::Inspect(inspect) => commands::inspect::run(&inspect),
        Command::Plan(plan) => commands::plan::run(&plan),
        Command::Devices => commands::devices::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gradscale: {error}");
            ExitCode::from(2)
        }
    }
}

/// Help as it is; errors in one line.
fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print().ok();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print().ok();
            ExitCode::from(2)
        }
        _ => {
            let text = error.to_string();
            let lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
            let line = lines.collect::<Vec<_>>().join(" ");
            eprintln!("gradscale: {}", line.trim_start_matches("error: "));
            ExitCode::from(2)
        }
    }
}
