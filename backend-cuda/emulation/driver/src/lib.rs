//! CUDA's driver where there is no GPU: the functions of `libcuda.so` that gradscale-cuda calls, so that all of its host
//! code runs as it is. Kernels are those that the emulated compiler beside this has made of their own text for the CPU.
//!
//! What hardware leaves open is made unfriendly, and what CUDA forbids ends the process with a message:
//!
//! - work waits on its stream until somebody waits for it, so that memory that is reused too early is seen;
//! - work on two streams that names the same memory must be ordered by events;
//! - a handle of a context, stream, event, module, graph or of memory is known until it is released, and never again;
//! - device memory starts as NaN; what launches name must live when they run;
//! - copies to the device that do not wait come from pinned memory;
//! - within a recording nothing is copied, allocated or waited for.
//!
//! `GRADSCALE_EMULATED_CUDA` lists the devices, such as `80x2 90x1:broken=wgmma,maps`: compute capability,
//! multiprocessors, and faults (`faults.rs`). A test adds devices by [`emulated_device`].

mod contexts;
mod faults;
mod graphs;
mod memory;
mod modules;
mod state;
mod streams;
mod tensor_maps;

pub use state::emulated_device;

/// What functions of the driver return: `CUresult`.
type Status = u32;

/// The numbers of `cuda.h`.
mod status {
    use super::Status;

    pub const SUCCESS: Status = 0;
    pub const INVALID_VALUE: Status = 1;
    pub const OUT_OF_MEMORY: Status = 2;
    pub const NO_DEVICE: Status = 100;
    pub const INVALID_DEVICE: Status = 101;
    pub const INVALID_IMAGE: Status = 200;
    pub const NOT_FOUND: Status = 500;
    pub const LAUNCH_FAILED: Status = 719;
    pub const CAPTURE_UNSUPPORTED: Status = 900;
    pub const CAPTURE_INVALIDATED: Status = 901;

    /// Its name in `cuda.h`.
    pub const fn name(status: Status) -> Option<&'static core::ffi::CStr> {
        Some(match status {
            SUCCESS => c"CUDA_SUCCESS",
            INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
            OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
            INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
            INVALID_IMAGE => c"CUDA_ERROR_INVALID_IMAGE",
            NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
            LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
            CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
            CAPTURE_INVALIDATED => c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
            _ => return None,
        })
    }
}
