//! Errors of the CUDA backend.

use core::fmt;
use cudarc::driver::{DriverError, sys};
use gradscale_core::backend::ErrorKind;

/// Error of the CUDA backend.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A library of NVIDIA's that is needed is not installed.
    NoLibrary {
        /// Name of the NVIDIA library that is missing, for example `nvrtc`.
        library: &'static str,
    },
    /// The machine has no GPU with this index.
    NoDevice {
        /// Index of the requested GPU, from 0.
        ordinal: usize,
        /// Number of GPUs that the machine has.
        count: usize,
    },
    /// The GPU's compute capability is below that of the kernels.
    TooOld {
        /// Compute capability of the GPU, as in `sm_75`.
        arch: u32,
    },
    /// The GPU has no units for products of operands of eight bits.
    NoEightBitProducts {
        /// Compute capability of the GPU, as in `sm_80`.
        arch: u32,
    },
    /// The GPU has too little free memory for an allocation.
    OutOfMemory {
        /// Number of bytes of the refused allocation.
        bytes: u64,
    },
    /// NVRTC cannot compile a module of kernels.
    Compile {
        /// Name of the module that does not compile.
        module: &'static str,
        /// Output of NVRTC for the module that does not compile.
        log: String,
    },
    /// A call of the CUDA driver failed.
    Driver {
        /// Operation for which the driver was called.
        doing: &'static str,
        /// Name of the error, as in `CUDA_ERROR_ILLEGAL_ADDRESS`.
        name: String,
        /// True if the GPU is unusable from now on.
        lost: bool,
    },
    /// A call of NCCL, the library for communication between GPUs, failed.
    Nccl {
        /// Operation for which NCCL was called, for the error message.
        doing: &'static str,
        /// Error message that NCCL reports.
        why: String,
    },
    /// The CUDA backend does not implement this operator.
    Unsupported(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary { library } => write!(f, "the library {library} is not installed"),
            Self::NoDevice { ordinal, count } => write!(
                f,
                "no CUDA device {ordinal}; the number of devices is \
                {count}"
            ),
            Self::TooOld { arch } => write!(f, "the device has compute capability {arch}, but at least 75 is needed"),
            Self::NoEightBitProducts { arch } => write!(
                f,
                "products in eight bits need compute capability 89 and the device has {arch}; leave products=fp8 out"
            ),
            Self::OutOfMemory { bytes } => write!(f, "the device has no memory for {bytes} bytes"),
            Self::Compile { module, log } => write!(f, "kernels of {module} do not compile:\n{log}"),
            Self::Driver { doing, name, .. } => write!(f, "the CUDA driver failed to {doing}: {name}"),
            Self::Nccl { doing, why } => write!(f, "NCCL failed to {doing}: {why}"),
            Self::Unsupported(operator) => write!(f, "the CUDA backend has no operator {operator}"),
        }
    }
}

/// Implementation of `Debug` by the sentence of [`fmt::Display`], because a `main` that returns an error prints it.
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

/// Returns a function that converts an error of the driver to the backend's error; `doing` names the failed operation.
pub(crate) fn driver_error(doing: &'static str) -> impl Fn(DriverError) -> Error {
    use sys::cudaError_enum as code;
    move |error| {
        let lost = matches!(
            error.0,
            code::CUDA_ERROR_ILLEGAL_ADDRESS
                | code::CUDA_ERROR_LAUNCH_FAILED
                | code::CUDA_ERROR_LAUNCH_TIMEOUT
                | code::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | code::CUDA_ERROR_MISALIGNED_ADDRESS
                | code::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | code::CUDA_ERROR_INVALID_PC
                | code::CUDA_ERROR_HARDWARE_STACK_ERROR
                | code::CUDA_ERROR_ECC_UNCORRECTABLE
                | code::CUDA_ERROR_CONTEXT_IS_DESTROYED
                | code::CUDA_ERROR_ASSERT
                | code::CUDA_ERROR_UNKNOWN
        );
        let name = error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into());
        Error::Driver { doing, name, lost }
    }
}
