//! The whole program: from its arguments to its exit code.

use crate::{
    Failure,
    args::{Arguments, Command},
    commands::{
        compare, completions, devices, export, inspect, plan, predict, propose, regimes, replay, report, train, window,
    },
    config, output,
};
use clap::{
    CommandFactory, Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::process::ExitCode;

/// Runs the command that the arguments of the process ask for.
#[must_use]
pub fn run() -> ExitCode {
    output::show_file_progress();
    let expanded = match config::expand(std::env::args_os()) {
        Ok(expanded) => expanded,
        Err(error) => return fail(&error),
    };
    let arguments = match Arguments::try_parse_from(&expanded) {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let done = match arguments.command {
        Command::Compare(asked) => return compare::run(&asked, &expanded).unwrap_or_else(|error| fail(&error)),
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
    output::warn(error);
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
            let similar = similar(error).map_or(String::new(), |similar| format!("; did you mean {similar}?"));
            output::warn(&Failure::plain(&format!("{}{similar}", line.trim_start_matches("error: "))));
            ExitCode::from(2)
        }
    }
}

/// Returns the commands, options or values that resemble the unknown one of an error; `None` without any.
fn similar(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind))? {
        ContextValue::String(name) => Some(name.clone()),
        ContextValue::Strings(names) if !names.is_empty() => Some(names.join(" or ")),
        // Any other kind of value is not a name.
        _ => None,
    }
}
