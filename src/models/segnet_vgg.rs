//! SegNet with VGG-16 as encoder (Badrinarayanan, Kendall, Cipolla 2017).

use super::{
    Scale,
    vgg::{Features, LEVELS},
};
use crate::{
    Init, Scope, Var,
    nn::{BatchNorm, Conv2d, Module},
};

/// SegNet from `[n, h, w, inputs]` to `[n, h, w, classes]`. The encoder is VGG-16's convolutions with batch norm, and
/// its max-poolings save their indices. The decoder has the same levels in reverse: unpooling to these indices, then 3
/// × 3 convolutions with batch norm and ReLU. The last convolution is the classifier. Odd sizes are rounded up.
///
/// The encoder's layers have the names of torchvision's `vgg16_bn` (`features.0` …), so that its weights can be
/// imported.
#[derive(Clone, Debug)]
pub struct SegNetVgg {
    encoder: Features,
    decoder: Vec<Vec<(Conv2d, BatchNorm)>>,
    classifier: Conv2d,
}

impl SegNetVgg {
    /// Creates SegNet with VGG's encoder for images of `inputs` channels. [`Scale::PAPER`] gives the paper's channels;
    /// no other setting of a scale is used. The decoder is initialised as by He et al. (2015), the encoder as in
    /// torchvision.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        let encoder = Features::new(&mut scope.at("features"), inputs, scale, true);
        let mut decoder = Vec::new();
        for (level, &(channels, count)) in LEVELS.iter().enumerate().rev() {
            let from = scale.scale_channels(channels);
            // The last convolution of a level has the channels of the level above; in the first level it is the
            // classifier.
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
