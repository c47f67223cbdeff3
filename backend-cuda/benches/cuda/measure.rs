//! Times, medians, and the table.

use crate::{
    model::{self, Figures, Work as Asked},
    sensors::{Sensor, Sensors},
    targets,
};
use gradscale_core::{
    backend::{Backend, Control, DType, Data},
    stats::Detail,
};
use gradscale_cuda::{Cuda, Error, GpuRecording, Memory, Table};
use half::f16;
use std::{fmt::Write, time::Instant};

/// Timed runs of each side of a comparison, of which the median counts.
const RUNS: usize = 21;

/// Runs of each side at least, and the seconds after which there are no more: a logits' gradient takes 30 ms, and time on a
/// device is short.
const MIN_RUNS: usize = 5;
const MAX_SECONDS: f64 = 1.5;

/// Number of timed runs where the bench is only checked to run.
const RUNS_IF_SMALL: usize = 1;

/// Repeats of a recording of 3 ms that are enqueued at once where a side is measured alone: 48 ms, several of the 20 ms in
/// which the driver renews its reading of the power.
const REPEATS_ALONE: usize = 16;

/// Work recorded as several equal pieces one after another.
pub struct Recorded {
    recording: GpuRecording,
    pieces: usize,
}

/// Result of a side of a comparison that was measured alone.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// Median seconds of one recorded piece.
    pub seconds: f64,
    /// Clock and power during the measurement, if the machine has sensors.
    pub sensor: Option<Sensor>,
}

impl Alone {
    /// Returns clock and power as text, which follows the speed in a table.
    pub fn conditions(&self) -> String {
        let words = |sensor: Sensor| format!(" at {:.0} MHz, {:.0} W", sensor.megahertz, sensor.watts);
        self.sensor.map_or_else(String::new, words)
    }
}

/// Bench: the device, its settings and everything measured so far.
pub struct Bench<'a> {
    pub device: &'a Cuda,
    words: Vec<String>,
    /// True if everything is so small that an emulated device computes it; figures mean nothing then.
    small: bool,
    figures: Option<&'static Figures>,
    sensors: Sensors,
    lines: Vec<Line>,
    /// Speed of the fastest copy, with which kernels are compared.
    pub copy: CopySpeed,
}

/// Speed of a copy on the device.
#[derive(Clone, Copy, Debug)]
pub struct CopySpeed {
    /// Speed of the copy in 10⁹ bytes read and written a second.
    pub gigabytes: f64,
    /// Name of the fastest copy: the driver's, the copy kernel's or the store kernel's.
    pub by: &'static str,
}

struct Line {
    name: String,
    value: String,
    beside: String,
    ratio: Option<f64>,
    model: String,
}

/// Work that can be enqueued repeatedly; the number selects the set of operands.
pub type Work<'w> = Box<dyn FnMut(usize) -> Result<(), Error> + 'w>;

impl<'a> Bench<'a> {
    pub fn new(device: &'a Cuda, words: Vec<String>, small: bool) -> Self {
        let figures = model::figures(device.caps().name);
        Self {
            device,
            words,
            small,
            figures,
            sensors: Sensors::open(),
            lines: vec![],
            copy: CopySpeed { gigabytes: 0.0, by: "nothing" },
        }
    }

