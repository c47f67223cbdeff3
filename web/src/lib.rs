//! gradscale in the browser: a small network learns digits by several methods side by side, each in a worker of its own.
//!
//! The page asks in JSON ([`message::Request`]) and is answered in JSON; [`training`] does what was asked. Digits are drawn
//! by [`digits`], strokes by strokes: those that the network learns from and those of the page's visitor alike.

pub mod digits;
pub mod message;
pub mod training;

#[cfg(all(target_arch = "wasm32", not(feature = "webgpu")))]
mod exports;
#[cfg(all(target_arch = "wasm32", feature = "conformance"))]
mod suite;
#[cfg(all(target_arch = "wasm32", feature = "webgpu"))]
mod webgpu;
