//! Event files for TensorBoard: records with checksums (the framing of TFRecord) around messages in the encoding of
//! protocol buffers. No crate that writes them is kept up, and it takes few of either's rules.

mod message;

use crate::{
    Failure,
    metrics::Metrics,
    record::{GradientTraffic, Histogram, LogEntry, Point},
    tasks::On,
};
use message::Message;
use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// Writer of an event file for TensorBoard.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
}

/// Numbers of the fields in `tensorflow.Event`, `SessionLog`, `Summary`, `Summary.Value` and `HistogramProto`.
mod field {
    pub const EVENT_WALL_TIME: u32 = 1;
    pub const EVENT_STEP: u32 = 2;
    pub const EVENT_FILE_VERSION: u32 = 3;
    pub const EVENT_SUMMARY: u32 = 5;
    pub const EVENT_SESSION_LOG: u32 = 7;
    pub const SESSION_STATUS: u32 = 1;
    pub const SUMMARY_VALUE: u32 = 1;
    pub const VALUE_TAG: u32 = 1;
    pub const VALUE_SIMPLE: u32 = 2;
    pub const VALUE_HISTOGRAM: u32 = 5;
    pub const HISTOGRAM_MIN: u32 = 1;
    pub const HISTOGRAM_MAX: u32 = 2;
    pub const HISTOGRAM_COUNT: u32 = 3;
    pub const HISTOGRAM_SUM: u32 = 4;
    pub const HISTOGRAM_SQUARES: u32 = 5;
    pub const HISTOGRAM_LIMITS: u32 = 6;
    pub const HISTOGRAM_BUCKETS: u32 = 7;
}
use field::*;

/// Value of `SessionLog.SessionStatus.START`, after which readers drop later steps that they have.
const START: u64 = 1;

impl Writer {
    /// Creates a new event file in a directory. It invalidates the entries of earlier files for steps after
    /// `iteration`.
    pub fn create(directory: &Path, iteration: u64) -> Result<Self, Failure> {
        fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
        // Readers take the files in the order of their names.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("events.out.tfevents.{:010}.{:09}.gradscale", now.as_secs(), now.subsec_nanos());
        let path = directory.join(name);
        let file = File::create_new(&path).map_err(|error| Failure::file(&path, error))?;
        let mut writer = Self { path, file: BufWriter::new(file) };
        writer.event(0, |event| event.bytes(EVENT_FILE_VERSION, b"brain.Event:2"))?;
        if iteration > 0 {
            let start = Message::default().integer(SESSION_STATUS, START);
            // Readers drop the steps from this one on.
            writer.event(iteration + 1, |event| event.message(EVENT_SESSION_LOG, &start))?;
        }
        Ok(writer)
    }

    /// Writes the scalars of a training step to the event file.
    pub fn push(&mut self, entry: &LogEntry) -> Result<(), Failure> {
        let mut summary = Message::default();
        let mut scalar = |tag: &str, value: f64| {
            #[expect(clippy::cast_possible_truncation, reason = "TensorBoard's scalars are f32")]
            let value = Message::default().bytes(VALUE_TAG, tag.as_bytes()).float(VALUE_SIMPLE, value as f32);
            summary = std::mem::take(&mut summary).message(SUMMARY_VALUE, &value);
        };
        scalar("train/loss", f64::from(entry.loss));
        for (name, loss) in &entry.losses {
            loss.iter().for_each(|&loss| scalar(&format!("train/loss/{name}"), f64::from(loss)));
        }
        scalar("train/seconds", entry.seconds);
        scalar("train/skipped", f64::from(u8::from(entry.skipped.is_some())));
        scalar("train/repeated", entry.repeated.len() as f64);
        if let Some(GradientTraffic { ranks, sent, seconds, hidden, .. }) = entry.ranks {
            scalar("ranks/ranks", ranks as f64);
            scalar("ranks/sent", sent as f64);
            scalar("ranks/seconds", seconds);
            scalar("ranks/hidden", hidden);
        }
        for (on, scores) in [(On::Validation, &entry.validation), (On::Test, &entry.scores)] {
            for (metric, value) in scores.iter().flat_map(Metrics::iter) {
                scalar(&format!("{on}/{}", metric.key()), value);
            }
        }
        for Point { name, alpha, gamma_measured, gamma_predicted, subnormal_share, amax, overflows, .. } in &entry.sites
        {
            scalar(&format!("alpha/{name}"), f64::from(*alpha));
            scalar(&format!("gamma_measured/{name}"), *gamma_measured);
            gamma_predicted.iter().for_each(|&gamma| scalar(&format!("gamma_predicted/{name}"), gamma));
            scalar(&format!("subnormal_share/{name}"), *subnormal_share);
            amax.iter().for_each(|&amax| scalar(&format!("log2_amax/{name}"), amax));
            scalar(&format!("overflows/{name}"), *overflows as f64);
        }
        for point in &entry.sites {
            if let Some(histogram) = &point.histogram {
                let tag = format!("log2_magnitude/{}", point.name);
                let value = Message::default().bytes(VALUE_TAG, tag.as_bytes());
                summary = summary.message(SUMMARY_VALUE, &value.message(VALUE_HISTOGRAM, &logarithms(histogram)));
            }
        }
        self.event(entry.iteration, |event| event.message(EVENT_SUMMARY, &summary))
    }

    /// Writes all buffered data of the event file to disk.
    pub fn sync(&mut self) -> Result<(), Failure> {
        let done = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        done.map_err(|error| Failure::file(&self.path, error))
    }

    fn event(&mut self, step: u64, what: impl FnOnce(Message) -> Message) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = Message::default().double(EVENT_WALL_TIME, now.as_secs_f64()).integer(EVENT_STEP, step);
        let record = record(what(event).as_bytes());
        self.file.write_all(&record).map_err(|error| Failure::file(&self.path, error))
    }
}

/// Encodes a histogram of log2 of true magnitudes, with each value at the centre of its bin.
fn logarithms(histogram: &Histogram) -> Message {
    let (mut limits, mut counts) = (Vec::new(), Vec::new());
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for (limit, &inside) in (histogram.first..).zip(&histogram.counts) {
        let (limit, inside) = (f64::from(limit), f64::from(inside));
        let middle = limit - 0.5;
        limits.push(limit);
        counts.push(inside);
        count += inside;
        sum += inside * middle;
        squares += inside * middle * middle;
    }
    Message::default()
        .double(HISTOGRAM_MIN, f64::from(histogram.first) - 1.0)
        .double(HISTOGRAM_MAX, limits.last().copied().unwrap_or(0.0))
        .double(HISTOGRAM_COUNT, count)
        .double(HISTOGRAM_SUM, sum)
        .double(HISTOGRAM_SQUARES, squares)
        .doubles(HISTOGRAM_LIMITS, &limits)
        .doubles(HISTOGRAM_BUCKETS, &counts)
}

/// Frames data as a record: length, its checksum, data, their checksum; little-endian.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

/// Returns the masked CRC-32C, turned and moved so that a checksum of data that hold checksums is a good one.
fn masked(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes()
}
