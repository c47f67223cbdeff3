//! Emulation of CUDA's driver: the functions of `libcuda.so` that gradscale-cuda calls, so that all of its host code
//! runs unchanged. The emulated compiler has compiled the kernels from their own text for the CPU.
//!
//! Behaviour that hardware leaves open is chosen to expose errors, and operations that CUDA forbids end the process
//! with a message:
//!
//! - work stays on its stream until it is waited for, so that memory which is reused too early is found;
//! - work on two streams that uses the same memory must be ordered by events;
//! - a handle of a context, stream, event, module, graph or of memory is valid until it is released, and is never used
//!   again;
//! - device memory starts as NaN, and operands of launches must exist when they run;
//! - asynchronous copies to the device come from pinned memory;
//! - a kernel that was launched with programmatic stream serialization knows no address until it has waited for the
//!   kernels before, and each of its threads must wait;
//! - a recording contains no copy, allocation or synchronisation.
//!
//! `GRADSCALE_EMULATED_CUDA` lists the devices, for example `80x2 90x1:broken=wgmma,maps`: compute capability,
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
