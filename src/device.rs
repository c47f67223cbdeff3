//! Devices: re-exports of the backends, and one device of any of them. Only this file and its directory name backends.

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "cuda"))]
mod any;
mod name;
#[cfg(any(feature = "cpu", feature = "wgpu", feature = "cuda"))]
mod operands;
#[cfg(any(feature = "cpu", feature = "wgpu", feature = "cuda"))]
mod variants;

#[cfg(feature = "cpu")]
pub use gradscale_cpu::{Cpu, Error as CpuError, Isa};
#[cfg(feature = "cuda")]
pub use gradscale_cuda::{Cuda, Error as CudaError};
#[cfg(feature = "wgpu")]
pub use gradscale_wgpu::{Adapter, Error as WgpuError, Wgpu, adapters, adapters_async};
pub use name::{DeviceName, DeviceNameError};
#[cfg(any(feature = "cpu", feature = "wgpu", feature = "cuda"))]
pub use variants::{AnyDevice, AnyDeviceError};

/// Default error type of [`crate::Error`]: that of the CPU.
#[cfg(feature = "cpu")]
pub type Usual = CpuError;
/// Default error type of [`crate::Error`] without the CPU backend.
#[cfg(not(feature = "cpu"))]
pub type Usual = gradscale_core::backend::ErrorKind;
