//! Errors of devices.

use core::fmt;

/// Portable meaning of an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Retry after freeing something.
    OutOfMemory,
    /// The device does not offer this operator.
    Unsupported,
    /// All handles are void; a checkpoint is the way back.
    DeviceLost,
    /// A kernel did not compile; the native error has the compiler's log.
    KernelCompile,
    /// Anything else.
    Other,
}

/// A device's own error.
pub trait Error: core::error::Error + Sized {
    /// Portable meaning.
    fn kind(&self) -> ErrorKind;
    /// The error of an operator that is not offered.
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

/// For devices that have nothing more to say.
impl Error for ErrorKind {
    fn kind(&self) -> ErrorKind {
        *self
    }

    fn unsupported(_: &'static str) -> Self {
        Self::Unsupported
    }
}
