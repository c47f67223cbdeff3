//! Best times, and their baselines.

use crate::peak::{COPIED_BYTES, copier, peak};
use gradscale_core::{
    backend::{Backend, Buffer, Control, DType, Data, Launch, Slot, Store},
    ops::Unary,
    stats::Detail,
};
use gradscale_cpu::{Cpu, Isa, Memory, Table};
use std::{
    io,
    process::exit,
    time::{Duration, Instant},
};

/// Baseline that is measured together with our code: its name and the function to run.
type Other<'a> = Option<(&'a str, Box<dyn FnMut() + 'a>)>;

/// Benchmark context: a CPU device, and the limits of the machine on as many threads.
pub struct Bench<'a> {
    pub cpu: &'a Cpu,
    pub threads: usize,
    /// Peak of the machine in 10⁹ fused multiply-adds of f32 per second: that of one thread, times the threads.
    pub peak: f64,
    /// Bandwidth of a copy in 10⁹ bytes per second, read and written.
    pub copy: f64,
    words: &'a [String],
    /// True if another process requests each burst of runs.
    turns: bool,
}

impl<'a> Bench<'a> {
    pub fn new(cpu: &'a Cpu, isa: Isa, words: &'a [String], turns: bool) -> Self {
        let name = cpu.caps().name;
        let threads = name.split_whitespace().rev().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1);
        let copy = COPIED_BYTES / best_time(copier(threads)).as_secs_f64() / 1e9;
        Self { cpu, threads, peak: peak(isa) * threads as f64, copy, words, turns }
    }

    /// Returns true if the line with this name is among those to measure.
    pub fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word))
    }

    /// Measures and prints a line: `amount` of 10⁹ `unit`s per second, and its fraction of `limit`.
    pub fn line(&self, name: &str, amount: f64, unit: &str, limit: f64, run: impl FnMut()) {
        if self.wants(name) {
            self.measure(name, amount, unit, limit, None, run);
        }
    }

    /// Measures a line like [`Bench::line`]; on one thread also the ratio to a baseline, which `make` prepares.
    pub fn against_on_one_thread<'o, F: FnMut() + 'o>(
        &self, name: &str, amount: f64, unit: &str, limit: f64, (other, make): (&'o str, impl FnOnce() -> F),
        run: impl FnMut(),
    ) {
        if self.threads != 1 {
            self.line(name, amount, unit, limit, run);
        } else if self.wants(name) {
            self.measure(name, amount, unit, limit, Some((other, Box::new(make()))), run);
        }
    }

    /// Measures a line on any number of threads, together with a baseline that has the same number of threads.
    pub fn against<'o, F: FnMut() + 'o>(
        &self, name: &str, amount: f64, unit: &str, limit: f64, (other, make): (&'o str, impl FnOnce() -> F),
        run: impl FnMut(),
    ) {
        if self.wants(name) {
            self.measure(name, amount, unit, limit, Some((other, Box::new(make()))), run);
        }
    }

    fn measure(&self, name: &str, amount: f64, unit: &str, limit: f64, other: Other<'_>, run: impl FnMut()) {
        if self.turns {
            return self.take_turns(name, amount, unit, limit, other, run);
        }
        let speed = |time: Duration| amount / time.as_secs_f64() / 1e9;
        let said = |ours: f64| format!("{name:44} {ours:8.2} {unit:8} {:5.1} %", 100.0 * ours / limit);
        match other {
            None => println!("{}", said(speed(best_time(run)))),
            Some((other, theirs)) => {
                let [ours, theirs] = best_times_interleaved(run, theirs).map(speed);
                println!("{}  {:6.2} × {other} ({theirs:.2})", said(ours), ours / theirs);
            }
        }
    }

    /// Describes the measurement as a line of JSON, and runs a burst of the side that each line of standard input
    /// names: `ours`, `beside` (the baseline), or `copy` of [`COPIED_BYTES`] bytes. Each run's time is a line of JSON.
    /// `next` ends the measurement.
    fn take_turns(&self, name: &str, amount: f64, unit: &str, limit: f64, mut other: Other<'_>, mut run: impl FnMut()) {
        let (beside, copy) = (other.as_ref().map_or("", |(other, _)| other), self.copy);
        println!(
            "{{\"case\": {name:?}, \"amount\": {amount}, \"unit\": {unit:?}, \"limit\": {limit}, \"peak\": {}, \
             \"copy\": {copy}, \"beside\": {beside:?}}}",
            self.peak
        );
        let mut copier: Option<Box<dyn FnMut()>> = None;
        for line in io::stdin().lines() {
            let time = match line.as_deref().map(str::trim) {
                Ok("ours") => burst(&mut run),
                Ok("copy") => burst(copier.get_or_insert_with(|| Box::new(self::copier(self.threads)))),
                Ok("next") => return,
                _ => burst(&mut other.as_mut().expect("there is something beside it").1),
            };
            println!("{{\"seconds\": {}}}", time.as_secs_f64());
        }
        exit(0);
    }

    /// Returns a table of exponents in which stores observe the given detail.
    pub fn table(&self, detail: Detail) -> Table {
        let mut table = self.cpu.table(4, 1).expect("small");
        let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[0.1], seed: 1, detail };
        self.cpu.upload(&control, 0..4, &mut table).expect("uploads");
        table
    }

    /// Returns a buffer with random numbers around 0.
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

    /// Returns a buffer with bytes below a limit.
    pub fn bytes(&self, len: usize, limit: usize) -> Memory {
        let values: Vec<u8> = (0..len).map(|i| ((i * 7 + i / 13) % limit).to_le_bytes()[0]).collect();
        let mut y = self.cpu.alloc(DType::U8, len).expect("memory");
        self.cpu.write(Data::U8(&values), &mut y).expect("fits");
        y
    }
}

/// Returns the shortest time of many runs, in half a second.
pub fn best_time(run: impl FnMut()) -> Duration {
    let [best, _] = best_times_interleaved(run, || {});
    best
}

fn time(mut run: impl FnMut()) -> Duration {
    let before = Instant::now();
    run();
    before.elapsed()
}

/// Returns the shortest times of many runs of two functions, which take turns.
fn best_times_interleaved(mut first: impl FnMut(), mut second: impl FnMut()) -> [Duration; 2] {
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

/// Returns the shortest time of a few runs: two, or as many as fit in 30 milliseconds. The first run refills the caches
/// after other processes.
fn burst(mut run: impl FnMut()) -> Duration {
    let (start, mut best) = (Instant::now(), time(&mut run));
    loop {
        best = best.min(time(&mut run));
        if start.elapsed() > Duration::from_millis(30) {
            return best;
        }
    }
}
