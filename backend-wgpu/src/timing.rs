//! Timing of work by timestamps of the device.

use crate::{Error, Memory, Recording, Wgpu, memory::Bytes, recording::encode};
use core::time::Duration;
use pollster::block_on;

/// Number of timestamps, of 8 bytes each, by which a time on the device is measured.
const TIMESTAMPS_PER_MEASUREMENT: u32 = 2;
/// Number of measurements whose timestamps are read at once: a query set has at most 4096 timestamps.
const MAX_MEASUREMENTS_PER_QUERY_SET: usize = 1024;

impl Wgpu {
    /// Runs a recorded step and returns its time on the device, or `None` without timestamps.
    ///
    /// # Errors
    /// The device's.
    pub fn time(&self, step: &Recording) -> Result<Option<Duration>, Error> {
        self.time_commands(|encoder| encode(step.launches(), encoder))
    }

    /// Measures a plain copy of the start of a buffer to another, `bytes` long (a multiple of 4): a bound for all that
    /// reads and writes memory.
    ///
    /// # Errors
    /// The device's.
    pub fn time_copy(&self, from: &Memory, to: &mut Memory, bytes: u64) -> Result<Option<Duration>, Error> {
        let (from, to) = (from.bytes(), to.bytes());
        self.time_commands(|encoder| encoder.copy_buffer_to_buffer(from.buffer, from.start, to.buffer, to.start, bytes))
    }

    fn time_commands(&self, work: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<Option<Duration>, Error> {
        if !self.has_timestamps() {
            return Ok(None);
        }
        self.flush()?;
        let query_set = self.new_query_set(TIMESTAMPS_PER_MEASUREMENT);
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encode_between_timestamps(&mut encoder, &query_set, 0, work);
        self.queue().submit([encoder.finish()]);
        Ok(self.read_timestamps(&query_set, TIMESTAMPS_PER_MEASUREMENT)?.first().copied())
    }

    /// Submits each piece of work separately, between two timestamps, and writes their difference. Returns `false` without
    /// timestamps.
    pub(crate) fn time_each(
        &self, times: &mut [Duration], mut work: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        // Reading timestamps blocks, which is impossible in a browser.
        if cfg!(target_family = "wasm") || !self.has_timestamps() {
            return Ok(false);
        }
        for (part, times) in times.chunks_mut(MAX_MEASUREMENTS_PER_QUERY_SET).enumerate() {
            let mut count = 0;
            let query_set =
                self.new_query_set(TIMESTAMPS_PER_MEASUREMENT * u32::try_from(times.len()).unwrap_or(u32::MAX));
            for i in 0..times.len() {
                let launches = self.collect_launches(|| work(part * MAX_MEASUREMENTS_PER_QUERY_SET + i))?;
                let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                encode_between_timestamps(&mut encoder, &query_set, count, |encoder| encode(&launches, encoder));
                self.queue().submit([encoder.finish()]);
                count += TIMESTAMPS_PER_MEASUREMENT;
            }
            times.copy_from_slice(&self.read_timestamps(&query_set, count)?);
        }
        Ok(true)
    }

    fn has_timestamps(&self) -> bool {
        let wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        self.device().features().contains(wanted)
    }

    fn new_query_set(&self, count: u32) -> wgpu::QuerySet {
        let ty = wgpu::QueryType::Timestamp;
        self.device().create_query_set(&wgpu::QuerySetDescriptor { label: None, ty, count })
    }

    /// Reads the times between the first timestamp and the second, the third and the fourth, … of submitted work.
    /// Waits.
    fn read_timestamps(&self, query_set: &wgpu::QuerySet, count: u32) -> Result<Vec<Duration>, Error> {
        let size = 8 * u64::from(count);
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let timestamps = self.new_buffer(size, usage)?;
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.resolve_query_set(query_set, 0..count, &timestamps, 0);
        self.queue().submit([encoder.finish()]);
        let mut ticks = Vec::<u64>::new();
        let part = Bytes { size, ..Bytes::whole(&timestamps) };
        block_on(self.download(&[part], |bytes| ticks = bytemuck::pod_collect_to_vec(bytes)))?;
        let period = f64::from(self.queue().get_timestamp_period()) * 1e-9;
        let between = |pair: &[u64]| Duration::from_secs_f64(pair[1].saturating_sub(pair[0]) as f64 * period);
        Ok(ticks.chunks_exact(2).map(between).collect())
    }
}

/// Encodes work between timestamps `first` and `first + 1`.
fn encode_between_timestamps(
    encoder: &mut wgpu::CommandEncoder, query_set: &wgpu::QuerySet, first: u32,
    work: impl FnOnce(&mut wgpu::CommandEncoder),
) {
    encoder.write_timestamp(query_set, first);
    work(encoder);
    encoder.write_timestamp(query_set, first + 1);
}
