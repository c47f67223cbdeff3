//! SegNetBasic, a segmentation network (Badrinarayanan, Kendall, Cipolla 2017), as in the paper's section 5.4.

use crate::{
    Init, Scope, Var,
    nn::{BatchNorm, Conv2d, LocalResponseNorm, Module},
};

/// Number of levels of SegNet's encoder, and of its decoder.
const LEVELS: usize = 4;

/// SegNetBasic from `[n, h, w, inputs]` to `[n, h, w, classes]`. It has a local response norm; four levels of 7×7
/// convolution, batch norm, ReLU and max-pooling with saved indices; four levels of unpooling to these, 7×7 convolution
/// and batch norm; and a 1×1 classifier. Odd sizes are rounded up.
#[derive(Clone, Debug)]
pub struct SegNet {
    encoder: Vec<(Conv2d, BatchNorm)>,
    decoder: Vec<(Conv2d, BatchNorm)>,
    classifier: Conv2d,
}

impl SegNet {
    /// Creates SegNet with `width` channels in every layer; SegNetBasic has 64. Weights are initialised as by He et al.
    /// (2015), like the paper's.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, width: usize, classes: usize) -> Self {
        let level = |scope: &mut Scope<'_>, i: usize, from: usize| {
            let conv = Conv2d::with_init(&mut scope.at(&format!("conv{}", i + 1)), from, width, 7, Init::HeNormal);
            (conv, BatchNorm::new(&mut scope.at(&format!("norm{}", i + 1)), width))
        };
        let mut encoder = scope.at("encoder");
        let encoder = (0..LEVELS).map(|i| level(&mut encoder, i, if i == 0 { inputs } else { width })).collect();
        let mut decoder = scope.at("decoder");
        let decoder = (0..LEVELS).rev().map(|i| level(&mut decoder, i, width)).collect();
        let mut last = scope.at("classifier");
        let classifier = Conv2d::with_init(&mut last, width, classes, 1, Init::HeNormal).bias(&mut last);
        Self { encoder, decoder, classifier }
    }
}

impl Module for SegNet {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let mut x = LocalResponseNorm::default().forward(x);
        let mut pooled = Vec::new();
        for (conv, norm) in &self.encoder {
            x = norm.forward(conv.forward(x)).relu().max_pool([2, 2]);
            pooled.push(x);
        }
        for ((conv, norm), pooled) in self.decoder.iter().zip(pooled.into_iter().rev()) {
            x = norm.forward(conv.forward(x.unpool(pooled)));
        }
        self.classifier.forward(x)
    }
}
