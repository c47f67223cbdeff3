//! AlexNet as in "One weird trick" (Krizhevsky 2014), section 2, which is torchvision's: one column, without local
//! response normalisation.

use super::{Scale, Vision};
use crate::{
    Scope, Var,
    nn::{Conv2d, Dropout, Linear, Module},
};
use gradscale_core::ops::{Pool, PoolOp};

/// AlexNet: five convolutions, three max-poolings, average pooling to 6 × 6, three linear layers with dropout.
///
/// For small images the first kernel is 5 × 5 at stride 1, and the average pooling is to 3 × 3.
#[derive(Clone, Debug)]
pub struct AlexNet {
    convs: Vec<Conv2d>,
    linears: [Linear; 3],
    dropout: Dropout,
    windows: usize,
    last: usize,
}

impl AlexNet {
    /// Creates AlexNet with PyTorch's weight initialisation.
    pub fn new(scope: &mut Scope<'_>, inputs: usize, scale: Scale, classes: usize) -> Self {
        let mut layer = |index: usize, from: usize, to: usize, kernel: usize| {
            let mut at = scope.at(&format!("features.{index}"));
            Conv2d::new(&mut at, from, to, kernel).bias(&mut at)
        };
        let [first, second, third, last] = [64, 192, 384, 256].map(|channels| scale.scale_channels(channels));
        let stem =
            if scale.small { layer(0, inputs, first, 5) } else { layer(0, inputs, first, 11).stride(4).pad([2; 2]) };
        let convs = vec![
            stem,
            layer(3, first, second, 5),
            layer(6, second, third, 3),
            layer(8, third, last, 3),
            layer(10, last, last, 3),
        ];
        let windows = if scale.small { 3 } else { 6 };
        let hidden = scale.scale_channels(4096);
        let mut linear = |index: usize, from, to| Linear::new(&mut scope.at(&format!("classifier.{index}")), from, to);
        let linears =
            [linear(1, windows * windows * last, hidden), linear(4, hidden, hidden), linear(6, hidden, classes)];
        Self { convs, linears, dropout: scale.drops(0.5), windows, last }
    }
}

impl Module for AlexNet {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let mut x = x;
        for (i, conv) in self.convs.iter().enumerate() {
            x = conv.forward(x).relu();
            if [0, 1, 4].contains(&i) {
                x = x.pool("max_pool", |x| Pool::new(PoolOp::Max, x, [3; 2])?.stride([2; 2]));
            }
        }
        let windows = u32::try_from(self.windows).unwrap_or(u32::MAX);
        x = x.adaptive_average_pool([windows; 2]).flatten();
        let [first, second, third] = &self.linears;
        x = first.forward(self.dropout.forward(x)).relu();
        third.forward(second.forward(self.dropout.forward(x)).relu())
    }
}

impl Vision for AlexNet {
    fn flattened(&self) -> Vec<(&'static str, [usize; 3])> {
        vec![("classifier.1", [self.windows, self.windows, self.last])]
    }
}
