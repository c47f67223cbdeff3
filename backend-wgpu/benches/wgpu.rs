//! `cargo bench -p gradscale-wgpu [-- WORD…]` measures device times by timestamps. Each figure is the median of several
//! runs, with its baseline in the same run: a copy of as many bytes, or the same product without statistics. For each
//! product the selected kernel is printed; `GRADSCALE_WGPU_PRODUCTS` pins it.
//!
//! There are two copies: the driver's (`vkCmdCopyBuffer`), which may use a copy engine, and a kernel's, which is the bound
//! for kernels that read and write memory once.
//!
//! A driver on the CPU gets the small sizes and few runs of a rehearsal, which the output states; `--small` requests them
//! on a GPU. `GRADSCALE_ADAPTER` chooses another adapter than the first.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a benchmark: small sizes, a device that is there"
)]

mod attention;

use attention::AttentionScale;
use gradscale::{
    CrossEntropy, Input, Method, Parameters, Trainer, gradscale_core::ops::Divisor, models::SegNet, nn::Module,
    optim::Sgd,
};
use gradscale_core::{
    backend::{Backend, Buffer, Control, DType, Data, Launch, Slot, Store},
    ops::{Conv2d, Gemm, Pass, Unary},
    stats::Detail,
};
use gradscale_wgpu::{Adapter, Memory, ProductEngine, ProductLaunches, Table, Wgpu};
use std::time::{Duration, Instant};

/// Steps before the first one that counts: they are eager, compile kernels and are recorded.
const WARM_UP_STEPS: usize = 3;

/// Sizes of the benchmark's operators, and the number of runs of each.
struct Scale {
    /// Number of runs of which the median is taken.
    runs: usize,
    gemm: &'static [u32],
    cast: usize,
    conv: [u32; 4],
    conv_outputs: u32,
    attention: AttentionScale,
    /// Number of images, rows and columns of a SegNet training step.
    segnet: [usize; 3],
    channels: usize,
    /// Number of training steps of which the median is taken.
    steps: usize,
    /// Number of training steps whose single launches are timed.
    timed_steps: usize,
}

const GPU: Scale = Scale {
    runs: 20,
    gemm: &[1024, 2048, 4096, 8192],
    cast: 1 << 27,
    conv: [12, 180, 240, 64],
    conv_outputs: 64,
    attention: AttentionScale { heads: 128, positions: 1024, depth: 64 },
    segnet: [12, 360, 480],
    channels: 64,
    steps: 6,
    timed_steps: 5,
};

/// Sizes for a driver on the CPU: lavapipe computes 0.1 GFLOP/s of a product on a slow core, so that one of 256³ takes
/// 0.3 s.
const REHEARSAL: Scale = Scale {
    runs: 1,
    gemm: &[128],
    cast: 1 << 16,
    conv: [1, 8, 12, 16],
    conv_outputs: 16,
    attention: AttentionScale { heads: 2, positions: 128, depth: 64 },
    segnet: [1, 16, 16],
    channels: 8,
    steps: 1,
    timed_steps: 1,
};

