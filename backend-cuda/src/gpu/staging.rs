//! Asynchronous copies to the device from any host memory, through pinned memory that the device reads directly. For
//! other memory the driver does not guarantee asynchronous copies on all systems.

use cudarc::driver::{
    DriverError,
    result::{self, stream},
    sys,
};
use std::ptr::null_mut;

/// Pinned memory through which copies to the device run, one after another.
#[derive(Debug)]
pub struct Staging {
    /// Maximum number of bytes that are copied at once.
    max_bytes: usize,
    at: *mut u8,
    len: usize,
    used: usize,
}

impl Staging {
    /// Creates a staging buffer; memory is allocated at the first copy.
    pub const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, at: null_mut(), len: 0, used: 0 }
    }

    /// Copies to the device on a stream; `src` may be reused on return.
    ///
    /// # Safety
    /// Device memory from `dst` on is as long as `src`. All copies from here run on this stream, whose context is
    /// current.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn copy_in(&mut self, src: &[u8], dst: u64, stream: sys::CUstream) -> Result<(), DriverError> {
        let mut at = dst;
        for part in src.chunks(self.max_bytes) {
            // SAFETY: the caller's promise; the source is in pinned memory until the copy is done.
            unsafe {
                let staged = self.stage(part, stream)?;
                result::memcpy_htod_async(at, staged, stream)?;
            }
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Marks all copies as done, so that the buffer can be reused.
    pub const fn arrived(&mut self) {
        self.used = 0;
    }

    /// Copies bytes to pinned memory, from which the device can read them. Waits for copies in flight only if there is
    /// no space left.
    ///
    /// # Safety
    /// All copies from here run on the stream, whose context is current.
    unsafe fn stage(&mut self, src: &[u8], stream: sys::CUstream) -> Result<&[u8], DriverError> {
        if self.len - self.used < src.len() {
            // SAFETY: after the wait no copy reads this memory.
            unsafe {
                stream::synchronize(stream)?;
                self.used = 0;
                if self.len < src.len() {
                    self.free();
                    // Large enough that the next batch fits in addition.
                    let len = 4 * src.len();
                    self.at = result::malloc_host(len, 0)?.cast();
                    self.len = len;
                }
            }
        }
        // SAFETY: this range follows the used part, and no copy reads there.
        let staged = unsafe { core::slice::from_raw_parts_mut(self.at.add(self.used), src.len()) };
        staged.copy_from_slice(src);
        self.used += src.len();
        Ok(staged)
    }

    /// Frees the pinned staging memory.
    ///
    /// # Safety
    /// No copy reads here any more, and the context is current.
    pub unsafe fn free(&mut self) {
        if !self.at.is_null() {
            // SAFETY: it was allocated as this, and is forgotten here.
            unsafe { result::free_host(self.at.cast()) }.ok();
            (self.at, self.len, self.used) = (null_mut(), 0, 0);
        }
    }
}
