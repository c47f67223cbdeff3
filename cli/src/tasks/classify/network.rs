//! Networks for images, or rows of numbers, with one class each.

use super::towers::{self, Towers};
use crate::{
    Failure,
    tasks::{ClassifyNet, ImageInput, Net, Network, torch::Flattened},
};
use gradscale::{
    CrossEntropy, Parameter, Parameters, Var,
    models::{Architecture, Mlp, ResNet, Vision},
    nn::Module,
};

/// Default learning rate of the small classifiers.
const LR: f64 = 0.05;
/// Default learning rate of networks without batch norm.
const PLAIN_LR: f64 = 0.01;

/// Returns the default learning rate of SGD for a classifier.
pub const fn lr(net: Net) -> f64 {
    match net.classifier() {
        Some(ClassifyNet::Towers) => towers::LR,
        // Without batch norm a larger one lets them diverge.
        Some(ClassifyNet::Vision(Architecture::AlexNet | Architecture::Vgg16)) => PLAIN_LR,
        Some(ClassifyNet::Mlp | ClassifyNet::Resnet | ClassifyNet::Vision(_)) | None => LR,
    }
}

/// Classifier of either kind, for bytes: `[n, h, w, channels]` to `[n, classes]`.
#[derive(Debug)]
pub struct Classifier {
    pub(super) input: ImageInput,
    pub(super) net: Built,
    /// Factors and summands of each channel, where these differ from channel to channel.
    channels: Option<[Parameter; 2]>,
}

#[derive(Debug)]
pub(super) enum Built {
    Mlp(Mlp),
    Resnet(Box<ResNet>),
    Towers(Box<Towers>),
    Vision(Box<dyn Vision>),
}

impl Classifier {
    fn normalised<'t>(&self, x: Var<'t>) -> Var<'t> {
        let ImageInput { mean, deviation, .. } = self.input;
        let x = x.affine(1.0 / deviation, -mean / deviation);
        match &self.channels {
            None => x,
            Some(both) => {
                let [factors, summands] = both.map(|one| x.tape().parameter(&one));
                x * factors + summands
            }
        }
    }

    /// Returns the layers that read a flattened image, with the image's size.
    pub(super) fn flattened(&self) -> Vec<Flattened> {
        match &self.net {
            Built::Mlp(_) => vec![("mlp.linear1".to_owned(), self.input.size)],
            Built::Towers(_) => vec![("towers.trunk.linear1".to_owned(), self.input.size)],
            Built::Resnet(_) => Vec::new(),
            Built::Vision(net) => {
                net.flattened().into_iter().map(|(layer, image)| (format!("{NAME}.{layer}"), image)).collect()
            }
        }
    }

    /// Returns the loss of a batch, which training minimises.
    ///
    /// # Errors
    /// Images of another size, labels in another number.
    pub fn loss<'t>(&self, x: Var<'t>, labels: Var<'t>, options: &CrossEntropy<'t>) -> Var<'t> {
        match &self.net {
            Built::Towers(towers) => towers.loss(self.normalised(x).flatten(), labels, options),
            Built::Mlp(_) | Built::Resnet(_) => self.forward(x).cross_entropy_with(labels, options),
            Built::Vision(net) => {
                let heads = net.heads(self.normalised(x)).into_iter();
                // A weight of 1 is no node.
                let loss = |(head, weight): (Var<'t>, f32)| {
                    let loss = head.cross_entropy_with(labels, options);
                    if weight == 1.0 { loss } else { loss.scale(weight) }
                };
                heads.map(loss).reduce(|sum, loss| sum + loss).unwrap_or(x)
            }
        }
    }
}

/// Implementation of `Module` for evaluation: of two towers the second, which is hard to train.
impl Module for Classifier {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.normalised(x);
        match &self.net {
            Built::Mlp(mlp) => mlp.forward(x.flatten()),
            Built::Resnet(resnet) => resnet.forward(x),
            Built::Towers(towers) => towers.tower(x.flatten(), true),
            Built::Vision(net) => net.forward(x),
        }
    }
}

/// Module that evaluates the first of two towers.
pub(super) struct First<'a>(pub &'a Classifier, pub &'a Towers);

impl Module for First<'_> {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.1.tower(self.0.normalised(x).flatten(), false)
    }
}

/// Prefix of the parameter names of the library's networks.
const NAME: &str = "net";

/// Creates a classifier with its parameters; `seed` determines the initial values.
///
/// # Errors
/// One that is for another task.
pub fn network(
    seed: u64, Network { net, width, small }: Network, input: ImageInput, classes: usize,
) -> Result<(Parameters, Classifier), Failure> {
    let mut parameters = Parameters::seeded(seed);
    let ([height, columns, channels], hidden) = (input.size, 8 * width);
    let chosen = net.classifier().ok_or_else(|| Failure::at(net, "is not for --task classify"))?;
    let built = match chosen {
        ClassifyNet::Mlp => {
            let sizes = [height * columns * channels, hidden, hidden, classes];
            Built::Mlp(Mlp::new(&mut parameters.at("mlp"), &sizes))
        }
        ClassifyNet::Resnet => {
            let mut scope = parameters.at("resnet");
            Built::Resnet(Box::new(ResNet::new(&mut scope, channels, width, 1, classes)))
        }
        ClassifyNet::Towers => {
            let values = height * columns * channels;
            Built::Towers(Box::new(Towers::new(&mut parameters.at("towers"), values, hidden, classes)))
        }
        ClassifyNet::Vision(architecture) => {
            let scale = Network { net, width, small }.scale();
            Built::Vision(architecture.build(&mut parameters.at(NAME), channels, scale, classes))
        }
    };
    let channels = input.channels.map(|[means, deviations]| {
        // Applied after the normalization that all channels share.
        let apart = |of: usize| [input.deviation / deviations[of], (input.mean - means[of]) / deviations[of]];
        let all = [0, 1, 2].map(apart);
        [("factors", 0), ("summands", 1)]
            .map(|(name, part)| parameters.at("input").constant(name, [3], &all.map(|both| both[part])))
    });
    Ok((parameters, Classifier { input, net: built, channels }))
}
