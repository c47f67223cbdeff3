//! The `gradscale` program.

use clap::{Parser, error::ErrorKind};
use gradscale_cli::{
    Failure,
    args::{Arguments, Command},
    commands, config,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let expanded = match config::expand(std::env::args_os()) {
        Ok(expanded) => expanded,
        Err(error) => return fail(&error),
    };
    let arguments = match Arguments::try_parse_from(expanded) {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let done = match arguments.command {
        Command::Compare(compare) => gradscale_cli::compare::run(&compare),
        Command::Train(train) => return gradscale_cli::train::run(&train).unwrap_or_else(|error| fail(&error)),
        Command::Predict(predict) => gradscale_cli::predict::run(&predict),
        Command::Replay(replay) => gradscale_cli::replay::run(&replay),
        Command::Regimes(regimes) => gradscale_cli::regimes::run(&regimes),
        Command::Propose(propose) => gradscale_cli::propose::run(&propose),
        Command::Inspect(inspect) => commands::inspect::run(&inspect),
        Command::Plan(plan) => commands::plan::run(&plan),
        Command::Completions { shell } => commands::completions::run(shell),
        Command::Devices => commands::devices::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &Failure) -> ExitCode {
    eprintln!("gradscale: {error}");
    ExitCode::from(2)
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
