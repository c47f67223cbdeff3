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
mod objects;
mod state;
mod status;
mod streams;
mod tensor_maps;

pub use state::emulated_device;
