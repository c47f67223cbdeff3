//! Errors of devices.

use core::fmt;

/// Portable category of a device error, the same for all backends.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device has no memory left for the request. Free something and retry.
    OutOfMemory,
    /// The device does not implement this operator.
    Unsupported,
    /// The device was lost, and all handles of it are invalid. Restore a checkpoint.
    DeviceLost,
    /// A kernel did not compile; the native error has the compiler's log.
    KernelCompile,
    /// Any other error of the device, for example a failed launch.
    Other,
}

/// Trait of the native error type of a device.
pub trait Error: core::error::Error + Sized {
    /// Returns the portable category of the device error.
    fn kind(&self) -> ErrorKind;
    /// Creates the device error for an operator that the device does not implement.
    fn unsupported(operator: &'static str) -> Self;
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory",
            Self::Unsupported => "not supported by this device",
            Self::DeviceLost => "the device is lost",
            Self::KernelCompile => "a kernel does not compile",
            Self::Other => "the device failed",
        })
    }
}

crate::sentence!(ErrorKind);

impl core::error::Error for ErrorKind {}

/// Impl of the trait for devices whose errors have no further details.
impl Error for ErrorKind {
    fn kind(&self) -> ErrorKind {
        *self
    }

    fn unsupported(_: &'static str) -> Self {
        Self::Unsupported
    }
}
