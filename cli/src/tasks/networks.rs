//! Networks by name, and their sizes.

use super::Task;
use crate::Failure;
use clap::ValueEnum;
use gradscale::models::{Architecture, Scale};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Networks, each for one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Net {
    /// classify: a perceptron, two hidden layers of 8 · width units
    Mlp,
    /// classify: three residual blocks of width, 2 · width and 4 · width channels
    #[value(name = "resnet-8", alias = "resnet")]
    #[serde(rename = "resnet-8", alias = "resnet")]
    Resnet,
    /// classify: two towers of 8 · width units on one trunk; the second loss counts 2^-46 of the first. Only a separate
    /// scale for every gradient trains both in FP16
    Towers,
    /// classify: AlexNet, as torchvision's
    #[value(name = "alexnet")]
    #[serde(rename = "alexnet")]
    AlexNet,
    /// classify: VGG-16 (D)
    #[value(name = "vgg-16")]
    #[serde(rename = "vgg-16")]
    Vgg16,
    /// classify: `GoogLeNet` (Inception v1) with its heads for training
    #[value(name = "googlenet", help = "classify: GoogLeNet (Inception v1) with its heads for training")]
    #[serde(rename = "googlenet")]
    GoogLeNet,
    /// classify: Inception with batch norm
    InceptionV2,
    /// classify: Inception v3, at its paper's size with its head for training
    InceptionV3,
    /// classify: ResNet-18
    #[value(name = "resnet-18")]
    #[serde(rename = "resnet-18")]
    ResNet18,
    /// classify: ResNet-50
    #[value(name = "resnet-50")]
    #[serde(rename = "resnet-50")]
    ResNet50,
    /// segnet: four levels of 7 × 7 convolutions of width channels; `SegNetBasic` has 64
    #[value(help = "segnet: four levels of 7 × 7 convolutions of width channels; SegNetBasic has 64")]
    SegnetBasic,
    /// segnet: the convolutions of VGG-16 with batch norm as encoder, and their mirror image as decoder
    Segnet,
    /// speech: Deep Speech 2, two recurrent layers of 4 · width units; its paper's size has five of 800
    #[value(name = "deep-speech-2")]
    #[serde(rename = "deep-speech-2")]
    DeepSpeech2,
    /// speech: convolutions that keep every fourth frame and have CTC as loss; three residual blocks of 4 · width
    ConvCtc,
    /// translate: an encoder and a decoder of one layer of 8 · width units, with attention; its paper's size has 1024
    /// units
    #[value(name = "seq2seq-1")]
    #[serde(rename = "seq2seq-1")]
    Seq2Seq1,
    /// translate: the same with three layers
    #[value(name = "seq2seq-3")]
    #[serde(rename = "seq2seq-3")]
    Seq2Seq3,
    /// translate: the same with five layers
    #[value(name = "seq2seq-5")]
    #[serde(rename = "seq2seq-5")]
    Seq2Seq5,
    /// language: two LSTM layers of 32 · width units, each projected to 4 · width. If the vocabulary exceeds 64 · width
    /// tokens, as that of wikitext-2, the softmax of each batch uses a sample of 16 · width (paper: 8192)
    #[value(name = "biglstm")]
    #[serde(rename = "biglstm")]
    BigLstm,
    /// language: a transformer decoder, three layers of 8 · width; its paper's size is the smallest GPT-2
    Decoder,
    /// language: the same with rotary positions in place of learned ones
    DecoderRotary,
    /// detect: SSD-300; small, for images of 128 × 128
    #[value(name = "ssd-300")]
    #[serde(rename = "ssd-300")]
    Ssd300,
    /// detect: SSD-512; small, for images of 192 × 192
    #[value(name = "ssd-512")]
    #[serde(rename = "ssd-512")]
    Ssd512,
    /// detect: Faster R-CNN (VGG-16); small, for images of 128 × 128; its paper's size takes 600 × 600
    #[value(
        name = "faster-rcnn",
        help = "detect: Faster R-CNN (VGG-16); small, for images of 128 × 128; its paper's size takes 600 × 600"
    )]
    #[serde(rename = "faster-rcnn")]
    FasterRcnn,
    /// generate: DCGAN, for images of 32 × 32; its paper's size makes 64 × 64
    Dcgan,
}

impl Net {
    /// Returns the task that the network is for.
    #[must_use]
    pub const fn task(self) -> Task {
        match self {
            Self::SegnetBasic | Self::Segnet => Task::Segnet,
            Self::DeepSpeech2 | Self::ConvCtc => Task::Speech,
            Self::Seq2Seq1 | Self::Seq2Seq3 | Self::Seq2Seq5 => Task::Translate,
            Self::BigLstm | Self::Decoder | Self::DecoderRotary => Task::Language,
            Self::Ssd300 | Self::Ssd512 | Self::FasterRcnn => Task::Detect,
            Self::Dcgan => Task::Generate,
            Self::Mlp
            | Self::Resnet
            | Self::Towers
            | Self::AlexNet
            | Self::Vgg16
            | Self::GoogLeNet
            | Self::InceptionV2
            | Self::InceptionV3
            | Self::ResNet18
            | Self::ResNet50 => Task::Classify,
        }
    }

