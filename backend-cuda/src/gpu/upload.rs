//! Copies to the device that overlap with its work, on a separate stream.
//!
//! The first stream waits for a copy only when work that uses its memory is enqueued. So the update and the read-back
//! of a step do not wait for the next step's batch.

use super::{Gpu, staging::Staging};
use crate::{Error, error::driver_error};
use cudarc::driver::{
    DriverError,
    result::{event, stream},
    sys,
};
use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Maximum bytes of one copy: before a longer copy continues, the host waits for the previous piece.
const MAX_STAGED_BYTES: usize = 64 << 20;

/// Second CUDA stream of a GPU, for copies of batches to the device during a step.
#[derive(Debug)]
pub struct UploadStream {
    stream: sys::CUstream,
    /// Event on the first stream that copies wait for.
    mark: sys::CUevent,
    /// Event at the end of the last copy.
    arrived: sys::CUevent,
    staging: Mutex<Staging>,
    uses: Mutex<Uses>,
    /// True if the next uses of memory must be tracked.
    watches: AtomicBool,
}

/// Addresses of device memory in use by copies or by a recording.
#[derive(Debug, Default)]
struct Uses {
    /// Destinations of copies that the first stream does not wait for yet.
    in_flight: BTreeSet<u64>,
    /// Addresses of the memory that the recording in progress uses.
    recorded: Option<BTreeSet<u64>>,
}

