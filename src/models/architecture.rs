//! Image classification networks by name.

use super::{AlexNet, GoogLeNet, InceptionV2, InceptionV3, ResNetDepth, Scale, TorchResNet, Vgg16, Vision};
use crate::Scope;

/// Architecture of an image classification network, of those in the papers on mixed precision and on gradient scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Architecture [`AlexNet`].
    AlexNet,
    /// Architecture [`Vgg16`].
    Vgg16,
    /// Architecture [`GoogLeNet`].
    GoogLeNet,
    /// Architecture [`InceptionV2`].
    InceptionV2,
    /// Architecture [`InceptionV3`].
    InceptionV3,
    /// Architecture [`TorchResNet`] of 18 layers.
    ResNet18,
    /// Architecture [`TorchResNet`] of 50 layers.
    ResNet50,
}

impl Architecture {
    /// All architectures of image classifiers.
    pub const ALL: [Self; 7] = [
        Self::AlexNet,
        Self::Vgg16,
        Self::GoogLeNet,
        Self::InceptionV2,
        Self::InceptionV3,
        Self::ResNet18,
        Self::ResNet50,
    ];

    /// Returns the architecture's name in files and messages.
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

    /// Returns the height and width of the images with which the paper trains the architecture.
    #[must_use]
    pub const fn image(self) -> usize {
        match self {
            Self::InceptionV3 => 299,
            Self::AlexNet | Self::Vgg16 | Self::GoogLeNet | Self::InceptionV2 | Self::ResNet18 | Self::ResNet50 => 224,
        }
    }

    /// Creates a network of this architecture for images of `inputs` channels.
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
