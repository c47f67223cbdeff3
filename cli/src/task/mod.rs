//! Networks with their data: what is trained, and how well it does.

mod pixels;
pub mod segnet;

pub use pixels::Pixels;
