//! Errors of the CPU backend.

use core::fmt;
use gradscale_core::backend::ErrorKind;

/// Error of the CPU backend.
#[non_exhaustive]
pub enum Error {
    /// The system did not provide the memory of a buffer.
    OutOfMemory {
        /// Size of the requested memory in bytes.
        bytes: u64,
    },
    /// The CPU backend does not implement the operator with this name.
    Unsupported(&'static str),
    /// The threads of the pool could not be started.
    Threads(std::io::Error),
    /// The machine does not have the requested instruction set.
    Isa(crate::Isa),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { bytes } => write!(f, "out of memory: {bytes} bytes were requested"),
            Self::Unsupported(operator) => write!(f, "the CPU backend has no operator {operator}"),
            Self::Threads(error) => write!(f, "no threads could be started: {error}"),
            Self::Isa(isa) => write!(f, "this processor does not have {isa}"),
        }
    }
}

/// Debug impl of the error, which writes the same sentence as [`fmt::Display`], because a `main` that returns an error
/// prints it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {}

impl gradscale_core::backend::Error for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Threads(_) | Self::Isa(_) => ErrorKind::Other,
        }
    }

    fn unsupported(operator: &'static str) -> Self {
        Self::Unsupported(operator)
    }
}
