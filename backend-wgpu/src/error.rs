//! Errors of the wgpu backend.

use core::fmt;
use gradscale_core::{backend::ErrorKind, stats::RowError};

/// An error of the wgpu backend, with the driver's message.
#[non_exhaustive]
pub enum Error {
    /// The machine has no adapter with this index.
    NoAdapter {
        /// Index of the adapter that was requested.
        index: usize,
        /// Names of the adapters that the machine has.
        found: Vec<String>,
    },
    /// The adapter refuses to open a device; its message.
    NoDevice(String),
    /// The GPU refused to allocate device memory.
    OutOfMemory {
        /// Number of bytes of the refused allocation.
        bytes: u64,
        /// Message of the device about the refused allocation.
        reason: String,
    },
    /// The device is lost, with all memory on it; its message.
    Lost(String),
    /// The driver cannot compile a compute shader.
    Kernel {
        /// Name of the kernel that does not compile.
        name: &'static str,
        /// Message of the shader compiler about the kernel.
        log: String,
    },
    /// The wgpu backend does not implement this operator.
    Unsupported(&'static str),
    /// A row of statistics has a content that no kernel writes.
    Row(RowError),
    /// The requested engine of products is not available, or there is none of this name.
    Engine(String),
    /// There is no tile of products of the requested name.
    Tile(String),
    /// Any other failure of the device, with its message.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAdapter { found, .. } if found.is_empty() => f.write_str(
                "no GPU adapter; install a driver for \
                Vulkan, Metal or DirectX 12",
            ),
            Self::NoAdapter { index, found } => {
                write!(f, "no adapter {index}; available are ")?;
                for (i, name) in found.iter().enumerate() {
                    write!(f, "{}{i} ({name})", if i == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::NoDevice(reason) => write!(f, "the adapter cannot open a device: {reason}"),
            Self::OutOfMemory { bytes, reason } => write!(f, "no memory for {bytes} bytes: {reason}"),
            Self::Lost(reason) => write!(f, "the device is lost: {reason}"),
            Self::Kernel { name, log } => write!(f, "the kernel {name} does not compile: {log}"),
            Self::Unsupported(operator) => write!(f, "the wgpu backend has no operator {operator}"),
            Self::Row(error) => write!(f, "the device wrote an invalid statistics row: {error}"),
            Self::Engine(reason) | Self::Tile(reason) => f.write_str(reason),
            Self::Failed(reason) => write!(f, "the device failed: {reason}"),
        }
    }
}

/// Implementation of `Debug` by the sentence of [`fmt::Display`], because a `main` that returns an error prints it.
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

/// Formats an error and all its causes on one line.
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