    /// Returns the network as a classifier, or `None` for other tasks.
    #[must_use]
    pub const fn classifier(self) -> Option<ClassifyNet> {
        Some(match self {
            Self::Mlp => ClassifyNet::Mlp,
            Self::Resnet => ClassifyNet::Resnet,
            Self::Towers => ClassifyNet::Towers,
            Self::AlexNet => ClassifyNet::Vision(Architecture::AlexNet),
            Self::Vgg16 => ClassifyNet::Vision(Architecture::Vgg16),
            Self::GoogLeNet => ClassifyNet::Vision(Architecture::GoogLeNet),
            Self::InceptionV2 => ClassifyNet::Vision(Architecture::InceptionV2),
            Self::InceptionV3 => ClassifyNet::Vision(Architecture::InceptionV3),
            Self::ResNet18 => ClassifyNet::Vision(Architecture::ResNet18),
            Self::ResNet50 => ClassifyNet::Vision(Architecture::ResNet50),
            Self::SegnetBasic
            | Self::Segnet
            | Self::DeepSpeech2
            | Self::ConvCtc
            | Self::Dcgan
            | Self::Seq2Seq1
            | Self::Seq2Seq3
            | Self::Seq2Seq5
            | Self::BigLstm
            | Self::Decoder
            | Self::DecoderRotary
            | Self::Ssd300
            | Self::Ssd512
            | Self::FasterRcnn => return None,
        })
    }

    /// Returns the library's network for images with one class each, if it is one.
    #[must_use]
    pub const fn architecture(self) -> Option<Architecture> {
        match self.classifier() {
            Some(ClassifyNet::Vision(architecture)) => Some(architecture),
            Some(ClassifyNet::Mlp | ClassifyNet::Resnet | ClassifyNet::Towers) | None => None,
        }
    }

    /// Returns true for decoders with self-attention, which predict text.
    #[must_use]
    pub const fn is_decoder(self) -> bool {
        matches!(self, Self::Decoder | Self::DecoderRotary)
    }

    /// Returns the width that the network has in its paper, if it is of one.
    const fn paper_width(self) -> Option<usize> {
        match self {
            Self::Mlp | Self::Resnet | Self::Towers | Self::ConvCtc => None,
            // That of common implementations: the paper's own is larger than any data here.
            Self::DeepSpeech2 => Some(200),
            Self::Seq2Seq1 | Self::Seq2Seq3 | Self::Seq2Seq5 => Some(128),
            Self::BigLstm => Some(256),
            Self::Decoder | Self::DecoderRotary => Some(96),
            Self::SegnetBasic
            | Self::Segnet
            | Self::Dcgan
            | Self::AlexNet
            | Self::Vgg16
            | Self::GoogLeNet
            | Self::InceptionV2
            | Self::InceptionV3
            | Self::ResNet18
            | Self::ResNet50
            | Self::Ssd300
            | Self::Ssd512
            | Self::FasterRcnn => Some(Scale::PAPER.width),
        }
    }
}

impl From<Architecture> for Net {
    fn from(architecture: Architecture) -> Self {
        match architecture {
            Architecture::AlexNet => Self::AlexNet,
            Architecture::Vgg16 => Self::Vgg16,
            Architecture::GoogLeNet => Self::GoogLeNet,
            Architecture::InceptionV2 => Self::InceptionV2,
            Architecture::InceptionV3 => Self::InceptionV3,
            Architecture::ResNet18 => Self::ResNet18,
            Architecture::ResNet50 => Self::ResNet50,
        }
    }
}

/// Networks of the task `classify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifyNet {
    /// Multilayer perceptron.
    Mlp,
    /// ResNet-8 for small images.
    Resnet,
    /// Network of two towers.
    Towers,
    /// Network for images from the library's `models`.
    Vision(Architecture),
}

/// Implementation of `Display` by the name as on the command line.
impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("", |value| value.get_name()))
    }
}

/// Architecture of a network together with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Architecture of the network.
    pub net: Net,
    /// Number of channels of a small network, as `--width` sets it.
    pub width: usize,
    /// True if the first layers are adapted to small images.
    pub small: bool,
}

impl Network {
    /// Creates a network in the variant for small images.
    #[must_use]
    pub const fn small(net: Net, width: usize) -> Self {
        Self { net, width, small: true }
    }

    /// Returns the network in the size of its paper.
    ///
    /// # Errors
    /// A network that no paper has.
    pub fn paper(net: Net) -> Result<Self, Failure> {
        if let Some(width) = net.paper_width() {
            return Ok(Self { net, width, small: false });
        }
        let papers = Net::value_variants().iter().filter(|net| net.paper_width().is_some());
        let papers = papers.map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let cause = format!("{net} has no paper size; choose one of {papers}");
        Err(Failure::at("--size paper", cause))
    }

    /// Returns the size as the library names it.
    #[must_use]
    pub const fn scale(self) -> Scale {
        Scale { width: self.width, small: self.small, dropout: true }
    }

    /// Returns true for the size of a paper.
    #[must_use]
    pub fn is_paper(self) -> bool {
        !self.small && self.net.paper_width() == Some(self.width)
    }

    /// Returns the rows and columns of the images that a paper trains the network with, if it is a paper's and reads
    /// images.
    #[must_use]
    pub fn image(self) -> Option<usize> {
        self.net.architecture().filter(|_| self.is_paper()).map(Architecture::image)
    }

    /// Returns the default number of tokens that a network for text reads at a time.
    #[must_use]
    pub fn window(self) -> Option<u16> {
        match (self.net.is_decoder(), self.small) {
            (_, _) if self.net.task() != Task::Language => None,
            (false, true) => Some(32),
            // The paper's unrolled steps.
            (false, false) => Some(20),
            (true, true) => Some(64),
            (true, false) => Some(1024),
        }
    }

    /// Formats the network's common name and its size.
    #[must_use]
    pub fn words(self, name: &str) -> String {
        if self.is_paper() { format!("{name} (the paper's)") } else { format!("{name} ({} channels)", self.width) }
    }
}
