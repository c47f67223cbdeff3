//! Copies to the device beside its work: a stream of their own, from memory that the device reads by itself.

use cudarc::driver::{
    DriverError,
    result::{self, event, stream},
    sys,
};
use std::{
    ptr::null_mut,
    sync::{Mutex, PoisonError},
};

/// Bytes of the largest copy that goes through pinned memory. During a larger one the host waits.
const MOST: usize = 64 << 20;

/// The second stream.
#[derive(Debug)]
pub struct Beside {
    stream: sys::CUstream,
    /// What copies wait for, on the first stream.
    mark: sys::CUevent,
    /// The last copy's end.
    arrived: sys::CUevent,
    pinned: Mutex<Pinned>,
}

/// Memory of the host from which copies are under way, one behind the other.
#[derive(Debug)]
struct Pinned {
    at: *mut u8,
    len: usize,
    used: usize,
}

impl Beside {
    /// A stream, in the current context.
    ///
    /// # Errors
    /// The driver's.
    pub fn new() -> Result<Self, DriverError> {
        let event = || event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Self {
            stream: stream::create(stream::StreamKind::NonBlocking)?,
            mark: event()?,
            arrived: event()?,
            pinned: Mutex::new(Pinned { at: null_mut(), len: 0, used: 0 }),
        })
    }

    /// Copies wait for all that is enqueued on `first` by now.
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

    /// Copies beside the work enqueued on `first` since the mark; what is enqueued there later waits.
    ///
    /// # Safety
    /// Device memory from `dst` on is as long as `src`; the stream lives, and its context is current.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn copy_in(&self, first: sys::CUstream, src: &[u8], dst: u64) -> Result<(), DriverError> {
        if src.is_empty() {
            return Ok(());
        }
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise, and all handles live as long as this. From memory that is not pinned the driver
        // has read all of `src` on return.
        unsafe {
            let wait = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            stream::wait_event(self.stream, self.mark, wait)?;
            let staged = if src.len() > MOST { None } else { pinned.stage(src, self.stream).ok() };
            let copied = result::memcpy_htod_async(dst, staged.unwrap_or(src), self.stream)
                .and_then(|()| event::record(self.arrived, self.stream))
                .and_then(|()| stream::wait_event(first, self.arrived, wait));
            if copied.is_err() {
                // Nobody waits for this copy: so it ends here.
                stream::synchronize(self.stream).ok();
            }
            copied
        }
    }

    /// Ends it, after the copies under way.
    ///
    /// # Safety
    /// The context that it was made in is current. Nothing is called afterwards.
    pub unsafe fn free(&mut self) {
        let pinned = self.pinned.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all of these were made by this.
        unsafe {
            stream::synchronize(self.stream).ok();
            pinned.free();
            event::destroy(self.mark).ok();
            event::destroy(self.arrived).ok();
            stream::destroy(self.stream).ok();
        }
    }
}

impl Pinned {
    /// The bytes, where the device can read them. Waits for copies under way only if there is no room beside them.
    ///
    /// # Safety
    /// All copies from here run on the stream, whose context is current.
    unsafe fn stage(&mut self, src: &[u8], copies: sys::CUstream) -> Result<&[u8], DriverError> {
        if self.len - self.used < src.len() {
            // SAFETY: after waiting nobody reads this memory.
            unsafe {
                stream::synchronize(copies)?;
                self.used = 0;
                if self.len < src.len() {
                    self.free();
                    // The next batch finds room beside this one.
                    let len = 4 * src.len();
                    self.at = result::malloc_host(len, 0)?.cast();
                    self.len = len;
                }
            }
        }
        // SAFETY: so much lies behind what is used, and no copy reads there.
        let staged = unsafe { core::slice::from_raw_parts_mut(self.at.add(self.used), src.len()) };
        staged.copy_from_slice(src);
        self.used += src.len();
        Ok(staged)
    }

    /// # Safety
    /// No copy reads here any more, and the context is current.
    unsafe fn free(&mut self) {
        if !self.at.is_null() {
            // SAFETY: it was allocated as this, and is forgotten here.
            unsafe { result::free_host(self.at.cast()) }.ok();
            (self.at, self.len, self.used) = (null_mut(), 0, 0);
        }
    }
}
