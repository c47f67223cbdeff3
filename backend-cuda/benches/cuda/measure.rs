//! Times, medians, and the table.

use gradscale_core::{
    backend::{Backend, Control, DType, Data},
    stats::Detail,
};
use gradscale_cuda::{Cuda, Error, Memory, Table};
use half::f16;
use std::fmt::Write;

/// Runs of each side.
const RUNS: usize = 21;

/// The device and what was measured on it.
pub struct Bench<'a> {
    pub device: &'a Cuda,
    words: Vec<String>,
    lines: Vec<Line>,
    /// 10⁹ bytes read and written by a copy in a second.
    pub copy: f64,
}

struct Line {
    name: String,
    value: String,
    baseline: String,
    ratio: Option<f64>,
    target: &'static str,
}

/// Work that can be enqueued again and again; the number says which set of operands to take.
pub type Work<'w> = Box<dyn FnMut(usize) -> Result<(), Error> + 'w>;

impl<'a> Bench<'a> {
    pub fn new(device: &'a Cuda, words: Vec<String>) -> Self {
        Self { device, words, lines: vec![], copy: 0.0 }
    }

    pub fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// Adds a line.
    pub fn line(&mut self, name: &str, value: String, baseline: String, ratio: Option<f64>, target: &'static str) {
        println!("{name}: {value}; {baseline}; {}", ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")));
        self.lines.push(Line { name: name.into(), value, baseline, ratio, target });
    }

    /// Everything measured, as Markdown.
    pub fn table(&self) -> String {
        let mut text = String::from("\n| what | here | beside it | ratio | target |\n|---|---|---|---|---|\n");
        for Line { name, value, baseline, ratio, target } in &self.lines {
            let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
            writeln!(text, "| {name} | {value} | {baseline} | {ratio} | {target} |").ok();
        }
        text
    }

    /// Median seconds of one piece of each work. All are recorded with as many pieces as take some milliseconds; then
    /// they take turns.
    pub fn medians(&self, works: Vec<Work<'_>>) -> Result<Vec<f64>, Error> {
        let gpu = self.device.gpu();
        let mut recorded = vec![];
        for mut work in works {
            // Compiles, allocates, and tells how long it takes.
            work(0)?;
            let once = gpu.seconds(|| work(1))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 400")]
            let pieces = (0.003 / once.max(1e-6)).clamp(2.0, 400.0) as usize;
            let recording = self.device.record(|| (0..pieces).try_for_each(&mut work))?;
            recorded.push((recording.ok_or(Error::Unsupported("record"))?, pieces, vec![]));
        }
        for _ in 0..RUNS {
            for (recording, pieces, times) in &mut recorded {
                times.push(gpu.seconds(|| self.device.repeat(recording))? / *pieces as f64);
            }
        }
        Ok(recorded.into_iter().map(|(_, _, mut times)| median(&mut times)).collect())
    }

    /// A table that observes so much.
    pub fn sites(&self, detail: Detail) -> Result<Table, Error> {
        let mut table = self.device.table(4, 2)?;
        let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[1e-6, 0.9], seed: 1, detail };
        self.device.upload(&control, 0..4, &mut table)?;
        Ok(table)
    }

    /// About normal numbers.
    pub fn normal(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        // A period of some thousands is random enough for the wires, and soon made.
        let mut state = 9u64;
        let mut unit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 16_777_216.0 - 0.5
        };
        let few: Vec<f32> = (0..65_521).map(|_| (0..12).map(|_| unit()).sum()).collect();
        let mut memory = self.device.alloc(dtype, len)?;
        let values = few.iter().copied().cycle().take(len);
        match dtype {
            DType::F16 => {
                let halves: Vec<f16> = values.map(f16::from_f32).collect();
                self.device.write(Data::F16(&halves), &mut memory)?;
            }
            _ => self.device.write(Data::F32(&values.collect::<Vec<_>>()), &mut memory)?,
        }
        Ok(memory)
    }

    /// How many sets of operands of so many bytes exceed the second cache.
    pub fn sets(&self, bytes: usize) -> usize {
        (256usize << 20).div_ceil(bytes.max(1)).clamp(2, 64)
    }

    /// Whether so many bytes fit, with some to spare.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes < self.device.gpu().memory() / 10 * 8
    }
}

/// The middle one.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
