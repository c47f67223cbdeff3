//! Update rules for which devices have a kernel.

/// Settings of stochastic gradient descent: v ← momentum·v + g; w ← w − lr·v.
///
/// ```
/// use gradscale::optim::Sgd;
/// let plain = Sgd::new(0.1);
/// let heavy = Sgd { momentum: 0.9, nesterov: true, ..plain };
/// assert_eq!((heavy.lr, heavy.weight_decay), (0.1, 0.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// Learning rate of SGD, before the schedule's factor.
    pub lr: f64,
    /// Momentum coefficient of SGD, in [0, 1).
    pub momentum: f32,
    /// True if SGD uses Nesterov momentum: w ← w − lr·(g + momentum·v).
    pub nesterov: bool,
    /// Weight decay of SGD, added to the gradient.
    pub weight_decay: f32,
}

impl Sgd {
    /// Creates SGD without momentum or weight decay.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

impl Default for Sgd {
    /// Returns SGD with a learning rate of 0.001, as in PyTorch.
    fn default() -> Self {
        Self::new(1e-3)
    }
}

/// Settings of Adam (Kingma and Ba 2015): m ← β₁m + (1 − β₁)g; v ← β₂v + (1 − β₂)g²; w ← w − lr·m̂/(√v̂ + eps).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Learning rate of Adam, before the schedule's factor.
    pub lr: f64,
    /// Decay rates β₁ and β₂ of Adam's two moments, in [0, 1).
    pub betas: [f32; 2],
    /// Constant ε in Adam's denominator, at least 10^-17. On devices that flush f32 subnormals v becomes 0, and with a
    /// smaller ε the update would explode.
    pub eps: f32,
    /// Weight decay of Adam, added to the gradient.
    pub weight_decay: f32,
}

impl Adam {
    /// Creates Adam with β 0.9 and 0.999, eps 1e-8, without weight decay.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0 }
    }
}

impl Default for Adam {
    /// Returns Adam with a learning rate of 0.001, as in PyTorch.
    fn default() -> Self {
        Self::new(1e-3)
    }
}

/// Settings of AdamW, [`Adam`] with decoupled weight decay: w ← w − lr·decay·w before the update (Loshchilov and Hutter
/// 2019).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of AdamW, before the schedule's factor.
    pub lr: f64,
    /// Decay rates β₁ and β₂ of AdamW's two moments, in [0, 1).
    pub betas: [f32; 2],
    /// Constant ε in AdamW's denominator, at least 10^-17, see [`Adam`].
    pub eps: f32,
    /// Weight decay of AdamW, which acts on the weights.
    pub weight_decay: f32,
}

impl AdamW {
    /// Creates AdamW with β 0.9 and 0.999, eps 1e-8, weight decay 0.01.
    #[must_use]
    pub const fn new(lr: f64) -> Self {
        Self { lr, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01 }
    }
}

impl Default for AdamW {
    /// Returns AdamW with a learning rate of 0.001, as in PyTorch.
    fn default() -> Self {
        Self::new(1e-3)
    }
}
