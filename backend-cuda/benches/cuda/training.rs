//! A whole step of SegNetBasic, 64 channels, batch 12 of 360 × 480, recorded: without scaling, with a scale for every
//! gradient, in f32; with batches sent ahead, and with batches that come with the step.

use crate::measure::{Bench, median};
use gradscale::{Input, Inputs, Method, Parameters, Trainer, models::SegNet, nn::Module, optim::Sgd};
use gradscale_cuda::{Cuda, Error};
use std::time::Instant;

const CLASSES: usize = 11;
const RUNS: usize = 21;

fn failed(error: impl core::fmt::Display) -> Error {
    Error::Driver { doing: "train", name: error.to_string(), lost: false }
}

/// Whole steps, the wait for the read-back included.
pub fn step(bench: &mut Bench<'_>) -> Result<(), Error> {
    if !bench.wants("segnet") {
        return Ok(());
    }
    let (images, width) = (bench.size([12, 360, 480, 3], [2, 16, 16, 3]), bench.size(64, 8));
    // The first steps decide at once, compile and are recorded.
    let (before, counted) = bench.size((30, RUNS), (3, 1));
    let len: usize = images.iter().product();
    let pixels: Vec<u8> = (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect();
    let labels: Vec<u8> = (0..len / 3).map(|i| (i / 97 % CLASSES).to_le_bytes()[0]).collect();
    let [count, height, across, channels] = images;
    let mut times = Vec::new();
    for (method, prefetches) in [("fp32", true), ("fp16", true), ("gs", true), ("gs", false)] {
        let method: Method = method.parse().map_err(failed)?;
        let mut parameters = Parameters::seeded(1);
        let net = SegNet::new(&mut parameters.at("net"), channels, width, CLASSES);
        let optimizer = Sgd { momentum: 0.9, ..Sgd::new(0.01) };
        let mut trainer =
            Trainer::new(Cuda::open(0)?, parameters, optimizer, method).map_err(failed)?.with_skip_limit(0);
        let batch = || [Input::u8(images, &pixels), Input::u8([count, height, across, 1], &labels)];
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
    let [f32, off, on, waiting] = times[..] else { return Ok(()) };
    let mut line = |name: &str, beside: f64| {
        bench.line(&format!("segnet step: {name}"), speed(on), speed(beside), Some(beside / on));
    };
    line("scaling on / off", off);
    line("half with scaling / f32", f32);
    line("batch sent ahead / with the step", waiting);
    let minutes = 16_000.0 * on / 60.0;
    bench.line("segnet: minutes of 16 000 iterations", format!("{minutes:.1} min"), String::new(), Some(minutes));
    Ok(())
}
