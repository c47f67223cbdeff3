//! Command line: the list of commands.

use crate::commands::{
    compare::Compare, export::Export, inspect::Inspect, plan::Plan, predict::Predict, propose::Propose,
    regimes::Regimes, replay::Replay, report::Report, train::Train, window::WindowArguments,
};
use clap::{Parser, Subcommand};

/// Trains neural networks in 16-bit floating point, with a scale of its own for every gradient.
#[derive(Debug, Parser)]
#[command(name = "gradscale", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Arguments {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  gradscale compare
      five methods on synthetic road scenes, then on two towers that no single scale can train: a minute or two
  gradscale compare --data camvid-90x120 --batch 12 --iters 600
      the same on CamVid
  gradscale compare --methods fp32,gs:paper,gs:exact,interval=100 --seeds 0,1,2
  gradscale train --task classify --data mnist --iters 2000
      a residual network on MNIST or CIFAR; without --data, on synthetic digits";

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trains one network by several methods from the same start, and compares them.
    Compare(Compare),
    /// Trains by one method with checkpoints, or resumes a training.
    Train(Train),
    /// Applies a trained network to images: label images, and overlays to look at.
    Predict(Predict),
    /// Writes a trained network as an ONNX model, for other runtimes.
    Export(Export),
    /// Evaluates another method on a recorded training.
    Replay(Replay),
    /// Writes the page of a recorded training: that of `train`, or one in PyTorch.
    Report(Report),
    /// Benchmarks scaling rules in regimes that are hard on them: losses that change by orders of magnitude, values
    /// that are not finite, heads of unlike weight.
    Regimes(Regimes),
    /// Measures at which loss scales a network trains: how many powers of two serve every gradient of a batch, and
    /// where the scales of torch.amp, tiny-cuda-nn and DeepSpeed lie.
    Window(WindowArguments),
    /// Proposes a fixed loss scale from a recorded training, with the reason.
    Propose(Propose),
    /// Inspects a number (bit fields, value, neighbours, casts) or the error of a long sum.
    Inspect(Inspect),
    /// Shows which operator runs in which precision.
    Plan(Plan),
    /// Prints completions for a shell, to be sourced by it.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Lists the available devices and their treatment of subnormal numbers.
    Devices(crate::commands::devices::Devices),
}
