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
