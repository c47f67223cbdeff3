//! A whole step of SegNetBasic, 64 channels, batch 12 of 360 × 480, recorded: without scaling, with a scale for every
//! gradient, and in f32; with prefetched batches, and with batches that are copied in the step; without dependent
//! launches. Also each of its launches separately.

use crate::measure::{Bench, median};
use core::{convert::identity, fmt::Write};
use gradscale::{Input, Inputs, Method, Parameters, Trainer, TrainerOptions, models::SegNet, nn::Module, optim::Sgd};
use gradscale_cuda::{Cuda, Error};
use std::time::Instant;

const CLASSES: usize = 11;
const RUNS: usize = 21;

fn failed(error: impl core::fmt::Display) -> Error {
    Error::Driver { doing: "train", name: error.to_string(), lost: false }
}

/// Batch of images with labels, the same in every step.
struct Batch {
    images: [usize; 4],
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Batch {
    fn new(bench: &Bench<'_>) -> Self {
        let images = bench.size([12, 360, 480, 3], [2, 16, 16, 3]);
        let len: usize = images.iter().product();
        let pixels = (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect();
        let labels = (0..len / 3).map(|i| (i / 97 % CLASSES).to_le_bytes()[0]).collect();
        Self { images, pixels, labels }
    }

    fn inputs(&self) -> [Input<'_>; 2] {
        let [count, height, across, _] = self.images;
        [Input::u8(self.images, &self.pixels), Input::u8([count, height, across, 1], &self.labels)]
    }
}

/// Creates SegNetBasic and its trainer on a device, with a method.
fn begin(bench: &Bench<'_>, device: Cuda, method: &str) -> Result<(SegNet, Trainer<Cuda>), Error> {
    let method: Method = method.parse().map_err(failed)?;
    let mut parameters = Parameters::seeded(1);
    let net = SegNet::new(&mut parameters.at("net"), 3, bench.size(64, 8), CLASSES);
    let optimizer = Sgd { momentum: 0.9, ..Sgd::new(0.01) };
    let trainer = Trainer::new(device, parameters, optimizer, method).map_err(failed)?;
    Ok((net, trainer.with_options(TrainerOptions::new().with_skip_limit(0))))
}

/// Measures each launch of a step by events around it, as a table, with the step's time by the host's clock. Launches
/// run separately, because events cannot be placed inside a recording.
pub fn launches(bench: &Bench<'_>) -> Result<String, Error> {
    if !bench.wants("launches") {
        return Ok(String::new());
    }
    let (before, counted) = bench.size((30, RUNS), (3, 1));
    let batch = Batch::new(bench);
    let (net, mut trainer) = begin(bench, Cuda::open(0)?, "gs")?;
    let mut usual = Vec::new();
    for i in 0..before + 2 * counted {
        let timed = i >= before + counted;
        trainer.time_launches(timed).map_err(failed)?;
        let start = Instant::now();
        let gradients =
            trainer.backward(batch.inputs(), |[x, labels]| net.forward(x).cross_entropy(labels)).map_err(failed)?;
        trainer.step(gradients).map_err(failed)?;
        if i >= before && !timed {
            usual.push(start.elapsed().as_secs_f64());
        }
    }
    let (rows, usual, steps) = (trainer.launch_times(), median(&mut usual), counted as f64);
    let all: f64 = rows.iter().map(|row| row.seconds).sum::<f64>() / steps;
    let mut text = format!(
        "\nLaunches of a SegNet step, one by one, means of {counted} steps. Together {:.3} ms; a step as it is {:.3} ms.\n\n\
         | launch | count | ms | GB | GB/s | GFLOP | TFLOP/s | share |\n|---|---|---|---|---|---|---|---|\n",
        1e3 * all,
        1e3 * usual
    );
    for row in rows {
        let (count, ms) = (row.launches as f64 / steps, 1e3 * row.seconds / steps);
        let [bytes, operations] = [row.cost.bytes, row.cost.operations].map(|sum| sum as f64 / steps / 1e9);
        let (name, shape, memory) = (row.name, &row.shape, row.gigabytes_per_second());
        let (rate, share) = (row.gigaflops() / 1e3, 1e2 * row.share);
        writeln!(
            text,
            "| {name} {shape} | {count} | {ms:.4} | {bytes:.4} | {memory:.1} | {operations:.3} | {rate:.2} | {share:.2} % |"
        )
        .ok();
    }
    Ok(text)
}

/// Kind of step whose time is compared with that of others.
struct Side {
    method: &'static str,
    /// True if the next batch is sent to the device during a step.
    prefetches: bool,
    /// Changes the device as it is opened.
    configure: fn(Cuda) -> Cuda,
}

/// Measures whole training steps, including the wait for the read-back.
pub fn step(bench: &mut Bench<'_>) -> Result<(), Error> {
    if !bench.wants("segnet") {
        return Ok(());
    }
    // The first steps decide at once, compile and are recorded.
    let (before, counted) = bench.size((30, RUNS), (3, 1));
    let every = Batch::new(bench);
    let count = every.images[0];
    let mut times = Vec::new();
    let side = |method, prefetches| Side { method, prefetches, configure: identity };
    let serial = Side { configure: Cuda::without_dependent_launches, ..side("gs", true) };
    for Side { method, prefetches, configure } in
        [side("fp32", true), side("fp16", true), side("gs", true), side("gs", false), serial]
    {
        let (net, mut trainer) = begin(bench, configure(Cuda::open(0)?), method)?;
        let batch = || every.inputs();
        let (mut runs, mut ahead) = (Vec::new(), None);
        for i in 0..before + counted {
            let start = Instant::now();
            let inputs = ahead.take().map_or_else(|| batch().into(), Inputs::from);
            let gradients =
                trainer.backward(inputs, |[x, labels]| net.forward(x).cross_entropy(labels)).map_err(failed)?;
            if prefetches {
                ahead = Some(trainer.prefetch(batch()).map_err(failed)?);
            }
            trainer.step(gradients).map_err(failed)?;
            if i >= before {
                runs.push(start.elapsed().as_secs_f64());
            }
        }
        times.push(median(&mut runs));
    }
    let speed = |seconds: f64| format!("{:.1} images/s", count as f64 / seconds);
    let [f32, off, on, waiting, serial] = times[..] else { return Ok(()) };
    let mut line = |name: &str, beside: f64| {
        bench.line(&format!("segnet step: {name}"), speed(on), speed(beside), Some(beside / on));
    };
    line("scaling on / off", off);
    line("half with scaling / f32", f32);
    line("batch sent ahead / with the step", waiting);
    line("dependent launches on / off", serial);
    bench.line("segnet step: f32", speed(f32), String::new(), None);
    let minutes = 16_000.0 * on / 60.0;
    bench.line("segnet: minutes of 16 000 iterations", format!("{minutes:.1} min"), String::new(), Some(minutes));
    Ok(())
}
