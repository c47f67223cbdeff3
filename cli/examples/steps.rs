//! Training steps on request of another process: for `scripts/against_pytorch.py`, which runs PyTorch's steps between
//! ours.
//!
//!     cargo run --release -p gradscale-cli --example steps -- --methods fp32,gs --network resnet-18 --data DIR
//!
//! Options are those of `gradscale train`, with several methods. A line of JSON describes the training. Then each line
//! of standard input names a method, one step runs, and a line of JSON has its measurements:
//!
//!   first   network, batch, image (rows and columns of an example), classes
//!   others  seconds (without the next batch), fetched (seconds of that), sizes (of images, recordings
//!           or texts side by side), loss, skipped, resident and peak (bytes of the
//!           process), device (bytes: activations, parameters and all else)

use clap::Parser;
use gradscale::{Method, gradscale_core::stats::Detail};
use gradscale_cli::{
    Failure,
    setup::{Methods, Setup},
    tasks::{DistributedOptions, LossDivisor, TrainingConfig, TrainingRun, open},
};
use serde_json::json;
use std::{fs, io, process::ExitCode, time::Instant};

/// Steps of a training, one for each line of standard input.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    setup: Setup,
    /// Methods, of which each line names one.
    #[arg(long)]
    methods: Methods,
    /// Threads of the CPU; 0: one for each core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Steps that the learning rate's schedule is made for.
    #[arg(long, default_value_t = 1000)]
    iters: u64,
}

fn main() -> ExitCode {
    match work(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("steps: {error}");
            ExitCode::from(2)
        }
    }
}

fn work(asked: &Arguments) -> Result<(), Failure> {
    let setup = &asked.setup;
    let data = setup.load(0)?;
    let opened = |method: &Method| {
        let settings = setup.settings(LossDivisor::Batch, asked.iters)?;
        let (device, threads, method) = (setup.device(), asked.threads, setup.amp.apply_to(method.clone()));
        open(
            &*data,
            TrainingConfig {
                device,
                threads,
                settings,
                method,
                seed: 0,
                weights: None,
                perturbed: false,
                parts: None,
                together: DistributedOptions::alone(),
            },
        )
    };
    let runs = asked.methods.0.iter().map(|(name, method)| Ok((name.as_str(), opened(method)?)));
    let mut runs = runs.collect::<Result<Vec<(&str, Box<dyn TrainingRun + '_>)>, Failure>>()?;
    let (words, batch, image, classes) = (setup.words(), setup.batch(), data.size(), data.classes().len());
    say(&json!({ "network": words, "batch": batch, "image": image, "classes": classes }));
    for line in io::stdin().lines() {
        let line = line.map_err(|error| Failure::at("standard input", error))?;
        let found = runs.iter_mut().find(|(name, _)| *name == line.trim());
        let (_, run) = found.ok_or_else(|| Failure::at(&line, "is none of --methods"))?;
        run.observe(Detail::Counts);
        let start = Instant::now();
        let outcome = run.step()?;
        let (all, fetched, memory) = (start.elapsed(), run.load_time(), run.memory());
        say(&json!({
            "seconds": all.saturating_sub(fetched).as_secs_f64(),
            "fetched": fetched.as_secs_f64(),
            "sizes": run.batch_sizes(),
            "loss": outcome.loss,
            "skipped": outcome.skipped.is_some(),
            "resident": status("VmRSS:"),
            "peak": status("VmHWM:"),
            "device": memory.activations + memory.ahead + memory.parameters + memory.constants,
            "activations": memory.activations,
        }));
    }
    Ok(())
}

fn say(line: &serde_json::Value) {
    println!("{line}");
}

/// Returns an entry of `/proc/self/status` about this process, in bytes.
fn status(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes: u64 =
        text.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()?;
    Some(1024 * kilobytes)
}
