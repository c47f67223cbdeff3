//! Primary context of the device, which lives as long as everything that was created in it.

use crate::{Error, error::driver_error};
use cudarc::driver::{
    result::{ctx, primary_ctx},
    sys,
};

/// Primary context of a GPU, which modules and recordings keep alive.
#[derive(Debug)]
pub struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: the driver's functions may be called from every thread; each call first makes the context current.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device.
    ///
    /// # Errors
    /// The driver's.
    pub fn retain(device: sys::CUdevice) -> Result<Self, Error> {
        // SAFETY: the device exists, and the context retained here is released on drop.
        let context = unsafe { primary_ctx::retain(device) }.map_err(driver_error("open a device"))?;
        Ok(Self { device, context })
    }

    /// Makes the context that of the calling thread, because every call to the driver may come from another.
    ///
    /// # Errors
    /// The driver's.
    pub fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context lives as long as this.
        unsafe { ctx::set_current(self.context) }.map_err(driver_error("enter a device"))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained by this, and everything made in it holds this.
        unsafe { primary_ctx::release(self.device) }.ok();
    }
}
