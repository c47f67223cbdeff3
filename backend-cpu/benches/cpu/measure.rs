//! Best times, and what they are compared with.

use gradscale_core::{
    backend::{Backend, Control, DType, Data, Slot, Store},
    descriptor::Unary,
    stats::Detail,
};
use gradscale_cpu::{Cpu, Memory, Table};
use std::{
    hint::black_box,
    thread,
    time::{Duration, Instant},
};

/// A device, and the limits of the machine on as many threads.
pub struct Bench<'a> {
    pub cpu: &'a Cpu,
    pub threads: usize,
    /// 10⁹ fused multiply-adds of f32 in a second: those of one thread, times the threads.
    pub peak: f64,
    /// 10⁹ bytes read and written by a copy in a second.
    pub copy: f64,
    words: &'a [String],
}

impl<'a> Bench<'a> {
    pub fn new(cpu: &'a Cpu, words: &'a [String]) -> Self {
        let name = cpu.caps().name;
        let threads = name.split_whitespace().rev().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
        Self { cpu, threads, peak: peak() * threads as f64, copy: copy(threads), words }
    }

    /// Prints a line: `amount` of 10⁹ `unit`s in a second, and the share of `limit`.
    pub fn line(&self, name: &str, amount: f64, unit: &str, limit: f64, run: impl FnMut()) {
        if self.words.is_empty() || self.words.iter().any(|word| name.contains(word)) {
            let speed = amount / best(run).as_secs_f64() / 1e9;
            println!("{name:44} {speed:8.2} {unit:8} {:5.1} %", 100.0 * speed / limit);
        }
    }

    /// A table that observes so much.
    pub fn table(&self, detail: Detail) -> Table {
        let mut table = self.cpu.table(4, 1).expect("small");
        let control = Control { exponents: &[0, 0, 3, 5], dials: &[0.1], seed: 1, detail };
        self.cpu.upload(&control, 0..4, &mut table).expect("uploads");
        table
    }

    /// Random numbers around 0.
    pub fn filled(&self, dtype: DType, len: usize) -> Memory {
        let mut state = 9u64;
        let mut unit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 16_777_216.0 - 0.5
        };
        let values: Vec<f32> = (0..len).map(|_| unit()).collect();
        let table = self.cpu.table(2, 0).expect("small");
        let mut wide = self.cpu.alloc(DType::F32, len).expect("memory");
        self.cpu.write(Data::F32(&values), &mut wide).expect("fits");
        let mut y = self.cpu.alloc(dtype, len).expect("memory");
        self.cpu.unary(Unary::Id, &wide, Store::keep(Slot::ONE, &table, &mut y)).expect("runs");
        y
    }

    /// Bytes below a limit.
    pub fn bytes(&self, len: usize, limit: usize) -> Memory {
        let values: Vec<u8> = (0..len).map(|i| ((i * 7 + i / 13) % limit).to_le_bytes()[0]).collect();
        let mut y = self.cpu.alloc(DType::U8, len).expect("memory");
        self.cpu.write(Data::U8(&values), &mut y).expect("fits");
        y
    }
}

/// The shortest of many runs, in half a second.
fn best(mut run: impl FnMut()) -> Duration {
    run();
    let (start, mut best) = (Instant::now(), Duration::MAX);
    for i in 0.. {
        let before = Instant::now();
        run();
        best = best.min(before.elapsed());
        if i >= 3 && start.elapsed() > Duration::from_millis(400) {
            break;
        }
    }
    best
}

/// Multiply-adds of one thread without memory.
fn peak() -> f64 {
    const STEPS: usize = 2_000_000;
    let one = best(|| {
        black_box(chains(black_box(STEPS)));
    });
    (STEPS * CHAINS * LANES) as f64 / one.as_secs_f64() / 1e9
}

/// Independent sums, enough to hide the latency of one.
const CHAINS: usize = 12;
const LANES: usize = 16;

fn chains(steps: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the feature was just detected.
        return unsafe { wide_chains(steps) };
    }
    multiply_add(steps, |sum, factor| sum * factor + factor)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,fma")]
fn wide_chains(steps: usize) -> f32 {
    multiply_add(steps, |sum, factor| sum.mul_add(factor, factor))
}

#[inline(always)]
fn multiply_add(steps: usize, step: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [[1f32; LANES]; CHAINS];
    let factor: [f32; LANES] = core::array::from_fn(|i| black_box(0.5 + i as f32 / 64.0));
    for _ in 0..steps {
        for sum in &mut sums {
            for (sum, &factor) in sum.iter_mut().zip(&factor) {
                *sum = step(*sum, factor);
            }
        }
    }
    sums.as_flattened().iter().sum()
}

/// Copies far larger than the caches.
fn copy(threads: usize) -> f64 {
    const LEN: usize = 64 << 20;
    let (from, mut to) = (vec![1u8; LEN], vec![0u8; LEN]);
    let all = best(|| {
        let part = LEN.div_ceil(threads);
        thread::scope(|scope| {
            for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
                scope.spawn(|| to.copy_from_slice(black_box(from)));
            }
        });
    });
    2.0 * LEN as f64 / all.as_secs_f64() / 1e9
}
