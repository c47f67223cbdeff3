//! The one file that names backends.

#[cfg(feature = "cpu")]
pub use gradscale_cpu::{Cpu, Isa};
#[cfg(feature = "cuda")]
pub use gradscale_cuda::Cuda;
#[cfg(feature = "wgpu")]
pub use gradscale_wgpu::{Adapter, Wgpu, adapters};
