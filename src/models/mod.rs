//! Networks.

mod mlp;
mod resnet;
mod segnet;

pub use mlp::Mlp;
pub use resnet::ResNet;
pub use segnet::SegNet;