struct Bench {
    device: Wgpu,
    words: Vec<String>,
    scale: &'static Scale,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
    }

    fn table(&self, detail: Detail) -> Table {
        let mut table = self.device.table(4, 0).unwrap();
        let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[], seed: 1, detail };
        self.device.upload(&control, 0..4, &mut table).unwrap();
        table
    }

    /// Allocates a tensor of random numbers around 0, because products of zeros would be faster.
    fn filled(&self, dtype: DType, len: usize) -> Memory {
        let mut state = 9u64;
        let mut unit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 16_777_216.0 - 0.5
        };
        let values: Vec<f32> = (0..len).map(|_| unit()).collect();
        let mut wide = self.device.alloc(DType::F32, len).unwrap();
        self.device.write(Data::F32(&values), &mut wide).unwrap();
        if dtype == DType::F32 {
            return wide;
        }
        let table = self.table(Detail::None);
        let mut half = self.device.alloc(dtype, len).unwrap();
        self.device
            .launch(Launch::Unary {
                op: Unary::Id,
                len: wide.len() as u32,
                x: &wide,
                y: Store::keep(Slot::ONE, &table, &mut half),
            })
            .unwrap();
        half
    }

    /// Measures the median device time of an operator; wall-clock time where there are no timestamps.
    fn operator(&self, run: impl FnMut() -> Result<(), gradscale_wgpu::Error>) -> Duration {
        let step = self.device.record(run).unwrap().unwrap();
        self.median(|| {
            let start = Instant::now();
            self.device.time(&step).unwrap().unwrap_or_else(|| start.elapsed())
        })
    }

    /// Returns the name of the kernel that computed all products since `before`.
    fn kernel_since(&self, before: ProductLaunches) -> String {
        let after = self.device.product_launches();
        match (after.simt - before.simt, after.cooperative - before.cooperative) {
            (0, 1..) => self.device.product_engine().to_string(),
            (1.., 0) => ProductEngine::Simt.to_string(),
            (simt, cooperative) => format!("{simt} by simt, {cooperative} by cooperative matrices"),
        }
    }

    fn median(&self, mut run: impl FnMut() -> Duration) -> Duration {
        run();
        let mut times: Vec<Duration> = (0..self.scale.runs).map(|_| run()).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }

    fn products(&self, size: u32) {
        let len = (size * size) as usize;
        let (a, b) = (self.filled(DType::F16, len), self.filled(DType::F16, len));
        let gemm = Gemm::new(size, size, size).unwrap();
        let mut y = self.device.alloc(DType::F16, len).unwrap();
        let flops = 2.0 * f64::from(size).powi(3);
        let before = self.device.product_launches();
        let mut time = |detail| {
            let table = self.table(detail);
            let mut store = || {
                self.device.launch(Launch::Gemm {
                    p: gemm,
                    a: &a,
                    b: &b,
                    bias: None,
                    y: Store::site(Slot(2), Slot(3), &table, &mut y),
                })
            };
            self.operator(&mut store).as_secs_f64()
        };
        let [plain, counts, full] = [Detail::None, Detail::Counts, Detail::Full].map(&mut time);
        let kernel = self.kernel_since(before);
        let speed = |seconds: f64| format!("{:.1} GFLOP/s", flops / seconds / 1e9);
        row(&format!("gemm {size}³ f16"), &speed(plain), "", None, &kernel);
        for (name, seconds) in [("counts", counts), ("histogram", full)] {
            let name = format!("gemm {size}³ f16: with {name} / without");
            row(&name, &speed(seconds), &speed(plain), Some(plain / seconds), &kernel);
        }
    }

    fn casts(&self, len: usize) {
        let x = self.filled(DType::F32, len);
        let mut y = self.device.alloc(DType::F16, len).unwrap();
        // A copy of 3 bytes per element moves 6 bytes, as a cast does, which reads f32 and stores halves without
        // reading its destination.
        let bytes = len as u64 * 3 / 16 * 16;
        let moved = 2.0 * bytes as f64 / 1e9;
        let mut other = self.device.alloc(DType::F32, len).unwrap();
        let driver = self.median(|| self.device.time_copy(&x, &mut other, bytes).unwrap().unwrap_or(Duration::MAX));
        let speed = |gigabytes: f64, seconds: f64| format!("{:.2} GB/s", gigabytes / seconds);
        let note = format!("{moved:.2} GB moved");
        row("copy by the driver", &speed(moved, driver.as_secs_f64()), "", None, &note);
        let kernel = self.operator(|| self.device.copy_by_kernel(&x, &mut other, bytes)).as_secs_f64();
        row("copy by a kernel", &speed(moved, kernel), "", None, &note);
        let copied = speed(moved, kernel);
        for (name, detail) in [("cast", Detail::None), ("cast, counts", Detail::Counts), ("cast, full", Detail::Full)] {
            let table = self.table(detail);
            let time = self.operator(|| {
                self.device.launch(Launch::Unary {
                    op: Unary::Id,
                    len: x.len() as u32,
                    x: &x,
                    y: Store::site(Slot(2), Slot(3), &table, &mut y),
                })
            });
            let (moved, seconds) = (6.0 * len as f64 / 1e9, time.as_secs_f64());
            let name = format!("{name} / copy by a kernel");
            row(&name, &speed(moved, seconds), &copied, Some(kernel / seconds), "");
        }
    }

    fn convolutions(&self, x: [u32; 4], outputs: u32) {
        let p = Conv2d::new(x, outputs, [7, 7]).and_then(Conv2d::same).unwrap();
        let lens = [p.x(), p.w(), p.y()].map(|shape| shape.iter().product::<u32>() as usize);
        let [x, w, y] = lens.map(|len| self.filled(DType::F16, len));
        let table = self.table(Detail::Counts);
        let flops = 2.0 * lens[2] as f64 * 49.0 * f64::from(p.x()[3]);
        for (pass, a, b, result, dtype) in [
            (Pass::Forward, &x, &w, lens[2], DType::F16),
            (Pass::Data, &y, &w, lens[0], DType::F16),
            (Pass::Weight, &x, &y, lens[1], DType::F32),
        ] {
            let mut out = self.device.alloc(dtype, result).unwrap();
            let before = self.device.product_launches();
            let time = self.operator(|| {
                self.device.launch(Launch::Conv {
                    p,
                    pass,
                    a,
                    b,
                    bias: None,
                    y: Store::site(Slot(2), Slot(3), &table, &mut out),
                })
            });
            let kernel = self.kernel_since(before);
            let speed = format!("{:.1} GFLOP/s", flops / time.as_secs_f64() / 1e9);
            row(&format!("conv 7×7 {pass:?}"), &speed, "", None, &kernel);
        }
    }
}

