//! Inception v3 (Szegedy et al. 2016) as in torchvision.

use super::{
    Scale, Vision,
    inception::{Before, InceptionBlock, Unit, Windows, conv, halve, wide},
};
use crate::{
    Scope, Var,
    nn::{Dropout, Linear, Module},
};
use gradscale_core::ops::{Pool, PoolOp};

/// Weight of the auxiliary head's loss.
const WEIGHT: f32 = 0.4;
/// Number of blocks before the auxiliary head, in which images are larger.
const BEFORE_HEAD: usize = 8;

/// Auxiliary classification head of Inception v3, used only in training.
#[derive(Clone, Debug)]
struct Head {
    convs: [Unit; 2],
    last: Linear,
}

impl Module for Head {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = x.pool("average_pool", |x| Pool::new(PoolOp::Average, x, [5; 2])?.stride([3; 2]));
        let [first, second] = &self.convs;
        self.last.forward(second.forward(first.forward(x)).adaptive_average_pool([1; 2]))
    }
}

/// Inception v3: five convolutions, eleven blocks of branches, global average pooling, dropout and a linear layer, for
/// images from 75 × 75. In training it has an auxiliary head, which needs 299 × 299. For small images (from 32 × 32)
/// the first five convolutions keep the size, one pooling is omitted, and there is no auxiliary head.
#[derive(Clone, Debug)]
pub struct InceptionV3 {
    stem: [Unit; 5],
    blocks: Vec<InceptionBlock>,
    head: Option<Head>,
    dropout: Dropout,
    last: Linear,
}

impl InceptionV3 {
    /// Creates Inception v3 for images of `inputs` channels. Convolutions are initialised as by He et al. (2015),
    /// linear layers as in PyTorch.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        let first = conv("Conv2d_1a_3x3", 32, 3);
        let [first, second, fifth] = if scale.small {
            [first, conv("Conv2d_2a_3x3", 32, 3), conv("Conv2d_4a_3x3", 192, 3)]
        } else {
            let inside = |name, to| conv(name, to, 3).pad(0);
            [first.stride(2).pad(0), inside("Conv2d_2a_3x3", 32), inside("Conv2d_4a_3x3", 192)]
        };
        let third = conv("Conv2d_2b_3x3", 64, 3);
        let fourth = conv("Conv2d_3b_1x1", 80, 1);
        let channels = [
            inputs,
            scale.scale_channels(32),
            scale.scale_channels(32),
            scale.scale_channels(64),
            scale.scale_channels(80),
        ];
        let plans = [first, second, third, fourth, fifth];
        let stem: [Unit; 5] = std::array::from_fn(|i| Unit::new(scope, scale, channels[i], plans[i]));
        let (mut from, mut blocks) = (scale.scale_channels(192), Vec::new());
        let mut add = |block: InceptionBlock| -> usize {
            blocks.push(block);
            blocks[blocks.len() - 1].channels()
        };
        for (name, pool) in [("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)] {
            from = add(even(&mut scope.at(name), InceptionBlock::new(scale, from), pool));
        }
        from = add(halving(&mut scope.at("Mixed_6a"), InceptionBlock::new(scale, from)));
        for (name, inner) in [("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)] {
            from = add(sevens(&mut scope.at(name), InceptionBlock::new(scale, from), inner));
        }
        let head = (!scale.small).then(|| {
            let at = &mut scope.at("AuxLogits");
            let convs = [
                Unit::new(at, scale, from, conv("conv0", 128, 1)),
                Unit::new(at, scale, scale.scale_channels(128), conv("conv1", 768, 5).pad(0)),
            ];
            Head { convs, last: Linear::new(&mut at.at("fc"), scale.scale_channels(768), classes) }
        });
        from = add(halving_again(&mut scope.at("Mixed_7a"), InceptionBlock::new(scale, from)));
        for name in ["Mixed_7b", "Mixed_7c"] {
            from = add(forks(&mut scope.at(name), InceptionBlock::new(scale, from)));
        }
        let last = Linear::new(&mut scope.at("fc"), from, classes);
        Self { stem, blocks, head, dropout: scale.drops(0.5), last }
    }

    /// Computes the logits of images, and the input of the auxiliary head.
    fn through<'t>(&self, x: Var<'t>) -> (Var<'t>, Var<'t>) {
        let [first, second, third, fourth, fifth] = &self.stem;
        let x = third.forward(second.forward(first.forward(x)));
        // Small images omit this pooling.
        let x = if self.head.is_some() { halve(x, Windows::Inside) } else { x };
        let x = halve(fifth.forward(fourth.forward(x)), Windows::Inside);
        let (before, behind) = self.blocks.split_at(BEFORE_HEAD);
        let read = before.iter().fold(x, |x, block| block.forward(x));
        let x = behind.iter().fold(read, |x, block| block.forward(x));
        (self.last.forward(self.dropout.forward(x.adaptive_average_pool([1; 2]))), read)
    }
}

