//! What can go wrong on a CPU.

use core::fmt;
use gradscale_core::backend::ErrorKind;

/// An error of the CPU backend.
#[non_exhaustive]
pub enum Error {
    /// The system refused so many bytes.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// The operator is not there yet.
    Unsupported(&'static str),
    /// Threads could not be started.
    Threads(std::io::Error),
    /// This machine does not have the instruction set asked for.
    Isa(crate::Isa),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { bytes } => write!(f, "the system has no memory for {bytes} bytes"),
            Self::Unsupported(operator) => write!(f, "the CPU backend has no operator {operator}"),
            Self::Threads(error) => write!(f, "no threads: {error}"),
            Self::Isa(isa) => write!(f, "this machine does not have {isa}"),
        }
    }
}

/// The sentence of [`fmt::Display`]: a `main` that returns an error prints what people read.
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
