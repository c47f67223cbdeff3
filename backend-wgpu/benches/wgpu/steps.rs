//! Training steps: that of SegNet, as the CUDA backend's bench has it, and that of a plain network, as burn has it too.

use crate::{Scale, row};
use gradscale::{
    CrossEntropy, Input, Method, Parameters, Trainer, Var,
    gradscale_core::ops::Divisor,
    models::SegNet,
    nn::{BatchNorm, Conv2d, Module},
    optim::Sgd,
};
use gradscale_wgpu::Wgpu;
use std::time::Instant;

/// Steps before the first one that counts: they are eager, compile kernels and are recorded.
const WARM_UP_STEPS: usize = 3;
const COLOURS: usize = 3;
const CLASSES: usize = 11;

/// Convolutions of 7 × 7 with batch norm and ReLU, and one of 1 × 1 to the classes of each pixel: `PlainNet` of
/// `scripts/gpu_bundle/burn`.
struct PlainNet {
    levels: Vec<(Conv2d, BatchNorm)>,
    head: Conv2d,
}

impl PlainNet {
    fn new(parameters: &mut Parameters, levels: usize, channels: usize) -> Self {
        let level = |parameters: &mut Parameters, i: usize| {
            let mut at = parameters.at(&format!("level{i}"));
            let inputs = if i == 0 { COLOURS } else { channels };
            let mut of_conv = at.at("conv");
            let conv = Conv2d::new(&mut of_conv, inputs, channels, 7).bias(&mut of_conv);
            (conv, BatchNorm::new(&mut at.at("norm"), channels))
        };
        let levels = (0..levels).map(|i| level(parameters, i)).collect();
        let mut at = parameters.at("head");
        Self { levels, head: Conv2d::new(&mut at, channels, CLASSES, 1).bias(&mut at) }
    }
}

impl Module for PlainNet {
    fn forward<'t>(&self, mut x: Var<'t>) -> Var<'t> {
        for (conv, norm) in &self.levels {
            x = norm.forward(conv.forward(x)).relu();
        }
        self.head.forward(x)
    }
}

/// Measures a training step of SegNet; with `launches` each of its launches, too, one by one, between two timestamps.
pub fn segnet(device: Wgpu, scale: &Scale, launches: bool) {
    let mut parameters = Parameters::seeded(4);
    let net = SegNet::new(&mut parameters.at("net"), COLOURS, scale.channels, CLASSES);
    let [images, height, width] = scale.segnet;
    let name = format!("segnet step by wgpu, {images}×{height}×{width}, {} channels", scale.channels);
    let timed = if launches { scale.timed_steps } else { 0 };
    train(device, &name, (parameters, &net), scale.segnet, [scale.steps, timed]);
}

/// Measures a training step of the plain network.
pub fn plain(device: Wgpu, scale: &Scale) {
    let [images, height, width, channels] = scale.conv.map(|size| size as usize);
    let mut parameters = Parameters::seeded(4);
    let net = PlainNet::new(&mut parameters, scale.levels, channels);
    let name = format!("plain step, {images}×{height}×{width}, {channels} channels");
    train(device, &name, (parameters, &net), [images, height, width], [scale.steps, 0]);
}

/// Measures the wall-clock time of training steps, recorded, with one wait at the end of each. Further steps, `timed` of
/// them, measure single launches.
fn train(
    device: Wgpu, name: &str, (parameters, net): (Parameters, &impl Module), [images, height, width]: [usize; 3],
    [steps, timed]: [usize; 2],
) {
    let products = device.product_engine().to_string();
    let method: Method = "gs".parse().unwrap();
    let mut trainer = Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.05) }, method).unwrap();
    let pixels = images * height * width;
    let x: Vec<u8> = (0..pixels * COLOURS).map(|i| (i * 7 % 251) as u8).collect();
    let labels: Vec<u8> = (0..pixels).map(|i| (i / width % CLASSES) as u8).collect();
    let mut times = Vec::new();
    let untimed = WARM_UP_STEPS + steps;
    for i in 0..untimed + timed {
        if i >= untimed
            && let Err(error) = trainer.time_launches(true)
        {
            return println!("SKIPPED: {error}");
        }
        let start = Instant::now();
        let batch = [Input::u8([images, height, width, COLOURS], &x), Input::u8([images, height, width, 1], &labels)];
        let gradients = trainer.backward(batch, |[x, labels]| {
            let options = CrossEntropy { weights: None, ignore: None, divisor: Divisor::Rows };
            net.forward(x).cross_entropy_with(labels, &options)
        });
        trainer.step(gradients.unwrap()).unwrap();
        times.push(start.elapsed());
    }
    times.truncate(untimed);
    times.drain(..WARM_UP_STEPS);
    times.sort_unstable();
    let seconds = times[times.len() / 2].as_secs_f64();
    let by = format!("{:.1} ms; {products}", 1e3 * seconds);
    row(name, &format!("{:.2} images/s", images as f64 / seconds), "", None, &by);
    let rows = trainer.launch_times();
    if rows.is_empty() {
        return;
    }
    let all: f64 = rows.iter().map(|row| row.seconds).sum::<f64>() * 1e3 / timed as f64;
    println!("\nLaunches of that step one by one, together {all:.3} ms, means of {timed} steps:\n");
    println!("| launch | count | ms | GB/s | GFLOP/s | share |\n|---|---|---|---|---|---|");
    for row in rows {
        let (count, ms) = (row.launches as f64 / timed as f64, row.seconds * 1e3 / timed as f64);
        let (bytes, operations, share) = (row.gigabytes_per_second(), row.gigaflops(), 1e2 * row.share);
        println!("| {} {} | {count} | {ms:.4} | {bytes:.2} | {operations:.2} | {share:.2} % |", row.name, row.shape);
    }
}
