//! Normalisations.

use super::Module;
use crate::{Init, Parameter, Scope, Var};
use gradscale_core::ops::{Norm, NormOver, Op, Pool, PoolOp, Unary};

/// Name of a normalisation, with scale and shift of each channel.
#[derive(Clone, Debug)]
struct ScaleAndShift {
    name: String,
    scale: Parameter,
    shift: Parameter,
}

impl ScaleAndShift {
    /// Creates trained scales and shifts for `channels` channels: the scales as `scale` says, the shifts 0.
    fn trained(scope: &mut Scope<'_>, channels: usize, scale: Init) -> Self {
        Self {
            name: scope.path().to_owned(),
            scale: scope.weight("scale", [channels], scale),
            shift: scope.weight("shift", [channels], Init::Constant(0.0)),
        }
    }

    /// Creates scales of 1 and shifts of 0 that stay as they are.
    fn constant(scope: &mut Scope<'_>, channels: usize) -> Self {
        Self {
            name: scope.path().to_owned(),
            scale: scope.constant("scale", [channels], &vec![1.0; channels]),
            shift: scope.constant("shift", [channels], &vec![0.0; channels]),
        }
    }

    /// Returns scale and shift as values of the network that computes x.
    fn values<'t>(&self, x: Var<'t>) -> [Var<'t>; 2] {
        [&self.scale, &self.shift].map(|one| x.tape().parameter(one))
    }
}

/// Batch normalisation: mean and variance of each channel over the batch, or running statistics in evaluation. It
/// computes in f32 and stores in the type of its input.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{BatchNorm, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let norm = BatchNorm::new(&mut parameters.at("norm"), 1);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// // Mean 2 and unbiased variance 2 replace 0 and 1.
/// trainer.update_statistics(0.0, [Input::f32([2, 1], &[1.0, 3.0])], |[x]| norm.forward(x))?;
/// let y = trainer.evaluate([Input::f32([1, 1], &[4.0])], |[x]| norm.forward(x))?;
/// assert!((y.data[0] - 2f32.sqrt()).abs() < 1e-4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "BatchNorm2d")]
#[doc(alias = "SyncBatchNorm")]
pub struct BatchNorm {
    affine: ScaleAndShift,
    running: Parameter,
    eps: f32,
}

impl BatchNorm {
    /// Creates the batch normalisation with ε 1e-5 and scales of 1.
    pub fn new(scope: &mut Scope<'_>, channels: usize) -> Self {
        Self::with_init(scope, channels, Init::Constant(1.0))
    }

    /// Creates the batch normalisation with ε 1e-5 and another initialisation of the scales.
    pub fn with_init(scope: &mut Scope<'_>, channels: usize, scale: Init) -> Self {
        let affine = ScaleAndShift::trained(scope, channels, scale);
        Self { affine, running: scope.statistics("running", channels), eps: 1e-5 }
    }

    /// Sets ε of the batch normalisation, which is added to the variance.
    #[must_use]
    pub const fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl BatchNorm {
    /// Normalises sequences `[n, t, w, c]`, t frames of width w, with lengths, integers `[n]`. Mean and variance are
    /// computed over the frames before each end, of which there must be at least one. Values after an end, NaN too,
    /// have no influence and get no gradient; the result there is undefined.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn frames<'t>(&self, x: Var<'t>, lengths: Var<'t>) -> Var<'t> {
        x.norm_frames(&self.affine.name, self.eps, self.affine.values(x), &self.running, lengths)
    }
}

impl Module for BatchNorm {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let norm = |shape| Norm::new(shape, NormOver::Batch, self.eps);
        x.norm(&self.affine.name, Op::BatchNorm, norm, self.affine.values(x), Some(&self.running))
    }
}

/// Group normalisation over groups of channels of each image; one group is layer normalisation of the whole image.
/// Scale and shift are per channel.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{GroupNorm, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let norm = GroupNorm::new(&mut parameters.at("norm"), 4, 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([1, 4], &[1.0, 3.0, -2.0, 2.0])], |[x]| norm.forward(x))?;
/// assert!(y.data.iter().zip([-1.0, 1.0, -1.0, 1.0]).all(|(y, right)| (y - right).abs() < 1e-4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupNorm {
    affine: ScaleAndShift,
    groups: u32,
}

impl GroupNorm {
    /// Creates the group normalisation with ε 1e-5; `groups` must divide the channels.
    pub fn new(scope: &mut Scope<'_>, channels: usize, groups: u32) -> Self {
        Self { affine: ScaleAndShift::trained(scope, channels, Init::Constant(1.0)), groups }
    }
}

impl Module for GroupNorm {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let op = if self.groups == 1 { Op::LayerNorm } else { Op::GroupNorm };
        let norm = |shape| Norm::new(shape, NormOver::Group(self.groups), 1e-5);
        x.norm(&self.affine.name, op, norm, self.affine.values(x), None)
    }
}

