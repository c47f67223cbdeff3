//! Networks for images with one class each, by their names.

use super::{AlexNet, GoogLeNet, InceptionV2, InceptionV3, ResNetDepth, Scale, TorchResNet, Vgg16};
use crate::{Scope, Var, nn::Module};
use std::fmt::Debug;

/// A network for images with one class each: `[n, h, w, inputs]` to `[n, classes]`. Its layers are called as
/// torchvision's, if that has it, so that [`crate::Parameters::import_torch`] takes these by their names.
pub trait Vision: Module + Debug {
    /// Answers while training, each with the weight of its loss: first the network's own, then those of heads that are
    /// there for training alone.
    fn heads<'t>(&self, x: Var<'t>) -> Vec<(Var<'t>, f32)> {
        vec![(self.forward(x), 1.0)]
    }

    /// Linear layers that read a flattened image, with its rows, columns and channels: see
    /// [`crate::TorchModule::flattened`].
    fn flattened(&self) -> Vec<(&'static str, [usize; 3])> {
        Vec::new()
    }
}

/// The networks for images of the papers on mixed precision and on gradient scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// [`AlexNet`].
    AlexNet,
    /// [`Vgg16`].
    Vgg16,
    /// [`GoogLeNet`].
    GoogLeNet,
    /// [`InceptionV2`].
    InceptionV2,
    /// [`InceptionV3`].
    InceptionV3,
    /// [`TorchResNet`] of 18 layers.
    ResNet18,
    /// [`TorchResNet`] of 50 layers.
    ResNet50,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::AlexNet,
        Self::Vgg16,
        Self::GoogLeNet,
        Self::InceptionV2,
        Self::InceptionV3,
        Self::ResNet18,
        Self::ResNet50,
    ];

    /// As people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlexNet => "alexnet",
            Self::Vgg16 => "vgg-16",
            Self::GoogLeNet => "googlenet",
            Self::InceptionV2 => "inception-v2",
            Self::InceptionV3 => "inception-v3",
            Self::ResNet18 => "resnet-18",
            Self::ResNet50 => "resnet-50",
        }
    }

    /// Rows and columns of the images that the paper trains it with.
    #[must_use]
    pub const fn image(self) -> usize {
        match self {
            Self::InceptionV3 => 299,
            Self::AlexNet | Self::Vgg16 | Self::GoogLeNet | Self::InceptionV2 | Self::ResNet18 | Self::ResNet50 => 224,
        }
    }

    /// The network, for images of `inputs` channels.
    #[must_use]
    pub fn build(self, scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Box<dyn Vision> {
        match self {
            Self::AlexNet => Box::new(AlexNet::new(scope, inputs, scale, classes)),
            Self::Vgg16 => Box::new(Vgg16::new(scope, inputs, scale, classes)),
            Self::GoogLeNet => Box::new(GoogLeNet::new(scope, inputs, scale, classes)),
            Self::InceptionV2 => Box::new(InceptionV2::new(scope, inputs, scale, classes)),
            Self::InceptionV3 => Box::new(InceptionV3::new(scope, inputs, scale, classes)),
            Self::ResNet18 => Box::new(TorchResNet::new(scope, ResNetDepth::Eighteen, inputs, scale, classes)),
            Self::ResNet50 => Box::new(TorchResNet::new(scope, ResNetDepth::Fifty, inputs, scale, classes)),
        }
    }
}
