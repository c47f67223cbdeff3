//! ResNet-18 and ResNet-50 (He et al. 2016) as in torchvision: the stride of a bottleneck is in its 3 × 3 convolution.

use super::{
    Scale, Vision,
    inception::{Windows, halve},
};
use crate::{
    Fan, Init, Scope, Var,
    nn::{BatchNorm, Conv2d, Linear, Module},
};
use std::f32::consts::SQRT_2;

/// Variant of torchvision's ResNet by its depth: 18 or 50 layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResNetDepth {
    /// ResNet-18: 18 layers, blocks of two 3 × 3 convolutions.
    Eighteen,
    /// ResNet-50: 50 layers, blocks of 1 × 1, 3 × 3 and 1 × 1, the last with four times the channels.
    Fifty,
}

impl ResNetDepth {
    const fn blocks(self) -> [usize; 4] {
        match self {
            Self::Eighteen => [2, 2, 2, 2],
            Self::Fifty => [3, 4, 6, 3],
        }
    }

    /// Returns, for each convolution of a block, its kernel and its multiple of the stage's channels, and the index of
    /// the convolution with the stride.
    const fn layers(self) -> (&'static [(usize, usize)], usize) {
        match self {
            Self::Eighteen => (&[(3, 1), (3, 1)], 0),
            Self::Fifty => (&[(1, 1), (3, 1), (1, 4)], 1),
        }
    }
}

/// Convolution without bias, and the batch norm after it.
type ConvNorm = (Conv2d, BatchNorm);

fn layer(
    scope: &mut Scope<'_>, [conv, norm]: [&str; 2], [from, to]: [usize; 2], kernel: usize, stride: u32,
) -> ConvNorm {
    let init = Init::KaimingNormal { fan: Fan::Out, gain: SQRT_2 };
    let conv = Conv2d::with_init(&mut scope.at(conv), from, to, kernel, init).stride(stride);
    (conv, BatchNorm::new(&mut scope.at(norm), to))
}

fn through<'t>((conv, norm): &ConvNorm, x: Var<'t>) -> Var<'t> {
    norm.forward(conv.forward(x))
}

/// Residual block: convolutions and a shortcut. Backward, the gradients of both paths are added before the block, and
/// their sum is a site.
#[derive(Clone, Debug)]
struct ResidualBlock {
    layers: Vec<ConvNorm>,
    /// Shortcut of the block: a 1 × 1 convolution with the block's stride, if the shapes differ.
    shortcut: Option<ConvNorm>,
}

impl Module for ResidualBlock {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let mut y = x;
        for (i, layer) in self.layers.iter().enumerate() {
            y = through(layer, if i == 0 { y } else { y.relu() });
        }
        (y + self.shortcut.as_ref().map_or(x, |shortcut| through(shortcut, x))).relu()
    }
}

/// ResNet: a convolution, four stages of residual blocks, global average pooling and a linear layer. For small images
/// the first kernel is 3 × 3 at stride 1, and no pooling follows it.
#[derive(Clone, Debug)]
pub struct TorchResNet {
    first: ConvNorm,
    blocks: Vec<ResidualBlock>,
    last: Linear,
    small: bool,
}

impl TorchResNet {
    /// Creates the ResNet with torchvision's weight initialisation.
    pub fn new(scope: &mut Scope<'_>, depth: ResNetDepth, inputs: usize, scale: Scale, classes: usize) -> Self {
        let mut from = scale.scale_channels(64);
        let (kernel, stride) = if scale.small { (3, 1) } else { (7, 2) };
        let first = layer(scope, ["conv1", "bn1"], [inputs, from], kernel, stride);
        let (plan, strided) = depth.layers();
        let mut blocks = Vec::new();
        for (stage, count) in depth.blocks().into_iter().enumerate() {
            let channels = scale.scale_channels(64 << stage);
            for block in 0..count {
                let at = &mut scope.at(&format!("layer{}.{block}", stage + 1));
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let (begin, mut layers) = (from, Vec::new());
                for (i, (kernel, times)) in plan.iter().enumerate() {
                    let names = [format!("conv{}", i + 1), format!("bn{}", i + 1)];
                    let stride = if i == strided { stride } else { 1 };
                    layers.push(layer(at, [&names[0], &names[1]], [from, times * channels], *kernel, stride));
                    from = times * channels;
                }
                let shortcut = (begin != from || stride != 1)
                    .then(|| layer(at, ["downsample.0", "downsample.1"], [begin, from], 1, stride));
                blocks.push(ResidualBlock { layers, shortcut });
            }
        }
        Self { first, blocks, last: Linear::new(&mut scope.at("fc"), from, classes), small: scale.small }
    }
}

impl Module for TorchResNet {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let mut x = through(&self.first, x).relu();
        if !self.small {
            x = halve(x, Windows::Padded);
        }
        self.last.forward(self.blocks.forward(x).adaptive_average_pool([1; 2]))
    }
}

impl Vision for TorchResNet {}
