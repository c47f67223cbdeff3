//! How long the device itself takes, by its own timestamps.

use crate::{Error, Memory, Recording, Wgpu, memory::Bytes, queue::encode};
use core::time::Duration;
use pollster::block_on;

/// A time on the device is asked of two stamps of 8 bytes.
const STAMPS: u32 = 2;

impl Wgpu {
    /// Runs a recorded step and gives the time that it took on the device; `None` where there are no timestamps.
    ///
    /// # Errors
    /// The device's.
    pub fn time(&self, step: &Recording) -> Result<Option<Duration>, Error> {
        self.stamped(|encoder| encode(step.launches(), encoder))
    }

    /// The time of a plain copy of the start of a buffer to another, `bytes` long (a multiple of 4): a bound for all
    /// that reads and writes memory.
    ///
    /// # Errors
    /// The device's.
    pub fn time_copy(&self, from: &Memory, to: &mut Memory, bytes: u64) -> Result<Option<Duration>, Error> {
        let (from, to) = (from.bytes(), to.bytes());
        self.stamped(|encoder| encoder.copy_buffer_to_buffer(from.buffer, from.start, to.buffer, to.start, bytes))
    }

    fn stamped(&self, work: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<Option<Duration>, Error> {
        let wanted = wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::TIMESTAMP_QUERY_INSIDE_ENCODERS;
        if !self.device().features().contains(wanted) {
            return Ok(None);
        }
        self.flush()?;
        let queries = self.device().create_query_set(&wgpu::QuerySetDescriptor {
            label: None,
            ty: wgpu::QueryType::Timestamp,
            count: STAMPS,
        });
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let stamps = self.new_buffer(8 * u64::from(STAMPS), usage)?;
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.write_timestamp(&queries, 0);
        work(&mut encoder);
        encoder.write_timestamp(&queries, 1);
        encoder.resolve_query_set(&queries, 0..STAMPS, &stamps, 0);
        self.queue().submit([encoder.finish()]);
        let mut ticks = Vec::<u64>::new();
        let part = Bytes { size: 8 * u64::from(STAMPS), ..Bytes::all(&stamps) };
        block_on(self.download(&[part], |bytes| ticks = bytemuck::pod_collect_to_vec(bytes)))?;
        let nanoseconds = (ticks[1] - ticks[0]) as f64 * f64::from(self.queue().get_timestamp_period());
        Ok(Some(Duration::from_secs_f64(nanoseconds * 1e-9)))
    }
}
