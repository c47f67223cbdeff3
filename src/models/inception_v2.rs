//! Inception v2: Inception with batch norm (Ioffe and Szegedy 2015), by the table of their figure 5.
//!
//! Torchvision does not have it. The first convolution is a plain 7 × 7 (the paper's is separable). Channels are the
//! sums of their branches: the table's 576 and 1024 after 4c to 4e are 608 and 1056, as in all published weights.

use super::{
    Scale, Vision,
    inception::{Before, InceptionBlock, Unit, Windows, conv, halve},
};
use crate::{
    Scope, Var,
    nn::{Linear, Module},
};

/// Channels of a block: 1 × 1; before and of 3 × 3; before and of two 3 × 3; after the pooling. A block without 1 × 1
/// and without channels after the pooling uses max pooling and halves images.
const BLOCKS: [(&str, [usize; 6]); 10] = [
    ("3a", [64, 64, 64, 64, 96, 32]),
    ("3b", [64, 64, 96, 64, 96, 64]),
    ("3c", [0, 128, 160, 64, 96, 0]),
    ("4a", [224, 64, 96, 96, 128, 128]),
    ("4b", [192, 96, 128, 96, 128, 128]),
    ("4c", [160, 128, 160, 128, 160, 128]),
    ("4d", [96, 128, 192, 160, 192, 128]),
    ("4e", [0, 128, 192, 192, 256, 0]),
    ("5a", [352, 192, 320, 160, 224, 128]),
    ("5b", [352, 192, 320, 192, 224, 128]),
];
/// Block whose pooling branch is max pooling; the others average.
const MAX_POOLING_BLOCK: &str = "5b";

/// Inception v2: three convolutions, ten blocks of branches, global average pooling and a linear layer. For small
/// images the first kernel is 3 × 3 at stride 1, and no pooling follows it.
#[derive(Clone, Debug)]
pub struct InceptionV2 {
    stem: [Unit; 3],
    blocks: Vec<InceptionBlock>,
    last: Linear,
    scale: Scale,
}

impl InceptionV2 {
    /// Creates Inception v2 for images of `inputs` channels. Convolutions are initialised as by He et al. (2015), the
    /// linear layer as in PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        let first = if scale.small { conv("conv1", 64, 3) } else { conv("conv1", 64, 7).stride(2) };
        let stem = [
            Unit::new(scope, scale, inputs, first),
            Unit::new(scope, scale, scale.scale_channels(64), conv("conv2", 64, 1)),
            Unit::new(scope, scale, scale.scale_channels(64), conv("conv3", 192, 3)),
        ];
        let (mut from, mut blocks) = (scale.scale_channels(192), Vec::new());
        for (name, [one, before, three, before_two, two, pool]) in BLOCKS {
            let at = &mut scope.at(&format!("inception{name}"));
            let stride = if one == 0 { 2 } else { 1 };
            let mut block = InceptionBlock::new(scale, from);
            if one != 0 {
                block = block.branch(at, Before::Nothing, &[conv("branch1", one, 1)]);
            }
            block = block
                .branch(
                    at,
                    Before::Nothing,
                    &[conv("branch2.0", before, 1), conv("branch2.1", three, 3).stride(stride)],
                )
                .branch(
                    at,
                    Before::Nothing,
                    &[
                        conv("branch3.0", before_two, 1),
                        conv("branch3.1", two, 3),
                        conv("branch3.2", two, 3).stride(stride),
                    ],
                );
            block = match pool {
                0 => block.branch(at, Before::Halve(Windows::Padded), &[]),
                pool => {
                    let before = if name == MAX_POOLING_BLOCK { Before::Max } else { Before::Average };
                    block.branch(at, before, &[conv("branch4.1", pool, 1)])
                }
            };
            from = block.channels();
            blocks.push(block);
        }
        Self { stem, blocks, last: Linear::new(&mut scope.at("fc"), from, classes), scale }
    }
}

impl Module for InceptionV2 {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [first, second, third] = &self.stem;
        let mut x = first.forward(x);
        if !self.scale.small {
            x = halve(x, Windows::Padded);
        }
        x = halve(third.forward(second.forward(x)), Windows::Padded);
        self.last.forward(self.blocks.forward(x).adaptive_average_pool([1; 2]))
    }
}

impl Vision for InceptionV2 {}
