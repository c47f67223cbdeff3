//! `gradscale window`: powers of two that serve as a loss scale, for given weights and a batch.

use crate::{
    Failure, output,
    setup::{Setup, threads},
    tasks::{DistributedOptions, LossDivisor, TrainingConfig, open},
};
use clap::Args;
use gradscale::{
    Method, Scaling,
    gradscale_core::amp::{Level, Precision},
    window::{GradientErrors, LIBRARY_SCALES, ScaleWindow, ScaleWindows},
};
use serde_json::{Value, json};
use std::fmt::Write;

/// `gradscale window`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct WindowArguments {
    /// Network, data and device.
    #[command(flatten)]
    setup: Setup,
    /// Training steps before the measurement; 0 measures with the first weights.
    #[arg(long, value_name = "N", default_value_t = 0)]
    steps: u64,
    /// Method of these steps. If it has a loss scale, the output compares that with the window. `gradscale compare
    /// --help` lists the methods.
    #[arg(long, value_name = "METHOD", default_value = "dynamic")]
    method: String,
    /// Divisor of the summed losses: a number of pixels or images, or `batch` for the number in the batch.
    #[arg(long, value_name = "N|batch", default_value = "batch")]
    pixels: LossDivisor,
    /// Seed of first weights, order of the data and flips of images.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Number of CPU threads; 0: one for each core. Results do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    threads: usize,
    /// Prints the result as JSON.
    #[arg(long)]
    json: bool,
}

const HELP: &str = "The window begins at the smallest scale at which the error of every parameter's gradient
is at most twice its error with a scale for each tensor, or 2 %. It ends before the first
scale at which a finite value overflows. Errors are relative to a backward pass in f32
after the same forward pass in half.
Weight gradients are f32 (Megatron) or half (torch.amp, apex, DeepSpeed).

Example:
  gradscale window --network segnet-basic --data camvid-90x120 --steps 60";

/// Maximum length of a printed line.
const COLUMNS: usize = 80;

/// Measures the window of usable loss scales and prints it.
///
/// # Errors
/// Data or a method that cannot be used, a batch whose gradients are not finite, the device's.
pub fn run(arguments: &WindowArguments) -> Result<(), Failure> {
    let mut setup = arguments.setup.for_data().0.resolved()?;
    let steps = arguments.steps.max(1);
    let method = Method::for_steps(&arguments.method, steps).map_err(|error| Failure::at("--method", error))?;
    setup.amp.check(setup.chosen.network()?, [(arguments.method.as_str(), &method)])?;
    let method = setup.amp.only(method)?;
    if method.amp.level() == Level::O0 {
        return Err(Failure::at(format_args!("--method {}", arguments.method), "stores no gradient in half"));
    }
    let has_loss_scale = matches!(method.scaling, Scaling::Loss(_));
    // With --json only JSON goes to the standard output.
    let data = if arguments.json { setup.load_quietly(arguments.seed) } else { setup.load(arguments.seed) }?;
    if arguments.setup.batch.is_none() {
        setup.fit_batch(&*data, 1);
    }
    let opening = TrainingConfig {
        device: setup.device(),
        threads: arguments.threads,
        settings: setup.settings(arguments.pixels, steps)?,
        method,
        seed: arguments.seed,
        weights: None,
        perturbed: false,
        parts: None,
        together: DistributedOptions::alone(),
    };
    let mut training = open(&*data, opening)?;
    for _ in 0..arguments.steps {
        training.step()?;
    }
    let scale = has_loss_scale.then(|| training.loss_scale());
    let Some(window) = training.window()? else {
        let cause = "gradients are not finite in f32 either, because the forward pass or the loss overflows; no loss scale \
             helps";
        return Err(Failure::at(format_args!("step {}", arguments.steps + 1), cause));
    };
    let network = format!("{} on {}", setup.chosen.net(), data.name());
    if arguments.json {
        let text = serde_json::to_string_pretty(&as_json(arguments, &network, &window, scale));
        return output::print(&format!("{}\n", text.map_err(|error| Failure::at("--json", error))?));
    }
    output::print(&as_text(arguments, &network, &window, scale))
}

