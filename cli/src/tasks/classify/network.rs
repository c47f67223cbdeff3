//! Networks for images, or rows of numbers, with one class each.

use super::towers::{self, Towers};
use crate::tasks::ImageInput;
use clap::ValueEnum;
use gradscale::{
    CrossEntropy, Parameters, Var,
    models::{Mlp, ResNet},
    nn::Module,
};
use serde::{Deserialize, Serialize};

/// Learning rate.
const LR: f64 = 0.05;

/// Networks for images with one class each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// A perceptron: two hidden layers of 8 · width units.
    Mlp,
    /// ResNet-8: three residual blocks of width, 2 · width and 4 · width channels.
    #[default]
    Resnet,
    /// Two towers of 8 · width units on one trunk, each telling the classes; the second's loss counts 2^-46 of the
    /// first's. Only what scales every gradient by itself trains both in FP16.
    Towers,
}

impl Net {
    /// Learning rate of SGD, unless told.
    #[must_use]
    pub const fn lr(self) -> f64 {
        match self {
            Self::Mlp | Self::Resnet => LR,
            Self::Towers => towers::LR,
        }
    }
}

/// A network of either kind, for bytes: `[n, h, w, channels]` to `[n, classes]`.
#[derive(Debug)]
pub struct Classifier {
    pub(super) input: ImageInput,
    pub(super) net: Built,
}

#[derive(Debug)]
pub(super) enum Built {
    Mlp(Mlp),
    Resnet(Box<ResNet>),
    Towers(Box<Towers>),
}

impl Classifier {
    fn normalised<'t>(&self, x: Var<'t>) -> Var<'t> {
        let ImageInput { mean, deviation, .. } = self.input;
        x.affine(1.0 / deviation, -mean / deviation)
    }

    /// What training minimises.
    ///
    /// # Errors
    /// Images of another size, labels in another number.
    pub fn loss<'t>(&self, x: Var<'t>, labels: Var<'t>, options: &CrossEntropy<'t>) -> Var<'t> {
        match &self.net {
            Built::Towers(towers) => towers.loss(self.normalised(x).flatten(), labels, options),
            Built::Mlp(_) | Built::Resnet(_) => self.forward(x).cross_entropy_with(labels, options),
        }
    }
}

/// Of two towers, what the second says: the one that is hard to train.
impl Module for Classifier {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.normalised(x);
        match &self.net {
            Built::Mlp(mlp) => mlp.forward(x.flatten()),
            Built::Resnet(resnet) => resnet.forward(x),
            Built::Towers(towers) => towers.tower(x.flatten(), true),
        }
    }
}

/// What the first of two towers says.
pub(super) struct First<'a>(pub &'a Classifier, pub &'a Towers);

impl Module for First<'_> {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.1.tower(self.0.normalised(x).flatten(), false)
    }
}

/// A network with its parameters, first values by `seed`.
#[must_use]
pub fn network(seed: u64, net: Net, input: ImageInput, width: usize, classes: usize) -> (Parameters, Classifier) {
    let mut parameters = Parameters::seeded(seed);
    let ([height, columns, channels], hidden) = (input.size, 8 * width);
    let net = match net {
        Net::Mlp => {
            let sizes = [height * columns * channels, hidden, hidden, classes];
            Built::Mlp(Mlp::new(&mut parameters.at("mlp"), &sizes))
        }
        Net::Resnet => {
            let mut scope = parameters.at("resnet");
            Built::Resnet(Box::new(ResNet::new(&mut scope, channels, width, 1, classes)))
        }
        Net::Towers => {
            let values = height * columns * channels;
            Built::Towers(Box::new(Towers::new(&mut parameters.at("towers"), values, hidden, classes)))
        }
    };
    (parameters, Classifier { input, net })
}
