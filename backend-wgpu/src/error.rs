//! What can go wrong on a GPU.

use core::fmt;
use gradscale_core::{backend::ErrorKind, stats::RowError};

/// An error of the wgpu backend, with the driver's message.
#[non_exhaustive]
pub enum Error {
    /// There is no adapter of this number.
    NoAdapter {
        /// The number asked for.
        index: usize,
        /// Those that there are.
        found: Vec<String>,
    },
    /// An adapter does not give a device.
    NoDevice(String),
    /// The device refused so many bytes.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Why.
        reason: String,
    },
    /// The device is gone, and all that was on it.
    Lost(String),
    /// A kernel that the driver does not compile.
    Kernel {
        /// The kernel.
        name: &'static str,
        /// The compiler's message.
        log: String,
    },
    /// The operator is not there yet.
    Unsupported(&'static str),
    /// A row of statistics that no kernel writes.
    Row(RowError),
    /// An engine of products that is asked for and not available, or no engine at all.
    Engine(String),
    /// Anything else.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAdapter { found, .. } if found.is_empty() => f.write_str("no GPU adapter: is there a driver?"),
            Self::NoAdapter { index, found } => {
                write!(f, "no adapter {index}: there are ")?;
                for (i, name) in found.iter().enumerate() {
                    write!(f, "{}{i} ({name})", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::NoDevice(reason) => write!(f, "the adapter gives no device: {reason}"),
            Self::OutOfMemory { bytes, reason } => write!(f, "no memory for {bytes} bytes: {reason}"),
            Self::Lost(reason) => write!(f, "the device is lost: {reason}"),
            Self::Kernel { name, log } => write!(f, "the kernel {name} does not compile: {log}"),
            Self::Unsupported(operator) => write!(f, "the wgpu backend has no operator {operator}"),
            Self::Row(error) => write!(f, "the device wrote a broken row of statistics: {error}"),
            Self::Engine(reason) => f.write_str(reason),
            Self::Failed(reason) => write!(f, "the device failed: {reason}"),
        }
    }
}

/// The sentence of [`fmt::Display`]: a `main` that returns an error prints what people read.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Row(error) => Some(error),
            _ => None,
        }
    }
}

impl gradscale_core::backend::Error for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::Lost(_) => ErrorKind::DeviceLost,
            Self::Kernel { .. } => ErrorKind::KernelCompile,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            _ => ErrorKind::Other,
        }
    }

    fn unsupported(operator: &'static str) -> Self {
        Self::Unsupported(operator)
    }
}

/// An error and all that stands behind it, on one line.
pub(crate) fn chain(error: &dyn core::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        next = error.source();
    }
    text
}
