//! Networks.

mod mlp;
mod segnet;

pub use mlp::Mlp;
pub use segnet::SegNet;
