//! Best times, and what they are compared with.

use crate::peak::{copy, peak};
use gradscale_core::{
    backend::{Backend, Buffer, Control, DType, Data, Launch, Slot, Store},
    ops::Unary,
    stats::Detail,
};
use gradscale_cpu::{Cpu, Isa, Memory, Table};
use std::time::{Duration, Instant};

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
    pub fn new(cpu: &'a Cpu, isa: Isa, words: &'a [String]) -> Self {
        let name = cpu.caps().name;
        let threads = name.split_whitespace().rev().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
        Self { cpu, threads, peak: peak(isa) * threads as f64, copy: copy(threads), words }
    }

    /// Whether a line is wanted.
    fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
    }

    /// Prints a line: `amount` of 10⁹ `unit`s in a second, and the share of `limit`.
    pub fn line(&self, name: &str, amount: f64, unit: &str, limit: f64, run: impl FnMut()) {
        if self.wants(name) {
            let speed = amount / best(run).as_secs_f64() / 1e9;
            println!("{name:44} {speed:8.2} {unit:8} {:5.1} %", 100.0 * speed / limit);
        }
    }

    /// As [`Bench::line`]; on one thread also how many times as fast as a baseline, which `make` prepares.
    pub fn beside<F: FnMut()>(
        &self, name: &str, amount: f64, unit: &str, limit: f64, (other, make): (&str, impl FnOnce() -> F),
        run: impl FnMut(),
    ) {
        if !self.wants(name) {
            return;
        }
        if self.threads != 1 {
            return self.line(name, amount, unit, limit, run);
        }
        let [ours, theirs] = best_of_both(run, make()).map(|time| amount / time.as_secs_f64() / 1e9);
        let share = 100.0 * ours / limit;
        println!("{name:44} {ours:8.2} {unit:8} {share:5.1} %  {:6.2} × {other} ({theirs:.2})", ours / theirs);
    }

    /// A table that observes so much.
    pub fn table(&self, detail: Detail) -> Table {
        let mut table = self.cpu.table(4, 1).expect("small");
        let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[0.1], seed: 1, detail };
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
        self.cpu
            .launch(Launch::Unary {
                op: Unary::Id,
                len: wide.len() as u32,
                x: &wide,
                y: Store::keep(Slot::ONE, &table, &mut y),
            })
            .expect("runs");
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
pub fn best(run: impl FnMut()) -> Duration {
    let [best, _] = best_of_both(run, || {});
    best
}

/// The shortest of many runs of each of two things, in turns.
fn best_of_both(mut first: impl FnMut(), mut second: impl FnMut()) -> [Duration; 2] {
    let time = |run: &mut dyn FnMut()| {
        let before = Instant::now();
        run();
        before.elapsed()
    };
    first();
    second();
    let (start, mut best) = (Instant::now(), [Duration::MAX; 2]);
    for i in 0.. {
        best = [best[0].min(time(&mut first)), best[1].min(time(&mut second))];
        if i >= 3 && start.elapsed() > Duration::from_millis(400) {
            break;
        }
    }
    best
}