/// Prints a row of the table of results: name, figure, baseline in the same run, ratio, and kernel or bytes.
fn row(name: &str, here: &str, beside: &str, ratio: Option<f64>, by: &str) {
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
    println!("| {name} | {here} | {beside} | {ratio} | {by} |");
}

/// Measures the wall-clock time of a training step, recorded, with one wait at its end; or each of its launches, one by
/// one, between two timestamps.
fn segnet(device: Wgpu, scale: &Scale, launches: bool) {
    let Scale { segnet: [images, height, width], channels, steps, timed_steps, .. } = *scale;
    let products = device.product_engine().to_string();
    let mut parameters = Parameters::seeded(4);
    let net = SegNet::new(&mut parameters.at("net"), 3, channels, 11);
    let method: Method = "gs".parse().unwrap();
    let mut trainer = Trainer::new(device, parameters, Sgd { momentum: 0.9, ..Sgd::new(0.05) }, method).unwrap();
    let pixels = images * height * width;
    let x: Vec<u8> = (0..pixels * 3).map(|i| (i * 7 % 251) as u8).collect();
    let labels: Vec<u8> = (0..pixels).map(|i| (i / width % 11) as u8).collect();
    let mut times = Vec::new();
    let untimed = WARM_UP_STEPS + steps;
    for i in 0..untimed + if launches { timed_steps } else { 0 } {
        if i >= untimed
            && let Err(error) = trainer.time_launches(true)
        {
            return println!("SKIPPED: {error}");
        }
        let start = Instant::now();
        let batch = [Input::u8([images, height, width, 3], &x), Input::u8([images, height, width, 1], &labels)];
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
    let step = times[times.len() / 2].as_secs_f64() * 1e3;
    let name = format!("SegNet step, {images}×{height}×{width}, {channels} channels");
    row(&name, &format!("{step:.1} ms"), "", None, &products);
    let rows = trainer.launch_times();
    if rows.is_empty() {
        return;
    }
    let all: f64 = rows.iter().map(|row| row.seconds).sum::<f64>() * 1e3 / timed_steps as f64;
    println!("\nLaunches of that step one by one, together {all:.3} ms, means of {timed_steps} steps:\n");
    println!("| launch | count | ms | GB/s | GFLOP/s | share |\n|---|---|---|---|---|---|");
    for row in rows {
        let (count, ms) = (row.launches as f64 / timed_steps as f64, row.seconds * 1e3 / timed_steps as f64);
        let (bytes, operations, share) = (row.gigabytes_per_second(), row.gigaflops(), 1e2 * row.share);
        println!("| {} {} | {count} | {ms:.4} | {bytes:.2} | {operations:.2} | {share:.2} % |", row.name, row.shape);
    }
}

fn main() {
    let index = std::env::var("GRADSCALE_ADAPTER").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let adapter = match Adapter::get(index) {
        Ok(adapter) => adapter,
        Err(error) => return println!("SKIPPED: {error}"),
    };
    let start = Instant::now();
    let device = Wgpu::open(&adapter, false).unwrap();
    println!("{}, opened in {:.2?}", adapter.name(), start.elapsed());
    let is_small = adapter.is_software() || std::env::args().any(|word| word == "--small");
    let scale = if is_small { &REHEARSAL } else { &GPU };
    if is_small {
        println!("rehearsal: small sizes and few runs, whose times mean nothing");
    }
    println!("products of halves by {} ({})", device.product_engine(), device.product_engine_reason());
    println!("\n| what | here | beside it | ratio | by |\n|---|---|---|---|---|");
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let bench = Bench { device, words, scale };
    if bench.wants("gemm") {
        scale.gemm.iter().for_each(|&size| bench.products(size));
    }
    if bench.wants("cast") {
        bench.casts(scale.cast);
    }
    if bench.wants("conv") {
        bench.convolutions(scale.conv, scale.conv_outputs);
    }
    if bench.wants("attention") {
        bench.attention(scale.attention);
    }
    for (word, launches) in [("segnet", false), ("launches", true)] {
        if bench.wants(word) {
            segnet(Wgpu::open(&adapter, false).unwrap(), scale, launches);
        }
    }
}