impl Module for InceptionV3 {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.through(x).0
    }
}

impl Vision for InceptionV3 {
    fn heads<'t>(&self, x: Var<'t>) -> Vec<(Var<'t>, f32)> {
        let (answer, read) = self.through(x);
        let head = self.head.iter().map(|head| (head.forward(read), WEIGHT));
        std::iter::once((answer, 1.0)).chain(head).collect()
    }
}

/// Creates an Inception block for 35 × 35 maps: figure 5 of the paper.
fn even(at: &mut Scope<'_>, block: InceptionBlock, pool: usize) -> InceptionBlock {
    block
        .branch(at, Before::Nothing, &[conv("branch1x1", 64, 1)])
        .branch(at, Before::Nothing, &[conv("branch5x5_1", 48, 1), conv("branch5x5_2", 64, 5)])
        .branch(
            at,
            Before::Nothing,
            &[conv("branch3x3dbl_1", 64, 1), conv("branch3x3dbl_2", 96, 3), conv("branch3x3dbl_3", 96, 3)],
        )
        .branch(at, Before::Average, &[conv("branch_pool", pool, 1)])
}

/// Creates the Inception block that halves maps from 35 × 35 to 17 × 17: figure 10 of the paper.
fn halving(at: &mut Scope<'_>, block: InceptionBlock) -> InceptionBlock {
    let down = |name, to| conv(name, to, 3).stride(2).pad(0);
    block
        .branch(at, Before::Nothing, &[down("branch3x3", 384)])
        .branch(
            at,
            Before::Nothing,
            &[conv("branch3x3dbl_1", 64, 1), conv("branch3x3dbl_2", 96, 3), down("branch3x3dbl_3", 96)],
        )
        .branch(at, Before::Halve(Windows::Inside), &[])
}

/// Creates an Inception block for 17 × 17 maps: figure 6, with kernels of 1 × 7 and 7 × 1.
fn sevens(at: &mut Scope<'_>, block: InceptionBlock, inner: usize) -> InceptionBlock {
    block
        .branch(at, Before::Nothing, &[conv("branch1x1", 192, 1)])
        .branch(
            at,
            Before::Nothing,
            &[conv("branch7x7_1", inner, 1), wide("branch7x7_2", inner, [1, 7]), wide("branch7x7_3", 192, [7, 1])],
        )
        .branch(
            at,
            Before::Nothing,
            &[
                conv("branch7x7dbl_1", inner, 1),
                wide("branch7x7dbl_2", inner, [7, 1]),
                wide("branch7x7dbl_3", inner, [1, 7]),
                wide("branch7x7dbl_4", inner, [7, 1]),
                wide("branch7x7dbl_5", 192, [1, 7]),
            ],
        )
        .branch(at, Before::Average, &[conv("branch_pool", 192, 1)])
}

/// Creates the Inception block that halves maps from 17 × 17 to 8 × 8.
fn halving_again(at: &mut Scope<'_>, block: InceptionBlock) -> InceptionBlock {
    let down = |name, to| conv(name, to, 3).stride(2).pad(0);
    block
        .branch(at, Before::Nothing, &[conv("branch3x3_1", 192, 1), down("branch3x3_2", 320)])
        .branch(
            at,
            Before::Nothing,
            &[
                conv("branch7x7x3_1", 192, 1),
                wide("branch7x7x3_2", 192, [1, 7]),
                wide("branch7x7x3_3", 192, [7, 1]),
                down("branch7x7x3_4", 192),
            ],
        )
        .branch(at, Before::Halve(Windows::Inside), &[])
}

/// Creates an Inception block for 8 × 8 maps: figure 7, whose branches fork into 1 × 3 and 3 × 1.
fn forks(at: &mut Scope<'_>, block: InceptionBlock) -> InceptionBlock {
    block
        .branch(at, Before::Nothing, &[conv("branch1x1", 320, 1)])
        .forked(
            at,
            Before::Nothing,
            &[conv("branch3x3_1", 384, 1)],
            &[wide("branch3x3_2a", 384, [1, 3]), wide("branch3x3_2b", 384, [3, 1])],
        )
        .forked(
            at,
            Before::Nothing,
            &[conv("branch3x3dbl_1", 448, 1), conv("branch3x3dbl_2", 384, 3)],
            &[wide("branch3x3dbl_3a", 384, [1, 3]), wide("branch3x3dbl_3b", 384, [3, 1])],
        )
        .branch(at, Before::Average, &[conv("branch_pool", 192, 1)])
}
