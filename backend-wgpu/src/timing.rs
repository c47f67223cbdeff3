//! How long the device itself takes, by its own timestamps.

use crate::{Error, Memory, Recording, Wgpu, memory::Bytes, queue::encode};
use core::time::Duration;
use pollster::block_on;

/// Number of timestamps, of 8 bytes each, by which a time on the device is measured.
const STAMPS: u32 = 2;
/// Pieces of work whose stamps are read together: a query set has at most 4096.
const TIMED_TOGETHER: usize = 1024;

impl Wgpu {
    /// Runs a recorded step and gives the time that it took on the device; `None` where there are no timestamps.
    ///
    /// # Errors
    /// The device's.
    pub fn time(&self, step: &Recording) -> Result<Option<Duration>, Error> {
        self.stamped(|encoder| encode(step.launches(), encoder))
    }

    /// Measures a plain copy of the start of a buffer to another, `bytes` long (a multiple of 4): a bound for all that
    /// reads and writes memory.
    ///
    /// # Errors
    /// The device's.
    pub fn time_copy(&self, from: &Memory, to: &mut Memory, bytes: u64) -> Result<Option<Duration>, Error> {
        let (from, to) = (from.bytes(), to.bytes());
        self.stamped(|encoder| encoder.copy_buffer_to_buffer(from.buffer, from.start, to.buffer, to.start, bytes))
    }

    fn stamped(&self, work: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<Option<Duration>, Error> {
        if !self.has_timestamps() {
            return Ok(None);
        }
        self.flush()?;
        let queries = self.queries(STAMPS);
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        stamp(&mut encoder, &queries, 0, work);
        self.queue().submit([encoder.finish()]);
        Ok(self.read_stamps(&queries, STAMPS)?.first().copied())
    }

    /// Submits each piece of work by itself, between two timestamps, and writes the time from one to the other. `false`
    /// where there are no timestamps.
    pub(crate) fn time_each(
        &self, times: &mut [Duration], mut work: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        // Reading stamps waits, which nothing in a browser can.
        if cfg!(target_family = "wasm") || !self.has_timestamps() {
            return Ok(false);
        }
        for (part, times) in times.chunks_mut(TIMED_TOGETHER).enumerate() {
            let mut count = 0;
            let queries = self.queries(STAMPS * u32::try_from(times.len()).unwrap_or(u32::MAX));
            for i in 0..times.len() {
                let launches = self.collect_launches(|| work(part * TIMED_TOGETHER + i))?;
                let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                stamp(&mut encoder, &queries, count, |encoder| encode(&launches, encoder));
                self.queue().submit([encoder.finish()]);
                count += STAMPS;
            }
            times.copy_from_slice(&self.read_stamps(&queries, count)?);
        }
        Ok(true)
    }

    fn has_timestamps(&self) -> bool {
        let wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        self.device().features().contains(wanted)
    }

    fn queries(&self, count: u32) -> wgpu::QuerySet {
        let ty = wgpu::QueryType::Timestamp;
        self.device().create_query_set(&wgpu::QuerySetDescriptor { label: None, ty, count })
    }

    /// Reads the times between the first timestamp and the second, the third and the fourth, … of submitted work.
    /// Waits.
    fn read_stamps(&self, queries: &wgpu::QuerySet, count: u32) -> Result<Vec<Duration>, Error> {
        let size = 8 * u64::from(count);
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let stamps = self.new_buffer(size, usage)?;
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.resolve_query_set(queries, 0..count, &stamps, 0);
        self.queue().submit([encoder.finish()]);
        let mut ticks = Vec::<u64>::new();
        let part = Bytes { size, ..Bytes::whole(&stamps) };
        block_on(self.download(&[part], |bytes| ticks = bytemuck::pod_collect_to_vec(bytes)))?;
        let period = f64::from(self.queue().get_timestamp_period()) * 1e-9;
        let between = |pair: &[u64]| Duration::from_secs_f64(pair[1].saturating_sub(pair[0]) as f64 * period);
        Ok(ticks.chunks_exact(2).map(between).collect())
    }
}

/// Encodes work between two stamps, of which this is the number of the first.
fn stamp(
    encoder: &mut wgpu::CommandEncoder, queries: &wgpu::QuerySet, first: u32,
    work: impl FnOnce(&mut wgpu::CommandEncoder),
) {
    encoder.write_timestamp(queries, first);
    work(encoder);
    encoder.write_timestamp(queries, first + 1);
}
