//! Convolutional network for speech that keeps every fourth frame, as the subsampling of Conformers does.

use gradscale::{
    Init, Scope, Var,
    nn::{Conv2d, LayerNorm, Linear, Module},
};

/// Number of residual blocks.
const BLOCKS: usize = 3;

/// Residual block: a normalisation, five steps to twice the width, and back.
#[derive(Debug)]
struct ResidualBlock {
    norm: LayerNorm,
    wide: Conv2d,
    narrow: Linear,
}

/// Network of two convolutions of stride 2 and three residual blocks, for CTC. A step of its output stands for four
/// frames, so fast speech can have fewer steps than letters.
#[derive(Debug)]
pub struct Convolutions {
    convolutions: [Conv2d; 2],
    project: Linear,
    blocks: Vec<ResidualBlock>,
    letters: Linear,
}

impl Convolutions {
    /// Creates a network that reads `frequencies` bands. `channels` are those of the convolutions, `width` is that of
    /// the blocks.
    pub fn new(scope: &mut Scope<'_>, frequencies: usize, [channels, width]: [usize; 2], characters: usize) -> Self {
        let conv = |scope: &mut Scope<'_>, name: &str, inputs: usize| {
            let mut scope = scope.at(name);
            Conv2d::new(&mut scope, inputs, channels, 3).stride(2).bias(&mut scope)
        };
        let convolutions = [conv(scope, "conv1", 1), conv(scope, "conv2", channels)];
        let project = Linear::new(&mut scope.at("project"), channels * Self::steps(frequencies), width);
        let block = |i: usize| {
            let mut scope = scope.at(&format!("block{i}"));
            let norm = LayerNorm::new(&mut scope.at("norm"), width);
            let mut wide = scope.at("wide");
            let wide = Conv2d::rectangular(&mut wide, width, 2 * width, [1, 5], Init::FanIn).bias(&mut wide);
            ResidualBlock { norm, wide, narrow: Linear::new(&mut scope.at("narrow"), 2 * width, width) }
        };
        let blocks = (1..=BLOCKS).map(block).collect();
        Self { convolutions, project, blocks, letters: Linear::new(&mut scope.at("letters"), width, characters) }
    }

    /// Returns the number of time steps after two convolutions of stride 2.
    pub const fn steps(frames: usize) -> usize {
        frames.div_ceil(2).div_ceil(2)
    }

    /// Returns logits `[n, 1, t / 4, characters]` of spectra `[n, t, frequencies, 1]`.
    pub fn logits<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.convolutions.iter().fold(x, |x, conv| conv.forward(x).relu());
        let [n, t, w, c] = x.shape().sizes();
        let x = self.project.forward(x.reshape([n, 1, t, w * c]));
        let block = |x: Var<'t>, block: &ResidualBlock| {
            x + block.narrow.forward(block.wide.forward(block.norm.forward(x)).relu())
        };
        self.letters.forward(self.blocks.iter().fold(x, block))
    }
}
