//! Products, convolutions and training steps of burn through wgpu, for the phase `burn` of the GPU bundle. The sizes are those
//! of `backend-wgpu/benches/wgpu`, which runs on the same adapter; `--small` takes those of a rehearsal.

use burn::{
    module::Module,
    nn::{
        BatchNorm, BatchNormConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        loss::{CrossEntropyLoss, CrossEntropyLossConfig},
    },
    optim::{GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::{
        Device, DeviceKind, Distribution, FloatDType, Int, Tensor, TensorData, activation::relu, module::conv2d,
        ops::ConvOptions,
    },
};
use std::{error::Error, time::Instant};

/// Runs before the first one that counts: they compile kernels and choose among them.
const WARM_UP_RUNS: usize = 5;
const CLASSES: usize = 11;

struct Sizes {
    gemm: &'static [usize],
    /// Number of images, rows, columns and channels of a convolution of 7 × 7, and of the network.
    conv: [usize; 4],
    /// Number of the network's convolutions of 7 × 7.
    levels: usize,
    /// Number of runs of which the median is taken.
    runs: usize,
    /// Number of products or convolutions of a run, since a wait takes as long as a small product.
    repeats: usize,
}

const GPU: Sizes = Sizes {
    gemm: &[1024, 2048, 4096, 8192],
    conv: [12, 180, 240, 64],
    levels: 4,
    runs: 7,
    repeats: 10,
};
const REHEARSAL: Sizes =
    Sizes { gemm: &[128], conv: [1, 8, 12, 16], levels: 2, runs: 1, repeats: 1 };

/// Convolutions of 7 × 7 with batch norm and ReLU, and one of 1 × 1 to the classes of each pixel.
#[derive(Module, Debug)]
struct PlainNet {
    convs: Vec<Conv2d>,
    norms: Vec<BatchNorm>,
    head: Conv2d,
}

impl PlainNet {
    fn new(levels: usize, channels: usize, device: &Device) -> Self {
        let conv = |level: usize| {
            let inputs = if level == 0 { 3 } else { channels };
            let config = Conv2dConfig::new([inputs, channels], [7, 7]);
            config.with_padding(PaddingConfig2d::Explicit(3, 3, 3, 3)).init(device)
        };
        Self {
            convs: (0..levels).map(conv).collect(),
            norms: (0..levels).map(|_| BatchNormConfig::new(channels).init(device)).collect(),
            head: Conv2dConfig::new([channels, CLASSES], [1, 1]).init(device),
        }
    }

    /// Returns the logits of all pixels, a row for each.
    fn logits(&self, mut x: Tensor<4>) -> Tensor<2> {
        for (conv, norm) in self.convs.iter().zip(&self.norms) {
            x = relu(norm.forward(conv.forward(x)));
        }
        self.head.forward(x).permute([0, 2, 3, 1]).flatten::<2>(0, 2)
    }
}

/// Returns the median time of a run in seconds.
fn median(runs: usize, mut run: impl FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    for _ in 0..WARM_UP_RUNS {
        run()?;
    }
    let mut times = Vec::new();
    for _ in 0..runs {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn row(name: &str, figure: &str) {
    println!("| {name} | {figure} |");
}

fn speed(operations: f64, seconds: f64) -> String {
    format!("{:.1} GFLOP/s", operations / seconds / 1e9)
}

fn random<const N: usize>(shape: [usize; N], device: &Device) -> Tensor<N> {
    Tensor::<N>::random(shape, Distribution::Uniform(-0.5, 0.5), device).cast(FloatDType::F16)
}

/// Measures an operator: its results are kept until all of a run have been computed.
fn measure<const N: usize>(
    sizes: &Sizes, device: &Device, mut operator: impl FnMut() -> Tensor<N>,
) -> Result<f64, Box<dyn Error>> {
    let seconds = median(sizes.runs, || {
        let results: Vec<Tensor<N>> = (0..sizes.repeats).map(|_| operator()).collect();
        device.sync()?;
        drop(results);
        Ok(())
    })?;
    Ok(seconds / sizes.repeats as f64)
}

fn products(sizes: &Sizes, size: usize, device: &Device) -> Result<(), Box<dyn Error>> {
    let (a, b) = (random([size, size], device), random([size, size], device));
    let seconds = measure(sizes, device, || a.clone().matmul(b.clone()))?;
    row(&format!("gemm {size}³ f16"), &speed(2.0 * (size as f64).powi(3), seconds));
    Ok(())
}

fn convolution(sizes: &Sizes, device: &Device) -> Result<(), Box<dyn Error>> {
    let [images, height, width, channels] = sizes.conv;
    let x = random([images, channels, height, width], device);
    let w = random([channels, channels, 7, 7], device);
    let options = || ConvOptions::new([1, 1], [3, 3], [1, 1], 1);
    let seconds = measure(sizes, device, || conv2d(x.clone(), w.clone(), None, options()))?;
    let operations = 2.0 * (images * height * width * channels * channels) as f64 * 49.0;
    row("conv 7×7 Forward", &speed(operations, seconds));
    Ok(())
}

fn training_step(sizes: &Sizes, device: &Device) -> Result<(), Box<dyn Error>> {
    let [images, height, width, channels] = sizes.conv;
    let pixels = images * height * width;
    let mut net = Some(PlainNet::new(sizes.levels, channels, device));
    let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false };
    let mut optimizer: ModuleOptimizer = SgdConfig::new().with_momentum(Some(momentum)).init();
    let criterion: CrossEntropyLoss = CrossEntropyLossConfig::new().init(device);
    let values: Vec<f32> = (0..pixels * 3).map(|i| (i * 7 % 251) as f32 / 251.0).collect();
    let labels: Vec<i32> = (0..pixels).map(|i| (i / width % CLASSES) as i32).collect();
    let mut loss = 0.0;
    let seconds = median(sizes.runs, || {
        let x = TensorData::new(values.clone(), [images, 3, height, width]);
        let x = Tensor::<4>::from_data(x, device);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels.clone(), [pixels]), device);
        let before = net.take().ok_or("no network after an error")?;
        let of_batch = criterion.forward(before.logits(x), labels);
        let gradients = GradientsParams::from_grads(of_batch.backward(), &before);
        net = Some(optimizer.step(1e-3, before, gradients));
        loss = of_batch.into_scalar::<f32>();
        Ok(device.sync()?)
    })?;
    let name = format!("plain step, {images}×{height}×{width}, {channels} channels");
    row(&name, &format!("{:.2} images/s", images as f64 / seconds));
    println!("\nThe last loss is {loss}.");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let is_small = std::env::args().any(|word| word == "--small");
    let sizes = if is_small { REHEARSAL } else { GPU };
    #[cfg(not(feature = "vulkan"))]
    let (device, kernels) = (Device::wgpu(DeviceKind::DefaultDevice), "WGSL");
    #[cfg(feature = "vulkan")]
    let (device, kernels) = (Device::vulkan(DeviceKind::DefaultDevice), "SPIR-V");
    let mut device = device;
    device.configure(FloatDType::F16)?;
    println!("burn 0.22.1 in halves, kernels as {kernels}, on {device:?}");
    println!("\n| what | burn, {kernels} |\n|---|---|");
    for &size in sizes.gemm {
        products(&sizes, size, &device)?;
    }
    convolution(&sizes, &device)?;
    training_step(&sizes, &device.autodiff())
}
