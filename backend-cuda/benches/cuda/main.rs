//! Benchmark of the backend on a real GPU: each figure with its baseline in the same run, and the project's targets.
//!
//! ```text
//! cargo bench -p gradscale-cuda                    # everything, as a table
//! cargo bench -p gradscale-cuda -- gemm copy       # only lines with one of the words
//! cargo bench -p gradscale-cuda -- odd             # sizes and strides of real networks that kernels do not like
//! cargo bench -p gradscale-cuda -- attention       # attention whose scores stay on the chip, beside stored ones
//! cargo bench -p gradscale-cuda -- networks        # training steps of nine networks; with names, of these alone
//! cargo bench -p gradscale-cuda -- fp8             # products in eight bits, and a decoder's step with them
//! cargo bench -p gradscale-cuda -- ablation        # what the time of a convolution of 64 channels goes to
//! cargo bench -p gradscale-cuda -- f32             # f32 products on tensor cores, beside those without
//! cargo bench -p gradscale-cuda -- launches        # each launch of a SegNet step, by events around it
//! cargo bench -p gradscale-cuda -- --write FILE    # and into a file
//! cargo bench -p gradscale-cuda -- --small         # small sizes, once: whether it runs, on the emulated driver too
//! ```
//!
//! Data are normally distributed at random, because zeros are faster. Work is recorded and replayed, so that launches
//! cost the same as in a training. Sides alternate, and each figure is the median of 21 runs. Operands rotate among
//! sets that together exceed the L2 cache. Of cuBLASLt's algorithms the fastest is taken. At 1024³ to 8192³ each side
//! is also measured alone, with its clock and power, because alternating sides share heat. `peers.py` measures cuDNN
//! and PyTorch, if PyTorch is installed, and `networks.py` the nine networks.
//!
//! Targets are those of `targets.csv`. For known GPUs `model.rs` adds to each line its expected time, and the expected
//! utilisation of each part of the device.

#![allow(clippy::cast_possible_truncation, reason = "a benchmark: small sizes")]

mod ablation;
mod attention;
mod blas;
mod copies;
mod elements;
mod f32;
mod fp8;
mod measure;
mod model;
mod networks;
mod odd;
mod products;
mod sensors;
mod targets;
mod training;

use gradscale_core::backend::Backend;
use gradscale_cuda::Cuda;
use measure::Bench;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let file = words.iter().position(|word| word == "--write").map(|at| {
        words.remove(at);
        if at < words.len() { words.remove(at) } else { "cuda.md".to_owned() }
    });
    let small = words.iter().position(|word| word == "--small").map(|at| words.remove(at)).is_some();
    let device = match Cuda::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("SKIPPED: no device: {error}. This needs an NVIDIA GPU, its driver, and libnvrtc of CUDA 13.");
            return ExitCode::SUCCESS;
        }
    };
    let mut bench = Bench::new(&device, words.clone(), small);
    let result = copies::copy(&mut bench)
        .and_then(|()| products::gemm(&mut bench, true))
        .and_then(|()| products::conv(&mut bench))
        .and_then(|()| ablation::measure(&mut bench, &|| Cuda::open(0)))
        .and_then(|()| odd::measure(&mut bench))
        .and_then(|()| elements::measure(&mut bench))
        .and_then(|()| attention::measure(&mut bench))
        .and_then(|()| training::step(&mut bench))
        .and_then(|()| fp8::measure(&mut bench, &|| Cuda::open(0)))
        .and_then(|()| f32::measure(&mut bench, &|| Cuda::open(0)))
        .and_then(|()| networks::measure_all(&mut bench, &|| Cuda::open(0)))
        .and_then(|()| {
            let launches = training::launches(&bench)?;
            Ok(launches + &warpgroups(&device, words, small)?)
        });
    let mut text = format!("{}\n\n{}\n", device.caps().name, driver());
    text.push_str(&bench.table());
    text.push_str(result.as_deref().unwrap_or_default());
    if bench.wants("peers") {
        text.push_str(&peers());
    }
    println!("{text}");
    if let Some(file) = file
        && let Err(error) = std::fs::write(&file, &text)
    {
        println!("{file}: {error}");
        return ExitCode::FAILURE;
    }
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures products once more by the kernels for devices before sm_90, where they were not measured so.
fn warpgroups(device: &Cuda, words: Vec<String>, small: bool) -> Result<String, gradscale_cuda::Error> {
    let proven = device.self_test_results();
    if proven.is_empty() {
        return Ok(String::new());
    }
    let device = Cuda::open(0)?.without_warpgroups();
    let mut bench = Bench::new(&device, words, small);
    products::gemm(&mut bench, false)?;
    products::conv(&mut bench)?;
    let wrong: Vec<_> =
        proven.iter().filter_map(|(name, proof)| Some(format!("{name}: {}", proof.as_ref().err()?))).collect();
    let text = format!("\nOf {} kernels for sm_90a those that were wrong, and not used: {wrong:?}\n", proven.len());
    Ok(format!("{text}\nProducts without them, by mma.sync:\n{}", bench.table()))
}

/// Returns the versions of driver and compiler as text.
fn driver() -> String {
    let asked =
        Command::new("nvidia-smi").args(["--query-gpu=driver_version,power.limit", "--format=csv,noheader"]).output();
    let said =
        asked.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stdout).trim().into());
    format!("driver, power limit: {said}")
}

/// Measures cuDNN and PyTorch by `peers.py` and returns their rows of the table.
fn peers() -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/cuda/peers.py");
    match Command::new("python3").arg(script).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => format!("\nno peers: {}\n", String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("")),
        Err(error) => format!("\nno peers: python3: {error}\n"),
    }
}
