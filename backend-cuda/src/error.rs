//! What can go wrong on a GPU.

use core::fmt;
use gradscale_core::backend::ErrorKind;

/// An error of the CUDA backend.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A library of NVIDIA's is not installed.
    NoLibrary {
        /// Name of the library.
        library: &'static str,
    },
    /// There is no such device.
    NoDevice {
        /// Index of the device.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// The device is older than the kernels.
    TooOld {
        /// Compute capability, as in `sm_75`.
        arch: u32,
    },
    /// The device has no room for so many bytes.
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// A kernel does not compile.
    Compile {
        /// Module of the kernels.
        module: &'static str,
        /// The compiler's log.
        log: String,
    },
    /// The driver failed.
    Driver {
        /// Requested operation.
        doing: &'static str,
        /// Name of the error, as in `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// The device is unusable from now on.
        lost: bool,
    },
    /// NVIDIA's library for several GPUs failed.
    Nccl {
        /// Requested operation.
        doing: &'static str,
        /// Message of NCCL.
        why: String,
    },
    /// The operator is not there.
    Unsupported(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary { library } => write!(f, "the library {library} is not installed"),
            Self::NoDevice { ordinal, count } => write!(f, "no CUDA device {ordinal}: there are {count}"),
            Self::TooOld { arch } => write!(f, "the device has compute capability {arch}; 75 is the least"),
            Self::OutOfMemory { bytes } => write!(f, "the device has no memory for {bytes} bytes"),
            Self::Compile { module, log } => write!(f, "kernels of {module} do not compile:\n{log}"),
            Self::Driver { doing, name, .. } => write!(f, "the CUDA driver, asked to {doing}: {name}"),
            Self::Nccl { doing, why } => write!(f, "NCCL, asked to {doing}: {why}"),
            Self::Unsupported(operator) => write!(f, "the CUDA backend has no operator {operator}"),
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
            Self::Compile { .. } => ErrorKind::KernelCompile,
            Self::Unsupported(_) => ErrorKind::Unsupported,
            Self::Driver { lost: true, .. } => ErrorKind::DeviceLost,
            _ => ErrorKind::Other,
        }
    }

    fn unsupported(operator: &'static str) -> Self {
        Self::Unsupported(operator)
    }
}
