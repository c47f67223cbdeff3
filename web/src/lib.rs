//! gradscale in the browser: a small network learns digits by several methods in parallel, each in its own worker.
//!
//! The page sends requests in JSON ([`message::Request`]) and receives answers in JSON; [`training`] carries them out.
//! All digits are rendered from strokes by [`digits`], those of the training data and those that a visitor draws.

pub mod digits;
pub mod message;
pub mod speed;
pub mod training;

#[cfg(all(target_arch = "wasm32", not(feature = "webgpu")))]
mod exports;
#[cfg(all(target_arch = "wasm32", feature = "conformance"))]
mod suite;
#[cfg(all(target_arch = "wasm32", feature = "webgpu"))]
mod webgpu;