impl UploadStream {
    /// Creates the stream in the current context.
    ///
    /// # Errors
    /// The driver's.
    pub fn new() -> Result<Self, DriverError> {
        let event = || event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Self {
            stream: stream::create(stream::StreamKind::NonBlocking)?,
            mark: event()?,
            arrived: event()?,
            staging: Mutex::new(Staging::new(MAX_STAGED_BYTES)),
            uses: Mutex::default(),
            watches: AtomicBool::new(false),
        })
    }

    fn with_uses<T>(&self, change: impl FnOnce(&mut Uses) -> T) -> T {
        let mut uses = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut uses);
        self.watches.store(!uses.in_flight.is_empty() || uses.recorded.is_some(), Relaxed);
        result
    }

    /// Returns true if the next uses of memory must be tracked.
    pub fn watches(&self) -> bool {
        self.watches.load(Relaxed)
    }

    /// Makes the stream `first` wait for all copies so far.
    ///
    /// # Safety
    /// The stream lives, does not record, and its context is current.
    unsafe fn wait(&self, first: sys::CUstream, uses: &mut Uses) {
        uses.in_flight.clear();
        let wait = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: the caller's promise; the event of the last copy lives as long as `self`. The only possible error is
        // a lost context, which the next call returns too.
        unsafe {
            if stream::wait_event(first, self.arrived, wait).is_err() {
                stream::synchronize(self.stream).ok();
            }
        }
    }

    /// Makes `first` wait for copies to this memory, so that work enqueued from now on may use it.
    ///
    /// # Safety
    /// The stream lives, and its context is current.
    pub unsafe fn before_use(&self, first: sys::CUstream, at: u64) {
        if !self.watches() {
            return;
        }
        self.with_uses(|uses| {
            if let Some(recorded) = &mut uses.recorded {
                recorded.insert(at);
            } else if uses.in_flight.contains(&at) {
                // SAFETY: the caller's promise, and nothing is recorded.
                unsafe { self.wait(first, uses) };
            }
        });
    }

    /// Makes `first` wait for copies to the memory that a recording uses.
    ///
    /// # Safety
    /// As above; nothing is recorded.
    pub unsafe fn before_replay(&self, first: sys::CUstream, used: &BTreeSet<u64>) {
        if self.watches() {
            self.with_uses(|uses| {
                if !uses.in_flight.is_disjoint(used) {
                    // SAFETY: the caller's promise.
                    unsafe { self.wait(first, uses) };
                }
            });
        }
    }

    /// Makes `first` wait for all copies, before foreign work or a new recording, in which nothing can wait for another
    /// stream.
    ///
    /// # Safety
    /// As above; nothing is recorded.
    pub unsafe fn before_foreign_work(&self, first: sys::CUstream) {
        if self.watches() {
            self.with_uses(|uses| {
                if !uses.in_flight.is_empty() {
                    // SAFETY: the caller's promise.
                    unsafe { self.wait(first, uses) };
                }
            });
        }
    }

    /// Begins to collect the memory that a recording uses.
    pub fn begin_recording(&self) {
        self.with_uses(|uses| uses.recorded = Some(BTreeSet::new()));
    }

    /// Ends the collection and returns all memory that the recording uses.
    pub fn end_recording(&self) -> BTreeSet<u64> {
        self.with_uses(|uses| uses.recorded.take().unwrap_or_default())
    }

    /// Prepares freeing memory: waits for a copy that is still writing to it.
    ///
    /// # Safety
    /// The context is current.
    pub unsafe fn before_freeing(&self, at: u64) {
        if self.watches() {
            self.with_uses(|uses| {
                if uses.in_flight.remove(&at) {
                    // SAFETY: the stream lives as long as `self`. An error here is ignored, because the next call
                    // returns it too.
                    unsafe { stream::synchronize(self.stream) }.ok();
                }
            });
        }
    }

    /// Makes later copies wait for all that is enqueued on `first` by now.
    ///
    /// # Safety
    /// The stream lives, and its context is current.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn mark(&self, first: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: the caller's promise; the event lives as long as this.
        unsafe { event::record(self.mark, first) }
    }

    /// Copies in parallel to the work enqueued on the first stream since the mark; later uses of `dst` on that stream
    /// wait.
    ///
    /// # Safety
    /// Device memory from `dst` on is as long as `src`; its context is current.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn copy_in(&self, src: &[u8], dst: u64) -> Result<(), DriverError> {
        if src.is_empty() {
            return Ok(());
        }
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise, and all handles live as long as this.
        unsafe {
            let wait = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            stream::wait_event(self.stream, self.mark, wait)?;
            let copied = staging.copy_in(src, dst, self.stream).and_then(|()| event::record(self.arrived, self.stream));
            if copied.is_err() {
                // No later work waits for this copy, so the host waits for its end.
                stream::synchronize(self.stream).ok();
            } else {
                self.with_uses(|uses| uses.in_flight.insert(dst));
            }
            copied
        }
    }

    /// Destroys the stream, after the copies in progress.
    ///
    /// # Safety
    /// The context that it was made in is current. Nothing is called afterwards.
    pub unsafe fn free(&mut self) {
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all of these were made by this.
        unsafe {
            stream::synchronize(self.stream).ok();
            staging.free();
            event::destroy(self.mark).ok();
            event::destroy(self.arrived).ok();
            stream::destroy(self.stream).ok();
        }
    }
}

impl Gpu {
    /// Makes the stream wait for copies to this memory before work that is enqueued from now on uses it.
    pub(crate) fn before_use(&self, at: u64) {
        // Called for every operand; usually there is no copy to wait for.
        if self.upload.watches() && self.enter().is_ok() {
            // SAFETY: the stream lives, in the current context.
            unsafe { self.upload.before_use(self.stream, at) };
        }
    }

    /// Orders all work enqueued so far before every later [`Self::upload_async`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn mark(&self) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the stream lives, in the current context.
        unsafe { self.upload.mark(self.stream) }.map_err(driver_error("mark a step"))
    }

    /// Copies to the device in parallel to all work enqueued since the last [`Self::mark`], which must not use that
    /// memory. Later uses ([`Self::before_use`]) are ordered after the copy. `src` may be reused on return.
    ///
    /// # Safety
    /// As [`Self::copy_in`].
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn upload_async(&self, src: &[u8], dst: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the caller's promise; the stream lives, in the current context.
        unsafe { self.upload.copy_in(src, dst) }.map_err(driver_error("copy to the device"))
    }
}
