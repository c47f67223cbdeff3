//! Networks.

mod alexnet;
mod biglstm;
mod dcgan;
mod decoder;
mod deepspeech;
mod googlenet;
mod inception;
mod inception_v2;
mod inception_v3;
mod mlp;
mod resnet;
mod scale;
mod segnet;
mod segnet_vgg;
mod seq2seq;
mod torch_resnet;
mod vgg;
mod vision;

pub use alexnet::AlexNet;
pub use biglstm::{BigLstm, BigLstmSize};
pub use dcgan::{Dcgan, Discriminator, GanSize, Generator};
pub use decoder::{Cache, Cached, Decoder, DecoderSize};
pub use deepspeech::DeepSpeech;
pub use googlenet::GoogLeNet;
pub use inception_v2::InceptionV2;
pub use inception_v3::InceptionV3;
pub use mlp::Mlp;
pub use resnet::ResNet;
pub use scale::Scale;
pub use segnet::SegNet;
pub use segnet_vgg::SegNetVgg;
pub use seq2seq::{Encoded, Seq2Seq};
pub use torch_resnet::{ResNetDepth, TorchResNet};
pub use vgg::Vgg16;
pub use vision::{Architecture, Vision};
