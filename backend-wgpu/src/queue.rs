//! Queue of launches. They are encoded into one submission when a caller waits or when there are enough of them, or kept as
//! a recording.

use crate::{
    Error, Recording, Wgpu,
    memory::Bytes,
    recording::{Launch, Pending, encode},
};
use futures_channel::oneshot;
use std::sync::{MutexGuard, PoisonError, atomic::Ordering::Relaxed};

/// Maximum number of launches of a submission: enough to hide its cost, few enough that the device starts early.
const MAX_LAUNCHES_PER_SUBMIT: usize = 512;

/// Maximum number of bytes of a staging buffer that is kept for the next download, which holds the statistics rows of 800
/// sites. Whole tensors are downloaded rarely, and their buffers are freed.
const MAX_KEPT_STAGING_BYTES: u64 = 1 << 20;
/// Maximum number of staging buffers that are kept: one is read while the next step is submitted.
const MAX_KEPT_STAGING_BUFFERS: usize = 2;

impl Wgpu {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enqueue(&self, launch: Launch) -> Result<(), Error> {
        let mut pending = self.pending();
        if let Some(recording) = &mut pending.recording {
            recording.push(launch);
            return Ok(());
        }
        pending.launches.push(launch);
        self.dispatches.fetch_add(1, Relaxed);
        let is_full = pending.launches.len() >= MAX_LAUNCHES_PER_SUBMIT && !pending.is_held;
        drop(pending);
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Submits all enqueued launches to the device.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let launches = core::mem::take(&mut self.pending().launches);
        if !launches.is_empty() {
            let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encode(&launches, &mut encoder);
            self.queue().submit([encoder.finish()]);
        }
        self.health.check()
    }

    /// Copies parts of buffers (multiples of 4 bytes) after all collected launches, waits, and passes them to `show` as one
    /// slice.
    pub(crate) async fn download(&self, parts: &[Bytes<'_>], show: impl FnOnce(&[u8])) -> Result<(), Error> {
        let size = parts.iter().map(|part| part.size).sum();
        let staging = self.staging_buffer(size)?;
        let launches = core::mem::take(&mut self.pending().launches);
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encode(&launches, &mut encoder);
        let mut at = 0;
        for &Bytes { buffer, start, size } in parts {
            encoder.copy_buffer_to_buffer(buffer, start, &staging, at, size);
            at += size;
        }
        self.queue().submit([encoder.finish()]);
        let (send, mut receive) = oneshot::channel();
        staging.map_async(wgpu::MapMode::Read, ..size, move |result| {
            // The receiver is gone only after an error that was returned.
            send.send(result).ok();
        });
        // Browsers do not block here. Elsewhere the callback has run when this returns.
        let polled = self.device().poll(wgpu::PollType::wait_indefinitely());
        let answer = if cfg!(target_family = "wasm") { receive.await.ok() } else { receive.try_recv().ok().flatten() };
        self.health.check()?;
        polled.map_err(|error| Error::Failed(error.to_string()))?;
        match answer {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(Error::Failed(error.to_string())),
            None => return Err(Error::Failed("the device did not answer".into())),
        }
        let view = staging.get_mapped_range(..size).map_err(|error| Error::Failed(error.to_string()))?;
        show(&view);
        drop(view);
        staging.unmap();
        self.keep_staging_buffer(staging);
        Ok(())
    }

    /// Returns a buffer of at least `size` bytes for a download: a kept one, because otherwise every step creates and frees
    /// one, or a new one.
    fn staging_buffer(&self, size: u64) -> Result<wgpu::Buffer, Error> {
        let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = kept.iter().position(|buffer| buffer.size() >= size) {
            return Ok(kept.swap_remove(index));
        }
        drop(kept);
        let size = if size <= MAX_KEPT_STAGING_BYTES { size.next_power_of_two() } else { size };
        self.new_buffer(size, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)
    }

    /// Keeps a buffer for later downloads, in place of the smallest one if there are enough.
    fn keep_staging_buffer(&self, buffer: wgpu::Buffer) {
        if buffer.size() > MAX_KEPT_STAGING_BYTES {
            return;
        }
        let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(buffer);
        if kept.len() > MAX_KEPT_STAGING_BUFFERS {
            kept.sort_by_key(|buffer| core::cmp::Reverse(buffer.size()));
            kept.truncate(MAX_KEPT_STAGING_BUFFERS);
        }
    }

    /// Runs `work` and returns its launches without submitting them.
    pub(crate) fn collect_launches(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<Vec<Launch>, Error> {
        self.flush()?;
        self.pending().is_held = true;
        let done = work();
        let mut pending = self.pending();
        pending.is_held = false;
        let launches = core::mem::take(&mut pending.launches);
        done.map(|()| launches)
    }

    pub(crate) fn start_recording(&self) {
        let mut pending = self.pending();
        assert!(pending.recording.is_none(), "a recording inside a recording");
        pending.recording = Some(Vec::new());
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.pending().recording.is_some()
    }

    pub(crate) fn end_recording(&self) -> Recording {
        Recording { launches: self.pending().recording.take().unwrap_or_default() }
    }

    /// Enqueues the launches of a recording again.
    pub(crate) fn replay(&self, step: &Recording) -> Result<(), Error> {
        step.launches.iter().try_for_each(|launch| {
            let wanted = launch.only.as_ref().is_none_or(|(now, least)| now.load(Relaxed) >= *least);
            if wanted { self.enqueue(launch.clone()) } else { Ok(()) }
        })
    }
}
