//! Times, medians, and the table.

use crate::{
    model::{self, Figures, Work as Asked},
    targets,
};
use gradscale_core::{
    backend::{Backend, Control, DType, Data},
    stats::Detail,
};
use gradscale_cuda::{Cuda, Error, Memory, Table};
use half::f16;
use std::fmt::Write;

/// Runs of each side.
const RUNS: usize = 21;

/// The same of everything that is only to be seen to run.
const RUNS_IF_SMALL: usize = 1;

/// The device and what was measured on it.
pub struct Bench<'a> {
    pub device: &'a Cuda,
    words: Vec<String>,
    /// Whether everything is so small that an emulated device computes it: figures mean nothing then.
    small: bool,
    figures: Option<&'static Figures>,
    lines: Vec<Line>,
    /// 10⁹ bytes read and written by a copy in a second.
    pub copy: f64,
}

struct Line {
    name: String,
    value: String,
    beside: String,
    ratio: Option<f64>,
    model: String,
}

/// Work that can be enqueued again and again; the number says which set of operands to take.
pub type Work<'w> = Box<dyn FnMut(usize) -> Result<(), Error> + 'w>;

impl<'a> Bench<'a> {
    pub fn new(device: &'a Cuda, words: Vec<String>, small: bool) -> Self {
        let figures = model::figures(device.caps().name);
        Self { device, words, small, figures, lines: vec![], copy: 0.0 }
    }

    pub fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// A size, or the one that is small.
    pub const fn size<T: Copy>(&self, large: T, small: T) -> T {
        if self.small { small } else { large }
    }

    /// Adds a line.
    pub fn line(&mut self, name: &str, value: String, beside: String, ratio: Option<f64>) {
        self.line_of(name, value, beside, ratio, None);
    }

    /// Adds a line with what the model says of it: what was asked of the device, and the seconds that it took.
    pub fn line_of(
        &mut self, name: &str, value: String, beside: String, ratio: Option<f64>, work: Option<(Asked, f64)>,
    ) {
        let expected = self.figures.zip(work).map(|(gpu, (work, seconds))| gpu.expect(&work).words(seconds));
        let model = expected.unwrap_or_default();
        println!("{name}: {value}; {beside}; {}; {model}", ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")));
        self.lines.push(Line { name: name.into(), value, beside, ratio, model });
    }

    /// The maker's figures of the device, where they are known.
    pub const fn figures(&self) -> Option<&'static Figures> {
        self.figures
    }

    /// Work that goes from element to element, where its instructions have been counted.
    pub fn elements(&self, what: &str, count: f64, bytes: f64) -> Option<Asked> {
        let instructions = model::instructions(what, self.device.gpu().arch())?;
        Some(Asked::elements(count, instructions, bytes))
    }

    /// Everything measured, as Markdown.
    pub fn table(&self) -> String {
        let mut text =
            String::from("\n| what | here | beside it | ratio | target | model |\n|---|---|---|---|---|---|\n");
        for Line { name, value, beside, ratio, model } in &self.lines {
            let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
            let target = targets::of(name).map_or(String::new(), |target| target.words());
            writeln!(text, "| {name} | {value} | {beside} | {ratio} | {target} | {model} |").ok();
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
            let pieces = self.size((0.003 / once.max(1e-6)).clamp(2.0, 400.0) as usize, 2);
            let recording = self.device.record(|| (0..pieces).try_for_each(&mut work))?;
            recorded.push((recording.ok_or(Error::Unsupported("record"))?, pieces, vec![]));
        }
        for _ in 0..self.size(RUNS, RUNS_IF_SMALL) {
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
        self.size(256usize << 20, 0).div_ceil(bytes.max(1)).clamp(2, 64)
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
