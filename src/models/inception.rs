//! Building blocks of Inception networks: parallel branches whose channels are concatenated.

use super::Scale;
use crate::{
    Init, Scope, Var,
    nn::{BatchNorm, Conv2d, Module},
};
use gradscale_core::ops::{Pool, PoolOp};

/// ε of all batch norms, as in torchvision and TensorFlow.
const EPS: f32 = 1e-3;

/// Unit of an Inception network: convolution without bias, batch norm, and ReLU, named `conv` and `bn`.
#[derive(Clone, Debug)]
pub(super) struct Unit {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Unit {
    /// Creates an Inception unit. `plan` has the paper's number of output channels, `from` is this network's number of
    /// input channels.
    pub fn new(scope: &mut Scope<'_>, scale: Scale, from: usize, plan: Conv) -> Self {
        let (mut at, to) = (scope.at(plan.name), scale.scale_channels(plan.to));
        let conv = Conv2d::rectangular(&mut at.at("conv"), from, to, plan.kernel, Init::HeNormal);
        let conv = conv.stride(plan.stride).pad(plan.pad);
        Self { conv, norm: BatchNorm::new(&mut at.at("bn"), to).eps(EPS) }
    }
}

impl Module for Unit {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.norm.forward(self.conv.forward(x)).relu()
    }
}

/// Plan of an Inception unit: name, channels, kernel, stride and padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conv {
    name: &'static str,
    to: usize,
    kernel: [usize; 2],
    stride: u32,
    pad: [u32; 2],
}

/// Plans an Inception unit that keeps height and width; `kernel` is odd.
pub(super) const fn conv(name: &'static str, to: usize, kernel: usize) -> Conv {
    wide(name, to, [kernel; 2])
}

/// Plans an Inception unit with a rectangular kernel, which keeps height and width.
#[expect(clippy::cast_possible_truncation, reason = "sizes of kernels")]
pub(super) const fn wide(name: &'static str, to: usize, kernel: [usize; 2]) -> Conv {
    Conv { name, to, kernel, stride: 1, pad: [(kernel[0] / 2) as u32, (kernel[1] / 2) as u32] }
}

impl Conv {
    pub const fn stride(self, stride: u32) -> Self {
        Self { stride, ..self }
    }

    pub const fn pad(self, pad: u32) -> Self {
        Self { pad: [pad; 2], ..self }
    }
}

/// Choice of the windows of a 3 × 3 max-pooling at stride 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// Only windows that are completely inside the image.
    Inside,
    /// Windows inside the image, and the incomplete one at the end.
    Ceil,
    /// Windows inside the image with one pixel of padding on each side.
    Padded,
}

/// Applies 3 × 3 max-pooling at stride 2, which halves height and width.
pub(super) fn halve(x: Var<'_>, windows: Windows) -> Var<'_> {
    x.pool("max_pool", |x| {
        let pad = if windows == Windows::Padded { 1 } else { 0 };
        let pool = Pool::padded(PoolOp::Max, x, [3; 2], [pad; 2])?.stride([2; 2])?;
        if windows == Windows::Ceil { pool.ceil() } else { Ok(pool) }
    })
}

/// Operation of an Inception branch before its first unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Before {
    Nothing,
    /// Average pooling over 3 × 3 pixels, which counts the padding.
    Average,
    /// Max-pooling over 3 × 3 pixels at stride 1.
    Max,
    /// Max-pooling at stride 2, which halves the maps: [`halve`].
    Halve(Windows),
}

#[derive(Clone, Debug)]
struct Branch {
    before: Before,
    units: Vec<Unit>,
    /// Parallel units at the end of the branch, whose channels are concatenated.
    fork: Vec<Unit>,
}

/// Inception block: parallel branches whose channels are concatenated.
#[derive(Clone, Debug)]
pub(super) struct InceptionBlock {
    branches: Vec<Branch>,
    from: usize,
    to: usize,
    scale: Scale,
}

impl InceptionBlock {
    /// Creates an Inception block without branches, for `from` input channels.
    pub const fn new(scale: Scale, from: usize) -> Self {
        Self { branches: Vec::new(), from, to: 0, scale }
    }

    /// Returns the number of output channels of the Inception block.
    pub const fn channels(&self) -> usize {
        self.to
    }

    /// Adds a branch to the Inception block: an operation, then units one after the other.
    pub fn branch(self, scope: &mut Scope<'_>, before: Before, units: &[Conv]) -> Self {
        self.forked(scope, before, units, &[])
    }

    /// Adds a branch to the Inception block that ends in several parallel units.
    pub fn forked(mut self, scope: &mut Scope<'_>, before: Before, units: &[Conv], fork: &[Conv]) -> Self {
        let (scale, mut from) = (self.scale, self.from);
        let mut all = Vec::new();
        for plan in units {
            all.push(Unit::new(scope, scale, from, *plan));
            from = scale.scale_channels(plan.to);
        }
        let ends: Vec<Unit> = fork.iter().map(|plan| Unit::new(scope, scale, from, *plan)).collect();
        self.to += if fork.is_empty() { from } else { fork.iter().map(|plan| scale.scale_channels(plan.to)).sum() };
        self.branches.push(Branch { before, units: all, fork: ends });
        self
    }
}

impl Module for InceptionBlock {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let parts: Vec<Var<'t>> = self.branches.iter().flat_map(|branch| branch.parts(x)).collect();
        parts.split_first().map_or(x, |(first, others)| first.concat(others, 3))
    }
}

impl Branch {
    fn parts<'t>(&self, x: Var<'t>) -> Vec<Var<'t>> {
        let pool = |op, x| Pool::padded(op, x, [3; 2], [1; 2])?.stride([1; 2]);
        let x = match self.before {
            Before::Nothing => x,
            Before::Average => x.pool("average_pool", |x| pool(PoolOp::Average, x)),
            Before::Max => x.pool("max_pool", |x| pool(PoolOp::Max, x)),
            Before::Halve(windows) => halve(x, windows),
        };
        let x = self.units.forward(x);
        if self.fork.is_empty() { vec![x] } else { self.fork.iter().map(|unit| unit.forward(x)).collect() }
    }
}
