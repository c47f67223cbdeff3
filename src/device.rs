//! Re-exports of the backends. This is the only file that names them.

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "cuda"))]
use crate::Error;

#[cfg(feature = "cpu")]
pub use gradscale_cpu::{Cpu, Error as CpuError, Isa};
#[cfg(feature = "cuda")]
pub use gradscale_cuda::{Cuda, Error as CudaError};
#[cfg(feature = "wgpu")]
pub use gradscale_wgpu::{Adapter, Error as WgpuError, Wgpu, adapters, adapters_async};

/// Default error type of [`Error`]: that of the CPU.
#[cfg(feature = "cpu")]
pub type Usual = CpuError;
/// Default error type of [`Error`] without the CPU backend.
#[cfg(not(feature = "cpu"))]
pub type Usual = gradscale_core::backend::ErrorKind;

/// Conversion that lets `?` accept a device's own errors, for example `Cpu::new(0)?`.
#[cfg(feature = "cpu")]
impl From<CpuError> for Error<CpuError> {
    fn from(error: CpuError) -> Self {
        Self::Device(error)
    }
}

#[cfg(feature = "wgpu")]
impl From<WgpuError> for Error<WgpuError> {
    fn from(error: WgpuError) -> Self {
        Self::Device(error)
    }
}

#[cfg(feature = "cuda")]
impl From<CudaError> for Error<CudaError> {
    fn from(error: CudaError) -> Self {
        Self::Device(error)
    }
}
