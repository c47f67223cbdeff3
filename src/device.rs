//! Re-exports of the backends. This is the only file that names them.

#[cfg(feature = "cpu")]
pub use gradscale_cpu::{Cpu, Error as CpuError, Isa};
#[cfg(feature = "cuda")]
pub use gradscale_cuda::{Cuda, Error as CudaError};
#[cfg(feature = "wgpu")]
pub use gradscale_wgpu::{Adapter, Error as WgpuError, Wgpu, adapters, adapters_async};

/// Default error type of [`crate::Error`]: that of the CPU.
#[cfg(feature = "cpu")]
pub type Usual = CpuError;
/// Default error type of [`crate::Error`] without the CPU backend.
#[cfg(not(feature = "cpu"))]
pub type Usual = gradscale_core::backend::ErrorKind;
