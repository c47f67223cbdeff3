//! Networks.

mod deepspeech;
mod mlp;
mod resnet;
mod segnet;

pub use deepspeech::DeepSpeech;
pub use mlp::Mlp;
pub use resnet::ResNet;
pub use segnet::SegNet;
