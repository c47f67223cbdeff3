//! Functions of the emulated driver, which the test has loaded.

use crate::forbidden;
use core::ffi::{c_int, c_void};
use libloading::Library;
use std::sync::OnceLock;

fn driver() -> &'static Library {
    static LOADED: OnceLock<Library> = OnceLock::new();
    // SAFETY: the library is there already, and is this project's own.
    LOADED.get_or_init(|| match unsafe { Library::new("libcuda.so") } {
        Ok(library) => library,
        Err(error) => forbidden(&format!("no emulated driver: {error}")),
    })
}

fn function<T: Copy>(name: &[u8]) -> T {
    // SAFETY: callers give the types of the emulated driver.
    match unsafe { driver().get::<T>(name) } {
        Ok(function) => *function,
        Err(error) => forbidden(&format!("another driver: {error}")),
    }
}

/// Waits for the work of a stream.
pub fn wait(stream: *mut c_void) -> Result<(), u32> {
    let synchronize: extern "C" fn(*mut c_void) -> u32 = function(b"cuStreamSynchronize");
    match synchronize(stream) {
        0 => Ok(()),
        status => Err(status),
    }
}

/// Returns the device index of the calling thread's context.
pub fn device() -> Option<usize> {
    let current: extern "C" fn() -> c_int = function(b"emulated_current_device");
    usize::try_from(current()).ok()
}

/// Returns true if the range of `bytes` bytes at `at` is memory of the calling thread's device.
pub fn is_allocated(at: usize, bytes: usize) -> bool {
    let allocated: extern "C" fn(u64, usize) -> c_int = function(b"emulated_is_allocated");
    allocated(at as u64, bytes) != 0
}
