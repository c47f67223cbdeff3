//! The wgpu backend of gradscale: every operator as a WGSL compute kernel, for Vulkan, Metal and DX12.
//!
//! WebGPU has half and no bfloat16, and promises little about it. So halves are words of two everywhere, converted by the
//! device if a test at opening finds its conversions right, else by integers: the same bits as core's on every driver.
//!
//! ```no_run
//! use gradscale_core::backend::{Backend, DType};
//! let device = gradscale_wgpu::Wgpu::new(0)?; // the first of `gradscale_wgpu::adapters()`
//! let _halves = device.alloc(DType::F16, 1000)?;
//! # Ok::<(), gradscale_wgpu::Error>(())
//! ```

mod adapter;
mod backend;
mod conversion_test;
mod conversions;
mod device;
mod engine;
mod error;
mod health;
mod kernel;
mod launch;
mod memory;
mod open;
mod operators;
mod pipeline;
mod probe;
mod product_engine;
mod product_tile;
mod queue;
mod recording;
mod self_test;
mod table;
mod tile_cache;
mod tile_choice;
mod tile_timing;
mod timing;
mod transfer;

pub use adapter::{Adapter, adapters, adapters_async};
pub use conversions::{Conversions, Decoding, Encoding};
pub use device::Wgpu;
pub use engine::{
    EnginePreference, EngineReason, NotOffered, ProductEngine, ProductLaunches, Refusal, RefusalCause, Timing,
};
pub use error::Error;
pub use memory::Memory;
pub use product_tile::ProductTile;
pub use recording::Recording;
pub use table::Table;
pub use tile_choice::{TileChoice, TilePreference, TileReason, TileTime};

/// Compiles the example of the README as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
