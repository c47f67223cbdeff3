//! VGG-16, configuration D (Simonyan and Zisserman 2015).

use super::{Scale, Vision};
use crate::{
    Fan, Init, Scope, Var,
    nn::{BatchNorm, Conv2d, Dropout, Linear, Module},
};
use gradscale_core::ops::{Pool, PoolOp};
use std::f32::consts::SQRT_2;

/// Channels and number of convolutions of each level. Max-pooling follows each level.
pub(super) const LEVELS: [(usize, usize); 5] = [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)];

/// Layer of VGG: a 3 × 3 convolution, optionally with batch norm, and a ReLU.
#[derive(Clone, Debug)]
struct VggLayer {
    conv: Conv2d,
    norm: Option<BatchNorm>,
}

/// Convolutions of VGG-16, thirteen, by level. They are named `0` and so on, like `features` in torchvision's `vgg16`
/// and, with batch norm, `vgg16_bn`.
#[derive(Clone, Debug)]
pub(super) struct Features(Vec<Vec<VggLayer>>);

impl Features {
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, norm: bool) -> Self {
        let (mut index, mut from) = (0, inputs);
        let init = Init::KaimingNormal { fan: Fan::Out, gain: SQRT_2 };
        let mut layer = |to: usize, index: &mut usize| {
            let mut at = scope.at(&index.to_string());
            let conv = Conv2d::with_init(&mut at, from, to, 3, init).bias(&mut at);
            let norm = norm.then(|| BatchNorm::new(&mut scope.at(&(*index + 1).to_string()), to));
            from = to;
            // Its ReLU has an index too.
            *index += if norm.is_some() { 3 } else { 2 };
            VggLayer { conv, norm }
        };
        let level = |(channels, count): (usize, usize)| {
            let layers = (0..count).map(|_| layer(scale.scale_channels(channels), &mut index)).collect();
            // The pooling has an index too.
            index += 1;
            layers
        };
        Self(LEVELS.into_iter().map(level).collect())
    }

    /// Applies VGG's levels with their poolings and returns each pooled value. `ceil` keeps incomplete windows.
    pub fn pooled<'t>(&self, x: Var<'t>, ceil: bool) -> Vec<Var<'t>> {
        let (mut x, mut all) = (x, Vec::new());
        for level in 0..self.0.len() {
            x = self.level(level, x).pool("max_pool", |x| {
                let pool = Pool::new(PoolOp::Max, x, [2; 2])?;
                if ceil { pool.ceil() } else { Ok(pool) }
            });
            all.push(x);
        }
        all
    }

    /// Applies one level of VGG's convolutions, without the pooling after it.
    fn level<'t>(&self, level: usize, x: Var<'t>) -> Var<'t> {
        let layer = |x: Var<'t>, layer: &VggLayer| {
            layer.norm.iter().fold(layer.conv.forward(x), |x, norm| norm.forward(x)).relu()
        };
        self.0[level].iter().fold(x, layer)
    }

    /// Applies all of VGG's levels, with a pooling before each of the levels 1 to `poolings`.
    pub fn unpooled<'t>(&self, x: Var<'t>, poolings: usize) -> Var<'t> {
        (0..self.0.len()).fold(x, |x, level| {
            let halved = |x: Var<'t>| x.pool("max_pool", |x| Pool::new(PoolOp::Max, x, [2; 2]));
            self.level(level, if (1..=poolings).contains(&level) { halved(x) } else { x })
        })
    }
}

/// VGG-16: thirteen convolutions with a ReLU each, max-pooling after every two or three, average pooling to 7 × 7,
/// three linear layers with dropout. For small images the average pooling is global.
#[derive(Clone, Debug)]
pub struct Vgg16 {
    features: Features,
    linears: [Linear; 3],
    dropout: Dropout,
    windows: usize,
    last: usize,
}

impl Vgg16 {
    /// Creates VGG-16 (configuration D) with torchvision's weight initialisation.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        Self::build(scope, inputs, scale, classes, false)
    }

    /// Creates VGG-16 with batch norm after each convolution, like SegNet's encoder.
    pub fn with_norm(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        Self::build(scope, inputs, scale, classes, true)
    }

    fn build(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize, norm: bool) -> Self {
        let features = Features::new(&mut scope.at("features"), inputs, scale, norm);
        let windows = if scale.small { 1 } else { 7 };
        let (last, hidden) = (scale.scale_channels(512), scale.scale_channels(4096));
        // Torchvision's standard deviation is for 4096 units. With fewer units activations would vanish, so the weights
        // are larger.
        let init = if scale.small { Init::HeNormal } else { Init::Normal { mean: 0.0, std: 0.01 } };
        let mut linear =
            |index: usize, from, to| Linear::with_init(&mut scope.at(&format!("classifier.{index}")), from, to, init);
        let linears =
            [linear(0, windows * windows * last, hidden), linear(3, hidden, hidden), linear(6, hidden, classes)];
        Self { features, linears, dropout: scale.drops(0.5), windows, last }
    }
}

impl Module for Vgg16 {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let windows = u32::try_from(self.windows).unwrap_or(u32::MAX);
        let x = self.features.pooled(x, false).pop().unwrap_or(x).adaptive_average_pool([windows; 2]).flatten();
        let [first, second, third] = &self.linears;
        let x = self.dropout.forward(first.forward(x).relu());
        third.forward(self.dropout.forward(second.forward(x).relu()))
    }
}

impl Vision for Vgg16 {
    fn flattened(&self) -> Vec<(&'static str, [usize; 3])> {
        vec![("classifier.0", [self.windows, self.windows, self.last])]
    }
}