    pub fn wants(&self, name: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| name.contains(word.as_str()))
    }

    /// Returns a bench of another device with the same settings.
    pub fn with_device<'b>(&self, device: &'b Cuda) -> Bench<'b> {
        Bench::new(device, self.words.clone(), self.small)
    }

    /// Reports if a group of lines was requested by its own word, or everything was.
    pub fn wants_group(&self, word: &str) -> bool {
        self.words.is_empty() || self.names(word)
    }

    /// Returns true if the command line has this word.
    pub fn names(&self, word: &str) -> bool {
        self.words.iter().any(|one| one == word)
    }

    /// Returns the large size, or the small one if the bench is only checked to run.
    pub const fn size<T: Copy>(&self, large: T, small: T) -> T {
        if self.small { small } else { large }
    }

    /// Adds a line to the table of measurements.
    pub fn line(&mut self, name: &str, value: String, beside: String, ratio: Option<f64>) {
        self.line_of(name, value, beside, ratio, None);
    }

    /// Adds a line with the model's expectation: the work of the device, and the measured seconds.
    pub fn line_of(
        &mut self, name: &str, value: String, beside: String, ratio: Option<f64>, work: Option<(Asked, f64)>,
    ) {
        let expected = self.figures.zip(work).map(|(gpu, (work, seconds))| gpu.expect(&work).words(seconds));
        let model = expected.unwrap_or_default();
        println!("{name}: {value}; {beside}; {}; {model}", ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")));
        self.lines.push(Line { name: name.into(), value, beside, ratio, model });
    }

    /// Returns the manufacturer's figures of the device, if they are known.
    pub const fn figures(&self) -> Option<&'static Figures> {
        self.figures
    }

    /// Returns the work of an elementwise kernel, if its instructions have been counted.
    pub fn elements(&self, what: &str, count: f64, bytes: f64) -> Option<Asked> {
        let instructions = model::instructions(what, self.device.gpu().arch())?;
        Some(Asked::elements(count, instructions, bytes))
    }

    /// Returns all measurements as a table in Markdown.
    pub fn table(&self) -> String {
        let mut text =
            String::from("\n| what | here | beside it | ratio | target | model |\n|---|---|---|---|---|---|\n");
        for Line { name, value, beside, ratio, model } in &self.lines {
            let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.3}"));
            let target = targets::find_target(name).map_or(String::new(), |target| target.words());
            writeln!(text, "| {name} | {value} | {beside} | {ratio} | {target} | {model} |").ok();
        }
        text
    }

    /// Measures the median seconds of one piece of each work. All are recorded with as many pieces as take some
    /// milliseconds; then they take turns.
    ///
    /// # Errors
    /// The device's.
    pub fn medians(&self, works: Vec<Work<'_>>) -> Result<Vec<f64>, Error> {
        self.in_turns(&self.recorded(works)?)
    }

    /// Records each work with as many pieces as take some milliseconds.
    ///
    /// # Errors
    /// The device's, or that it cannot record.
    pub fn recorded(&self, works: Vec<Work<'_>>) -> Result<Vec<Recorded>, Error> {
        let gpu = self.device.gpu();
        let mut all = vec![];
        for mut work in works {
            // Compiles, allocates, and tells how long it takes.
            work(0)?;
            let once = gpu.seconds(|| work(1))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 2 and 400")]
            let pieces = self.size((0.003 / once.max(1e-6)).clamp(2.0, 400.0) as usize, 2);
            let recording = self.device.record(|| (0..pieces).try_for_each(&mut work))?;
            all.push(Recorded { recording: recording.ok_or(Error::Unsupported("record"))?, pieces });
        }
        Ok(all)
    }

    /// Measures the median seconds of one piece of each recorded work, while all take turns.
    ///
    /// # Errors
    /// The device's.
    pub fn in_turns(&self, all: &[Recorded]) -> Result<Vec<f64>, Error> {
        let mut times = vec![vec![]; all.len()];
        let start = Instant::now();
        for run in 0..self.size(RUNS, RUNS_IF_SMALL) {
            if run >= MIN_RUNS && start.elapsed().as_secs_f64() > MAX_SECONDS {
                break;
            }
            for (Recorded { recording, pieces }, times) in all.iter().zip(&mut times) {
                times.push(self.device.gpu().seconds(|| self.device.replay(recording))? / *pieces as f64);
            }
        }
        Ok(times.iter_mut().map(|times| median(times)).collect())
    }

    /// Measures the seconds of one piece of a work that has the device for itself, with the clock and power that it
    /// settles at. Clock and temperature settle in the first half of `seconds`, which is not counted.
    ///
    /// # Errors
    /// The device's.
    pub fn alone(&self, recorded: &Recorded, seconds: f64) -> Result<Alone, Error> {
        let Recorded { recording, pieces } = recorded;
        let (gpu, start, seconds) = (self.device.gpu(), Instant::now(), self.size(seconds, 0.0));
        let (mut times, mut sensors) = (vec![], vec![]);
        loop {
            let counts = start.elapsed().as_secs_f64() >= 0.5 * seconds;
            let mut sensor = None;
            // Enough repeats that the device does not wait for the host between them, and still runs when sensors are
            // read.
            let repeats = self.size(REPEATS_ALONE, 1);
            let took = gpu.seconds(|| {
                (0..repeats).try_for_each(|_| self.device.replay(recording))?;
                sensor = self.sensors.read();
                Ok(())
            })?;
            if counts {
                times.push(took / (repeats * pieces) as f64);
                sensors.extend(sensor);
            }
            if start.elapsed().as_secs_f64() >= seconds && !times.is_empty() {
                break;
            }
        }
        let middle = |of: fn(&Sensor) -> f64| {
            let mut all: Vec<f64> = sensors.iter().map(of).collect();
            (!all.is_empty()).then(|| median(&mut all))
        };
        let sensor = middle(|one| one.megahertz).zip(middle(|one| one.watts));
        let sensor = sensor.map(|(megahertz, watts)| Sensor { megahertz, watts });
        Ok(Alone { seconds: median(&mut times), sensor })
    }

    /// Creates a table of statistics with this level of detail.
    pub fn sites(&self, detail: Detail) -> Result<Table, Error> {
        let mut table = self.device.table(4, 2)?;
        let control = Control { exponents: &[0, 0, 3, 5], hyperparameters: &[1e-6, 0.9], seed: 1, detail };
        self.device.upload(&control, 0..4, &mut table)?;
        Ok(table)
    }

    /// Allocates a tensor of about normally distributed numbers.
    pub fn normal(&self, dtype: DType, len: usize) -> Result<Memory, Error> {
        // A period of some thousands is random enough for the wires, and soon made.
        let mut state = 9u64;
        let mut unit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 16_777_216.0 - 0.5
        };
        let few: Vec<f32> = (0..65_521).map(|_| (0..12).map(|_| unit()).sum()).collect();
        let mut memory = self.device.alloc(dtype, len)?;
        match dtype {
            DType::F16 => {
                let halves: Vec<f16> = few.into_iter().map(f16::from_f32).collect();
                self.device.write(Data::F16(&repeated(&halves, len)), &mut memory)?;
            }
            _ => self.device.write(Data::F32(&repeated(&few, len)), &mut memory)?,
        }
        Ok(memory)
    }

    /// Returns the number of sets of operands, of `bytes` bytes each, that exceed the L2 cache.
    pub fn sets(&self, bytes: usize) -> usize {
        self.size(256usize << 20, 0).div_ceil(bytes.max(1)).clamp(2, 64)
    }

    /// Returns true if `bytes` bytes fit the device's memory with a reserve.
    pub fn fits(&self, bytes: u64) -> bool {
        bytes < self.device.gpu().memory() / 10 * 8
    }
}

/// Returns `len` values, these repeated; whole slices are copied, since a tensor may have 10⁹ of them.
fn repeated<T: Copy>(values: &[T], len: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(len);
    while all.len() < len {
        all.extend_from_slice(&values[..values.len().min(len - all.len())]);
    }
    all
}

/// Returns the median of some times.
pub fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
