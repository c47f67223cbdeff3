//! GoogLeNet (Szegedy et al. 2015) as in torchvision: with batch norm, and with 3 × 3 kernels where the paper has 5 ×
//! 5.

use super::{
    Scale, Vision,
    inception::{Before, InceptionBlock, Unit, Windows, conv, halve},
};
use crate::{
    Scope, Var,
    nn::{Dropout, Linear, Module},
};

/// Channels of a block: 1 × 1; before and of 3 × 3; before and of the second 3 × 3; after the pooling.
const BLOCKS: [(&str, [usize; 6]); 9] = [
    ("inception3a", [64, 96, 128, 16, 32, 32]),
    ("inception3b", [128, 128, 192, 32, 96, 64]),
    ("inception4a", [192, 96, 208, 16, 48, 64]),
    ("inception4b", [160, 112, 224, 24, 64, 64]),
    ("inception4c", [128, 128, 256, 24, 64, 64]),
    ("inception4d", [112, 144, 288, 32, 64, 64]),
    ("inception4e", [256, 160, 320, 32, 128, 128]),
    ("inception5a", [256, 160, 320, 32, 128, 128]),
    ("inception5b", [384, 192, 384, 48, 128, 128]),
];
/// Indices of the blocks before which images are halved.
const HALVED: [usize; 2] = [2, 7];
/// Indices of the blocks after which there is an auxiliary head.
const HEADS: [usize; 2] = [2, 5];
/// Weight of an auxiliary head's loss (section 5).
const WEIGHT: f32 = 0.3;
/// Number of average-pooling windows of an auxiliary head on each side.
const WINDOWS: u8 = 4;

/// Auxiliary classification head of GoogLeNet, used only in training.
#[derive(Clone, Debug)]
struct Head {
    conv: Unit,
    first: Linear,
    second: Linear,
    dropout: Dropout,
}

impl Head {
    fn new(scope: &mut Scope<'_>, scale: Scale, from: usize, classes: usize) -> Self {
        let (conv, hidden) = (Unit::new(scope, scale, from, conv("conv", 128, 1)), scale.scale_channels(1024));
        let first =
            Linear::new(&mut scope.at("fc1"), usize::from(WINDOWS * WINDOWS) * scale.scale_channels(128), hidden);
        Self { conv, first, second: Linear::new(&mut scope.at("fc2"), hidden, classes), dropout: scale.drops(0.7) }
    }
}

impl Module for Head {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.conv.forward(x.adaptive_average_pool([WINDOWS.into(); 2])).flatten();
        self.second.forward(self.dropout.forward(self.first.forward(x).relu()))
    }
}

/// GoogLeNet: three convolutions, nine blocks of four branches, global average pooling, dropout and a linear layer; two
/// auxiliary heads in training. For small images the first kernel is 3 × 3 at stride 1.
#[derive(Clone, Debug)]
pub struct GoogLeNet {
    stem: [Unit; 3],
    blocks: Vec<InceptionBlock>,
    heads: [Head; 2],
    dropout: Dropout,
    last: Linear,
    scale: Scale,
}

impl GoogLeNet {
    /// Creates GoogLeNet for images of `inputs` channels. Convolutions are initialised as by He et al. (2015), linear
    /// layers as in PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        let first = if scale.small { conv("conv1", 64, 3) } else { conv("conv1", 64, 7).stride(2) };
        let stem = [
            Unit::new(scope, scale, inputs, first),
            Unit::new(scope, scale, scale.scale_channels(64), conv("conv2", 64, 1)),
            Unit::new(scope, scale, scale.scale_channels(64), conv("conv3", 192, 3)),
        ];
        let mut from = scale.scale_channels(192);
        let mut block = |(name, [one, before, three, before_second, second, pool]): (&str, [usize; 6])| {
            let at = &mut scope.at(name);
            let block = InceptionBlock::new(scale, from)
                .branch(at, Before::Nothing, &[conv("branch1", one, 1)])
                .branch(at, Before::Nothing, &[conv("branch2.0", before, 1), conv("branch2.1", three, 3)])
                .branch(at, Before::Nothing, &[conv("branch3.0", before_second, 1), conv("branch3.1", second, 3)])
                .branch(at, Before::Max, &[conv("branch4.1", pool, 1)]);
            from = block.channels();
            block
        };
        let blocks: Vec<InceptionBlock> = BLOCKS.into_iter().map(&mut block).collect();
        let heads = [("aux1", HEADS[0]), ("aux2", HEADS[1])]
            .map(|(name, behind)| Head::new(&mut scope.at(name), scale, blocks[behind].channels(), classes));
        let last = Linear::new(&mut scope.at("fc"), from, classes);
        Self { stem, blocks, heads, dropout: scale.drops(0.2), last, scale }
    }

    /// Computes the logits of images, and the inputs of the auxiliary heads.
    fn through<'t>(&self, x: Var<'t>) -> (Var<'t>, Vec<Var<'t>>) {
        let [first, second, third] = &self.stem;
        let mut x = first.forward(x);
        if !self.scale.small {
            x = halve(x, Windows::Ceil);
        }
        x = halve(third.forward(second.forward(x)), Windows::Ceil);
        let mut read = Vec::new();
        for (i, block) in self.blocks.iter().enumerate() {
            if i == HALVED[0] {
                x = halve(x, Windows::Ceil);
            }
            if i == HALVED[1] {
                x = x.max_pool([2; 2]);
            }
            x = block.forward(x);
            if HEADS.contains(&i) {
                read.push(x);
            }
        }
        (self.last.forward(self.dropout.forward(x.adaptive_average_pool([1; 2]))), read)
    }
}

impl Module for GoogLeNet {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.through(x).0
    }
}

impl Vision for GoogLeNet {
    fn heads<'t>(&self, x: Var<'t>) -> Vec<(Var<'t>, f32)> {
        let (answer, read) = self.through(x);
        let others = self.heads.iter().zip(read).map(|(head, x)| (head.forward(x), WEIGHT));
        std::iter::once((answer, 1.0)).chain(others).collect()
    }

    fn flattened(&self) -> Vec<(&'static str, [usize; 3])> {
        ["aux1.fc1", "aux2.fc1"]
            .map(|name| (name, [WINDOWS.into(), WINDOWS.into(), self.scale.scale_channels(128)]))
            .to_vec()
    }
}
