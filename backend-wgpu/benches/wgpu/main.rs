//! `cargo bench -p gradscale-wgpu [-- WORD…]` measures device times by timestamps. Each figure is the median of several
//! runs, with its baseline in the same run: a copy of as many bytes, the multiply-adds that the device reaches without
//! memory, or the same product without statistics. For each product the selected kernel is printed;
//! `GRADSCALE_WGPU_PRODUCTS` pins it.
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
mod elements;
mod products;
mod steps;

use attention::AttentionScale;
use gradscale_core::{
    backend::{Backend, Buffer, Control, DType, Data, Launch, Slot, Store},
    ops::Unary,
    stats::Detail,
};
use gradscale_wgpu::{Adapter, Memory, Table, Wgpu};
use std::time::{Duration, Instant};

/// Sizes of the benchmark's operators, and the number of runs of each.
struct Scale {
    /// Number of runs of which the median is taken.
    runs: usize,
    gemm: &'static [u32],
    /// Number of invocations that multiply and add, and how often each does.
    multiply_adds: [usize; 2],
    cast: usize,
    conv: [u32; 4],
    conv_outputs: u32,
    attention: AttentionScale,
    /// Number of tensors of an update, and of elements of each.
    update: [usize; 2],
    /// Levels of the plain network, whose images are those of the convolution.
    levels: usize,
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
    multiply_adds: [1 << 20, 1 << 12],
    cast: 1 << 27,
    conv: [12, 180, 240, 64],
    conv_outputs: 64,
    attention: AttentionScale { heads: 128, positions: 1024, depth: 64 },
    update: [160, 160_000],
    levels: 4,
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
    multiply_adds: [1 << 10, 1 << 4],
    cast: 1 << 16,
    conv: [1, 8, 12, 16],
    conv_outputs: 16,
    attention: AttentionScale { heads: 2, positions: 128, depth: 64 },
    update: [3, 5_000],
    levels: 2,
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

    fn median(&self, mut run: impl FnMut() -> Duration) -> Duration {
        run();
        let mut times: Vec<Duration> = (0..self.scale.runs).map(|_| run()).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }
}

/// Prints a row of the table of results: name, figure, baseline in the same run, ratio, and kernel or bytes.
fn row(name: &str, here: &str, beside: &str, ratio: Option<f64>, by: &str) {
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
    println!("| {name} | {here} | {beside} | {ratio} | {by} |");
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
    products::measure(&bench);
    elements::measure(&bench);
    if bench.wants("attention") {
        bench.attention(scale.attention);
    }
    let open = || Wgpu::open(&adapter, false).unwrap();
    if bench.wants("plain") {
        steps::plain(open(), scale);
    }
    for (word, launches) in [("segnet", false), ("launches", true)] {
        if bench.wants(word) {
            steps::segnet(open(), scale, launches);
        }
    }
}
