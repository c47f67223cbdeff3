//! The CPU backend of gradscale: every operator in f32 with f16 or f32 storage, on all cores.
//!
//! Results have the same bits for every number of threads: work is divided by shape, and the terms of one sum are never
//! divided. Kernels for an instruction set are in `arch/`, whose portable kernels define the results. Apart from
//! `arch/`, only `threading/thread_pool.rs` has unsafe code: one line lends a job to worker threads for as long as it
//! runs.
//!
//! ```
//! use gradscale_core::backend::{Backend, DType};
//! let cpu = gradscale_cpu::Cpu::new(0)?; // 0: all cores
//! let _halves = cpu.alloc(DType::F16, 1000)?;
//! # Ok::<(), gradscale_cpu::Error>(())
//! ```

mod arch;
mod attention;
mod backend;
mod block_rounding;
mod broadcast;
mod cell;
mod conv;
mod copy;
mod cross_entropy;
mod ctc;
mod eight_bits;
mod elementwise;
mod epilogue;
mod error;
mod f16_lut;
mod gather_scatter;
mod gemm;
mod gru;
mod lstm;
mod memory;
mod norm;
mod optimize;
mod packing;
mod pool;
mod reduce;
mod roi_align;
mod roi_pool;
mod sine;
mod slices;
mod softmax;
mod stats_accumulator;
mod table;
mod threading;
mod workspace;

pub use arch::Isa;
pub use backend::Cpu;
pub use error::Error;
pub use memory::Memory;
pub use slices::{Slice, SliceMut};
pub use table::Table;

/// Placeholder type by which the README's example runs as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
