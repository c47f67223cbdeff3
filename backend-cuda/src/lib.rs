//! The CUDA backend of gradscale: every operator on tensor cores or near the bandwidth of memory, with scale,
//! statistics and rounding in the kernel that produces the values.
//!
//! Kernels are files in `kernels/`, compiled for the device at run time. NVIDIA's libraries are loaded when a device is
//! opened: building needs none of them, and without them [`Cuda::open`] returns an error.
//!
//! ```
//! match gradscale_cuda::Cuda::open(0) {
//!     Ok(device) => println!("{device:?}"),
//!     Err(error) => println!("no CUDA here: {error}"),
//! }
//! ```

mod attention;
mod bf16x6;
mod bf16x6_bands;
mod cell;
mod conv_copies;
mod conv_halo;
mod copy;
mod cross_entropy;
mod ctc;
mod cubins;
mod device;
mod elementwise;
mod error;
mod fp8_conv;
mod fp8_gemm;
mod fp8_operands;
mod gemm;
mod gemm_problem;
mod gpu;
mod grad_reduce;
mod gru;
mod halo_launch;
mod kernel_selection;
pub mod kernels;
mod lstm;
mod memory;
mod nccl;
mod norm;
mod operand_copies;
mod optimize;
mod pack;
mod pool;
mod rank_connection;
mod reduce;
mod roi_align;
mod roi_pool;
mod rows;
mod self_test;
mod softmax;
mod split_sums;
mod store;
mod table;
mod workspace;

pub use cubins::{CubinReport, Cubins, build_all};
pub use device::{Cuda, HaloTiles};
pub use error::Error;
pub use gpu::{Gpu, GpuRecording, nvrtc};
pub use memory::Memory;
pub use table::Table;

/// Compiles the example of the README as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
