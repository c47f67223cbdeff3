//! Residual network for small images (He et al. 2016, section 4.2).

use crate::{
    Init, Scope, Var,
    nn::{BatchNorm, Conv2d, Linear, Module},
};

/// Residual block: two 3×3 convolutions and a shortcut. Backward, the gradients of both paths are added before the
/// block, and their sum is a site.
#[derive(Clone, Debug)]
struct ResidualBlock {
    convs: [(Conv2d, BatchNorm); 2],
    /// Shortcut of the block: a 1×1 convolution with the block's stride, if the shapes differ.
    shortcut: Option<(Conv2d, BatchNorm)>,
}

impl ResidualBlock {
    fn new(scope: &mut Scope<'_>, from: usize, to: usize, stride: u32) -> Self {
        let mut layer = |name: &str, from: usize, kernel: usize, stride: u32| {
            let mut at = scope.at(&format!("conv{name}"));
            let conv = Conv2d::with_init(&mut at, from, to, kernel, Init::HeNormal).stride(stride);
            (conv, BatchNorm::new(&mut scope.at(&format!("norm{name}")), to))
        };
        let convs = [layer("1", from, 3, stride), layer("2", to, 3, 1)];
        let shortcut = (from != to || stride != 1).then(|| layer("0", from, 1, stride));
        Self { convs, shortcut }
    }
}

impl Module for ResidualBlock {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let layer = |(conv, norm): &(Conv2d, BatchNorm), x: Var<'t>| norm.forward(conv.forward(x));
        let y = layer(&self.convs[1], layer(&self.convs[0], x).relu());
        let x = match &self.shortcut {
            Some(shortcut) => layer(shortcut, x),
            None => x,
        };
        (x + y).relu()
    }
}

/// Residual network from `[n, h, w, inputs]` to `[n, classes]`: a 3×3 convolution, three stages of residual blocks,
/// global average pooling, and a linear layer. The stages have `width`, 2·`width` and 4·`width` channels at full, half
/// and quarter size.
#[derive(Clone, Debug)]
pub struct ResNet {
    first: (Conv2d, BatchNorm),
    blocks: Vec<ResidualBlock>,
    last: Linear,
}

impl ResNet {
    /// Creates the ResNet with `blocks` blocks in each stage: 1 is ResNet-8, 3 is ResNet-20. Convolutions are
    /// initialised as by He et al. (2015), like the paper's; the linear layer as in PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, width: usize, blocks: usize, classes: usize) -> Self {
        let conv = Conv2d::with_init(&mut scope.at("conv"), inputs, width, 3, Init::HeNormal);
        let first = (conv, BatchNorm::new(&mut scope.at("norm"), width));
        let mut all = Vec::new();
        let mut from = width;
        for stage in 0..3 {
            let to = width << stage;
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let mut scope = scope.at(&format!("stage{}.block{}", stage + 1, block + 1));
                all.push(ResidualBlock::new(&mut scope, from, to, stride));
                from = to;
            }
        }
        Self { first, blocks: all, last: Linear::new(&mut scope.at("linear"), from, classes) }
    }
}

impl Module for ResNet {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.first.1.forward(self.first.0.forward(x)).relu();
        let x = self.blocks.forward(x);
        self.last.forward(x.adaptive_average_pool([1, 1]))
    }
}