/// Instance normalisation of each channel of each image to mean 0 and variance 1, then scale and shift of each channel.
/// It computes in f32 and stores in the type of its input. There are no running statistics, as by default in PyTorch's
/// `InstanceNorm2d`.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{InstanceNorm, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let norm = InstanceNorm::new(&mut parameters.at("norm"), 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([1, 1, 2, 2], &[1.0, 5.0, 3.0, -5.0])], |[x]| norm.forward(x))?;
/// assert!(y.data.iter().zip([-1.0, 1.0, 1.0, -1.0]).all(|(y, right)| (y - right).abs() < 1e-4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "InstanceNorm2d")]
pub struct InstanceNorm {
    affine: ScaleAndShift,
    eps: f32,
}

impl InstanceNorm {
    /// Creates the instance normalisation with ε 1e-5, scales of 1 and shifts of 0, which are trained.
    pub fn new(scope: &mut Scope<'_>, channels: usize) -> Self {
        Self { affine: ScaleAndShift::trained(scope, channels, Init::Constant(1.0)), eps: 1e-5 }
    }

    /// Creates the instance normalisation with ε 1e-5 without trained scale and shift: PyTorch's `affine=False`.
    pub fn without_affine(scope: &mut Scope<'_>, channels: usize) -> Self {
        Self { affine: ScaleAndShift::constant(scope, channels), eps: 1e-5 }
    }

    /// Sets ε of the instance normalisation, which is added to the variance.
    #[must_use]
    pub const fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl Module for InstanceNorm {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let norm = |shape: [u32; 4]| Norm::new(shape, NormOver::Group(shape[3]), self.eps);
        x.norm(&self.affine.name, Op::GroupNorm, norm, self.affine.values(x), None)
    }
}

/// Layer normalisation of each pixel or token over its channels, then scale and shift of each channel. It computes in
/// f32 and stores in the type of its input.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{LayerNorm, Module}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let norm = LayerNorm::new(&mut parameters.at("norm"), 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([2, 2], &[1.0, 3.0, 5.0, -5.0])], |[x]| norm.forward(x))?;
/// assert!(y.data.iter().zip([-1.0, 1.0, 1.0, -1.0]).all(|(y, right)| (y - right).abs() < 1e-4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayerNorm {
    affine: ScaleAndShift,
    eps: f32,
}

impl LayerNorm {
    /// Creates the layer normalisation with ε 1e-5 for `channels` channels.
    pub fn new(scope: &mut Scope<'_>, channels: usize) -> Self {
        Self { affine: ScaleAndShift::trained(scope, channels, Init::Constant(1.0)), eps: 1e-5 }
    }

    /// Sets ε of the layer normalisation, which is added to the variance.
    #[must_use]
    pub const fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl Module for LayerNorm {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        x.layer_norm(&self.affine.name, self.eps, self.affine.values(x))
    }
}

/// RMS normalisation of each pixel or token over its channels: division by the root of their mean square, times a scale
/// of each channel. It computes in f32 and stores in the type of its input.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Module, RmsNorm}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let norm = RmsNorm::new(&mut parameters.at("norm"), 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([1, 2], &[1.0, 7.0])], |[x]| norm.forward(x))?;
/// assert!(y.data.iter().zip([0.2, 1.4]).all(|(y, right)| (y - right).abs() < 1e-4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "RMSNorm")]
pub struct RmsNorm {
    name: String,
    scale: Parameter,
    eps: f32,
}

impl RmsNorm {
    /// Creates the RMS normalisation with ε 1e-5 for `channels` channels.
    pub fn new(scope: &mut Scope<'_>, channels: usize) -> Self {
        let scale = scope.weight("scale", [channels], Init::Constant(1.0));
        Self { name: scope.path().to_owned(), scale, eps: 1e-5 }
    }

    /// Sets ε of the RMS normalisation, which is added to the mean square.
    #[must_use]
    pub const fn eps(mut self, eps: f32) -> Self {
        self.eps = eps;
        self
    }
}

impl Module for RmsNorm {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        x.rms_norm(&self.name, self.eps, x.tape().parameter(&self.scale))
    }
}

/// Local response normalisation over neighbouring channels: `x / (k + α·mean of x² over n channels)^β`, in f32. It is
/// composed of other operators.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{LocalResponseNorm, Module}, optim::Sgd};
/// let norm = LocalResponseNorm { n: 1, alpha: 3.0, beta: 0.5, k: 1.0 };
/// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(1), Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([1, 2], &[1.0, 4.0])], |[x]| norm.forward(x))?;
/// assert!(y.data.iter().zip([0.5, 4.0 / 7.0]).all(|(y, right)| (y - right).abs() < 1e-6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm {
    /// Number of neighbouring channels over which the mean square is computed, odd.
    pub n: u32,
    /// Factor α of the mean square in the denominator.
    pub alpha: f32,
    /// Exponent β of the normalisation's denominator.
    pub beta: f32,
    /// Constant k in the normalisation's denominator.
    pub k: f32,
}

impl Default for LocalResponseNorm {
    fn default() -> Self {
        Self { n: 5, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }
}

impl Module for LocalResponseNorm {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [n, h, w, c] = x.shape().sizes();
        let square = x.square().reshape([n * h * w, 1, c, 1]);
        let pool = |shape| Pool::padded(PoolOp::Average, shape, [1, self.n], [0, self.n / 2])?.stride([1, 1]);
        let mean = square.pool("average_pool", pool).reshape([n, h, w, c]);
        let power = mean.unary(Unary::Affine { a: self.alpha, b: self.k }).pow(-self.beta);
        x * power
    }
}
