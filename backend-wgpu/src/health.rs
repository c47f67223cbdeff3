//! Health of a device: errors that its callbacks report.

use crate::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// Returns the error of a lost device, or takes the error that was reported since the last call.
    pub fn check(&self) -> Result<(), Error> {
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
    pub fn capture_validation_error(&self) -> Result<(), Error> {
        lock(&self.failed).take().map_or(Ok(()), Err)
    }
}
