//! Command line: the list of commands.

use crate::commands::{
    compare::Compare, export::Export, inspect::Inspect, plan::Plan, predict::Predict, propose::Propose,
    regimes::Regimes, replay::Replay, report::Report, train::Train, window::WindowArguments,
};
use clap::{Parser, Subcommand};

/// Trains neural networks in 16-bit floating point, with a separate scale for every gradient.
#[derive(Debug, Parser)]
#[command(name = "gradscale", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Arguments {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  gradscale compare
      demonstrates where loss scales fail: one NaN image, recordings too short, two towers, SegNet; a minute
  gradscale compare --data camvid-90x120 --batch 12 --iters 600
      compares them on CamVid
  gradscale compare --methods fp32,gs:paper,gs:exact,interval=100 --seeds 0,1,2
  gradscale train --task classify --data mnist --iters 2000
      trains a residual network on MNIST or CIFAR; without --data, on synthetic digits";

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trains one network with several methods from the same first weights, and compares them.
    Compare(Compare),
    /// Trains with one method and writes checkpoints, or resumes a training.
    Train(Train),
    /// Applies a trained network to images, tables, recordings or texts, and writes its predictions.
    Predict(Predict),
    /// Writes a trained network as an ONNX model, for other runtimes.
    Export(Export),
    /// Evaluates another method on a recorded training.
    Replay(Replay),
    /// Writes the HTML report of a training that `gradscale train --trace` or PyTorch recorded.
    Report(Report),
    /// Benchmarks scaling rules in hard regimes: losses that change by orders of magnitude, values that are not finite,
    /// heads with very different weights.
    Regimes(Regimes),
    /// Measures the range of loss scales that a network can use: the powers of two at which every gradient of a batch
    /// is accurate, and the scales of torch.amp, tiny-cuda-nn and DeepSpeed in comparison.
    Window(WindowArguments),
    /// Proposes a fixed loss scale from a recorded training, with the reason.
    Propose(Propose),
    /// Inspects a number (bit fields, value, neighbours, casts) or the error of a long sum.
    Inspect(Inspect),
    /// Shows the precision of every operator of a network.
    Plan(Plan),
    /// Prints a completion script for a shell.
    Completions {
        /// Shell that reads the script.
        shell: clap_complete::Shell,
    },
    /// Lists the available devices and their treatment of subnormal numbers.
    Devices(crate::commands::devices::Devices),
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use crate::data_messages::OPTIONS;
    use clap::CommandFactory;
    use std::{collections::BTreeSet, fs, path::Path};

    /// Adds all names in backticks in the code of a directory, without its comments.
    fn add_names(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).expect("the sources of gradscale-data") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                add_names(&path, found);
            } else {
                let text = fs::read_to_string(&path).expect("a source");
                let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
                let quoted =
                    code.clone().flat_map(|line| line.split('`').skip(1).step_by(2).map(|name| format!("`{name}`")));
                found.extend(quoted);
                assert!(code.clone().all(|line| !line.contains("--")), "{} names options of a program", path.display());
            }
        }
    }

    #[test]
    fn every_name_in_messages_about_data_is_an_option_of_the_program() {
        let mut found = BTreeSet::new();
        add_names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/src"), &mut found);
        // A value, and not an option.
        assert!(found.remove("`none`"));
        assert_eq!(found, OPTIONS.map(|(name, _)| name.to_owned()).into());
        let train = Arguments::command().find_subcommand("train").expect("a command").clone();
        let known: BTreeSet<String> =
            train.get_arguments().filter_map(|one| one.get_long()).map(|long| format!("--{long}")).collect();
        for (_, option) in OPTIONS {
            assert!(known.contains(option.split(' ').next().expect("a word")), "{option}");
        }
    }
}
