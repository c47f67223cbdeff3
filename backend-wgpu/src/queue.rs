//! Queue of launches. They are encoded into one submission when a caller waits or when there are enough of them, or kept as
//! a recording.

use crate::{Error, Wgpu, memory::Bytes};
use futures_channel::oneshot;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Maximum number of launches of a submission: enough to hide its cost, few enough that the device starts early.
const MAX_LAUNCHES_PER_SUBMIT: usize = 512;

/// Dispatch of a compute shader that waits for submission: pipeline, bindings and grid.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub pipeline: wgpu::ComputePipeline,
    pub bindings: wgpu::BindGroup,
    pub grid: [u32; 3],
    /// Skipped while the number is below the second one: launches that only some levels of detail need.
    pub only: Option<(Arc<AtomicU32>, u32)>,
}

/// Recorded launches of a training step, which can be enqueued again.
#[derive(Debug, Default)]
pub struct Recording {
    launches: Vec<Launch>,
}

impl Recording {
    pub(crate) fn launches(&self) -> &[Launch] {
        &self.launches
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    launches: Vec<Launch>,
    /// Launches of the recording in progress, or `None` while nothing is recorded.
    recording: Option<Vec<Launch>>,
    /// True if launches are collected without a limit, because a caller puts timestamps around them.
    is_held: bool,
}

/// Errors that the device's callbacks have reported. A lost device stays lost; any other error is returned once. Callbacks run
/// inside the failing call, in browsers some time afterwards. Error scopes are not used, because one must wait for them.
#[derive(Debug, Default)]
pub(crate) struct Health {
    lost: Mutex<Option<String>>,
    failed: Mutex<Option<Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// Registers callbacks with a device that store its errors.
    pub fn watch(device: &wgpu::Device) -> Arc<Self> {
        let health = Arc::new(Self::default());
        let listener = health.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let text = crate::error::chain(&error);
            let error = match error {
                wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory { bytes: 0, reason: text },
                _ => Error::Failed(text),
            };
            lock(&listener.failed).get_or_insert(error);
        }));
        let listener = health.clone();
        device.set_device_lost_callback(move |reason, message| {
            lock(&listener.lost).get_or_insert(format!("{reason:?}: {message}"));
        });
        health
    }

    fn check(&self) -> Result<(), Error> {
        if let Some(reason) = &*lock(&self.lost) {
            return Err(Error::Lost(reason.clone()));
        }
        self.capture_validation_error()
    }

    /// Takes the reason of an out-of-memory error, if one was reported. Other errors stay, because a lost device may report its
    /// loss later.
    pub fn refused(&self) -> Option<String> {
        match lock(&self.failed).take_if(|error| matches!(error, Error::OutOfMemory { .. })) {
            Some(Error::OutOfMemory { reason, .. }) => Some(reason),
            _ => None,
        }
    }

    /// Takes the error that was reported since the last call.
    fn capture_validation_error(&self) -> Result<(), Error> {
        lock(&self.failed).take().map_or(Ok(()), Err)
    }
}

impl Wgpu {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        lock(&self.pending)
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
        let staging = self.new_buffer(size, wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST)?;
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
        staging.map_async(wgpu::MapMode::Read, .., move |result| {
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
        let view = staging.get_mapped_range(..).map_err(|error| Error::Failed(error.to_string()))?;
        show(&view);
        Ok(())
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

/// Encodes all launches into one pass. wgpu inserts barriers where they are needed.
pub(crate) fn encode(launches: &[Launch], encoder: &mut wgpu::CommandEncoder) {
    if launches.is_empty() {
        return;
    }
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    for launch in launches {
        let [x, y, z] = launch.grid;
        pass.set_pipeline(&launch.pipeline);
        pass.set_bind_group(0, &launch.bindings, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

impl Wgpu {
    /// Runs `work` and returns the validation error that wgpu reported, if it did at once. Browsers report later: see
    /// [`Health`].
    pub(crate) fn capture_validation_error<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        let result = work();
        self.health.capture_validation_error().map(|()| result)
    }
}
