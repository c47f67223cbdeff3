//! The `gradscale` program.

use clap::{CommandFactory, Parser, error::ErrorKind};
use gradscale_cli::{
    Failure,
    args::{Arguments, Command},
    commands::{
        compare, completions, devices, export, inspect, plan, predict, propose, regimes, replay, report, train, window,
    },
    config,
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
        Command::Compare(asked) => compare::run(&asked),
        Command::Train(asked) => return train::run(&asked).unwrap_or_else(|error| fail(&error)),
        Command::Predict(asked) => predict::run(&asked),
        Command::Export(asked) => export::run(&asked),
        Command::Replay(asked) => replay::run(&asked),
        Command::Report(asked) => report::run(&asked),
        Command::Regimes(asked) => regimes::run(&asked),
        Command::Window(asked) => window::run(&asked),
        Command::Propose(asked) => propose::run(&asked),
        Command::Inspect(asked) => inspect::run(&asked),
        Command::Plan(asked) => plan::run(&asked),
        Command::Completions { shell } => completions::run(&mut Arguments::command(), shell),
        Command::Devices(asked) => devices::run(&asked),
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

/// Prints help unchanged and errors as one line; returns the exit code.
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