/// Returns loss scales with their names: those of libraries, and that of the training.
fn scales(own: Option<i32>) -> Vec<(&'static str, i32)> {
    let libraries = LIBRARY_SCALES.iter().map(|one| (one.library, one.exponent));
    libraries.chain(own.map(|exponent| ("this training", exponent))).collect()
}

fn as_json(arguments: &WindowArguments, network: &str, window: &ScaleWindows, own: Option<i32>) -> Value {
    let GradientErrors { median, worst, parameter } = &window.per_tensor;
    let one = |one: &ScaleWindow| {
        json!({
            "weight_gradients": precision(one.weight_gradients), "least": one.least, "overflow": one.overflow,
            "binades": one.binades(), "lost": one.lost, "overflowed": one.overflowed,
        })
    };
    let scales: Vec<Value> =
        scales(own).into_iter().map(|(name, exponent)| json!({"name": name, "exponent": exponent})).collect();
    json!({
        "network": network, "steps": arguments.steps, "method": arguments.method, "seed": arguments.seed,
        "parameters": window.compared, "left_out": window.left_out,
        "per_tensor": {"median": median, "worst": worst, "parameter": parameter},
        "windows": [one(&window.single), one(&window.half)], "scales": scales,
    })
}

const fn precision(precision: Precision) -> &'static str {
    match precision {
        Precision::Single => "f32",
        Precision::Half => "half",
    }
}

fn as_text(arguments: &WindowArguments, network: &str, window: &ScaleWindows, own: Option<i32>) -> String {
    let WindowArguments { steps, method, seed, .. } = arguments;
    let mut text = String::new();
    let state = if *steps == 0 { "first weights".to_owned() } else { format!("{steps} steps of {method}") };
    writeln!(text, "{network}\n{state}, seed {seed}, {} parameters", window.compared).ok();
    if window.left_out > 0 {
        writeln!(text, "{} skipped, because their gradients are zero up to rounding", window.left_out).ok();
    }
    let GradientErrors { median, worst, parameter } = &window.per_tensor;
    writeln!(text, "error with a scale for each tensor: median {median:.1e}, worst {worst:.1e}").ok();
    writeln!(text, "  {}", shortened(parameter, COLUMNS - 2)).ok();
    for one in [&window.single, &window.half] {
        writeln!(text, "\nweight gradients in {}: {}", precision(one.weight_gradients), extent(one)).ok();
        let ends = [("smaller scales lose", &one.lost), ("larger ones overflow", &one.overflowed)];
        for (what, name) in ends {
            if let Some(name) = name {
                writeln!(text, "  {what:21}{}", shortened(name, COLUMNS - 23)).ok();
            }
        }
        for (name, exponent) in scales(own) {
            writeln!(text, "  {name:14}{:>6} {}", format!("2^{exponent}"), one.place(exponent)).ok();
        }
    }
    text
}

fn extent(window: &ScaleWindow) -> String {
    match (window.least, window.overflow) {
        (None, _) => "no scale works for all gradients".to_owned(),
        (Some(least), None) => format!("2^{least} and above, without an upper limit"),
        (Some(least), Some(end)) => format!("2^{least} to 2^{}, {}", end - 1, binades(window.binades())),
    }
}

fn binades(count: u32) -> String {
    if count == 1 { "1 binade".to_owned() } else { format!("{count} binades") }
}

/// Shortens a name that is too long to its end.
fn shortened(name: &str, columns: usize) -> String {
    let count = name.chars().count();
    if count <= columns {
        name.to_owned()
    } else {
        format!("…{}", name.chars().skip(count + 1 - columns).collect::<String>())
    }
}
