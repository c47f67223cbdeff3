//! SegNet in full (Badrinarayanan, Kendall, Cipolla 2017).

use super::{
    Scale,
    vgg::{Features, LEVELS},
};
use crate::{
    Init, Scope, Var,
    nn::{BatchNorm, Conv2d, Module},
};

/// VGG-16's convolutions with batch norm, each level's max-pooling keeping its indices; the same levels backwards, each
/// after unpooling to these, with 3 × 3 convolutions, batch norm and ReLU, the last convolution of all telling the
/// classes. `[n, h, w, inputs]` to `[n, h, w, classes]`. Odd sizes round up.
///
/// The encoder is called as torchvision's `vgg16_bn` (`features.0` …), so that its weights may be imported.
#[derive(Clone, Debug)]
pub struct SegNetVgg {
    encoder: Features,
    decoder: Vec<Vec<(Conv2d, BatchNorm)>>,
    classifier: Conv2d,
}

impl SegNetVgg {
    /// The paper's has the channels of [`Scale::PAPER`]; nothing else of a scale counts here. First weights of the
    /// decoder are those of He et al. (2015), of the encoder torchvision's.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        let encoder = Features::new(&mut scope.at("features"), inputs, scale, true);
        let mut decoder = Vec::new();
        for (level, &(channels, count)) in LEVELS.iter().enumerate().rev() {
            let from = scale.scale_channels(channels);
            // The last convolution of a level gives what the level above reads; of the first level it is the classifier.
            let to = level.checked_sub(1).map(|above| scale.scale_channels(LEVELS[above].0));
            let outs = std::iter::repeat_n(from, count - 1).chain(to);
            let layers = outs.enumerate().map(|(i, to)| {
                let at = &mut scope.at(&format!("decoder{}.{i}", level + 1));
                let conv = Conv2d::with_init(&mut at.at("conv"), from, to, 3, Init::HeNormal);
                (conv, BatchNorm::new(&mut at.at("bn"), to))
            });
            decoder.push(layers.collect());
        }
        let at = &mut scope.at("classifier");
        let classifier = Conv2d::with_init(at, scale.scale_channels(LEVELS[0].0), classes, 3, Init::HeNormal).bias(at);
        Self { encoder, decoder, classifier }
    }
}

impl Module for SegNetVgg {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let pooled = self.encoder.pooled(x, true);
        let mut x = pooled.last().copied().unwrap_or(x);
        for (level, pooled) in self.decoder.iter().zip(pooled.into_iter().rev()) {
            x = x.unpool(pooled);
            for (conv, norm) in level {
                x = norm.forward(conv.forward(x)).relu();
            }
        }
        self.classifier.forward(x)
    }
}
