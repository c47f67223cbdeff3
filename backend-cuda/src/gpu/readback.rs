//! Readback of small reads through pinned memory of the host. Into other memory each copy would block.

use cudarc::driver::{
    DriverError,
    result::{self, stream},
    sys,
};
use std::{
    ptr::null_mut,
    sync::{Mutex, PoisonError},
};

/// Bytes of the largest read that goes this way: rows and scalars of a step are far below.
const MAX_PINNED_BYTES: usize = 1 << 20;

/// Buffer of [`MAX_PINNED_BYTES`] bytes of pinned memory for reads, allocated at the first one.
#[derive(Debug)]
pub struct PinnedReadback {
    at: Mutex<*mut u8>,
}

impl Default for PinnedReadback {
    fn default() -> Self {
        Self { at: Mutex::new(null_mut()) }
    }
}

impl PinnedReadback {
    /// Copies several parts of device memory to the host, and waits once for all.
    ///
    /// # Safety
    /// Device memory from each address on is as long as its part; the stream's context is current.
    ///
    /// # Errors
    /// The driver's, also those of earlier work.
    pub unsafe fn copy_out(&self, stream: sys::CUstream, parts: &mut [(u64, &mut [u8])]) -> Result<(), DriverError> {
        let total: usize = parts.iter().map(|(_, part)| part.len()).sum();
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise. Every part is complete when the stream is, and this waits for the stream even
        // after an error. The slice has the total length of all parts.
        unsafe {
            if total > MAX_PINNED_BYTES {
                let copied = parts.iter_mut().try_for_each(|(src, part)| result::memcpy_dtoh_async(part, *src, stream));
                return copied.and(stream::synchronize(stream));
            }
            if at.is_null() {
                *at = result::malloc_host(MAX_PINNED_BYTES, 0)?.cast();
            }
            let all = core::slice::from_raw_parts_mut(*at, total);
            let mut rest = &mut *all;
            let copied = parts.iter().try_for_each(|(src, part)| {
                let (here, behind) = core::mem::take(&mut rest).split_at_mut(part.len());
                rest = behind;
                result::memcpy_dtoh_async(here, *src, stream)
            });
            copied.and(stream::synchronize(stream))?;
            let mut rest = &*all;
            for (_, part) in parts {
                let (here, behind) = rest.split_at(part.len());
                part.copy_from_slice(here);
                rest = behind;
            }
        }
        Ok(())
    }

    /// Frees the pinned host memory.
    ///
    /// # Safety
    /// The context that it was made in is current.
    pub unsafe fn free(&mut self) {
        let at = self.at.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !at.is_null() {
            // SAFETY: it was allocated as this, and is forgotten here.
            unsafe { result::free_host(at.cast()) }.ok();
            *at = null_mut();
        }
    }
}
