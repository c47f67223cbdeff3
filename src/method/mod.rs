//! Methods that keep gradients inside the range of half precision: no scale, one loss scale, or one scale for each
//! gradient.

mod baselines;
mod block;
mod formats;
mod gradient;
mod growth;
mod layers;
mod options;
mod precision;
pub(crate) mod saved;
mod schedule;
mod setters;
mod text;

pub use baselines::{BASELINES, Baseline};
pub use block::BlockScaling;
pub use formats::{Products, StoreFormats};
pub use layers::Layers;
pub(crate) use layers::is_of;
pub use text::{METHODS, MethodError};

use gradscale_core::{
    amp::{AmpPolicy, Full, Level, List, Precision},
    loss_scale::LossScale,
    ops::Op,
    site::SiteConfig,
    solve::{Amax, Authors, ConfigError, Exact, Paper},
    store_format::StoreFormat,
};

/// Rule of gradient scaling: how a site's exponent is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// Exact rule: decides from the histogram, with integers, between steps.
    Exact,
    /// Amax rule: decides from largest magnitudes alone, like FP8 libraries: [`SiteConfig::amax`] has the settings.
    Amax,
    /// Paper's rule: decides by Algorithm 1 with its errors corrected, inside the step.
    Paper(Paper),
    /// Authors' rule: decides like the authors' code, inside the step. Everything around the decision is this engine's.
    Authors(Authors),
}

impl Preset {
    /// Returns true if decisions need only a site's own rows. The paper's rules also need statistics of the operands of
    /// products.
    #[must_use]
    pub const fn decides_from_rows(&self) -> bool {
        match self {
            Self::Exact | Self::Amax => true,
            Self::Paper(_) | Self::Authors(_) => false,
        }
    }
}

/// Treatment of a layer that is called several times in a step, for example a recurrent cell or a shared head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedLayers {
    /// One site for all calls of the layer: they share an exponent, and their statistics are merged.
    #[default]
    Merged,
    /// One site for each call of the layer, so that gradients which shrink or grow along a long sequence each have a
    /// suitable exponent. The call nearest to the loss has the layer's own name, `cell.hh/dgrad`, the next one
    /// `cell.hh/dgrad@2`, and so on. Calls are numbered from the loss, because the magnitude of a gradient depends on
    /// its distance from the loss and not on the length of the sequence.
    Each,
}

/// Exponents of forward stores (`forward=`): the treatment of activations that half cannot represent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardScaling {
    /// Forward stores have no exponents (`forward=off`). A batch whose activations overflow is skipped.
    Off,
    /// Forward stores have exponents from the first batch on that overflows in its forward pass (`forward=repeat`). That
    /// batch is repeated. Exponents are at most 0, so that only activations near the limit change.
    #[default]
    Repeat,
    /// Forward stores have exponents from the first step on, which also scale small activations up (`forward=on`).
    On,
}

/// Settings of gradient scaling: a rule and its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientScaling {
    /// Rule that decides the exponents of the sites.
    pub preset: Preset,
    /// Settings of the sites: interval, history and outliers; threshold, window and headroom of the exact rule. Its format is
    /// not used: [`GradientScaling::site_in`] returns the settings of a site with its format.
    pub site: SiteConfig,
    /// Formats of stores, FP16 by default. [`Preset::Exact`] and [`Preset::Amax`] have others; those of activations and
    /// weights need [`ForwardScaling::On`].
    pub formats: StoreFormats,
    /// Units of products whose operands both have 8 bits.
    pub products: Products,
    /// Treatment of a layer that is called several times in a step.
    pub shared: SharedLayers,
    /// Exponents of forward stores: [`ForwardScaling::Repeat`] by default under a rule that repeats
    /// ([`GradientScaling::repeats`]). Under [`Preset::Amax`] it is [`ForwardScaling::On`] for activations or weights in
    /// another format than FP16. Other values than [`ForwardScaling::Off`] have no effect on other rules.
    pub forward: ForwardScaling,
}

impl GradientScaling {
    /// Creates the default gradient scaling: the exact rule, every 10 steps.
    #[must_use]
    pub const fn exact() -> Self {
        let (preset, shared) = (Preset::Exact, SharedLayers::Merged);
        let formats = StoreFormats::uniform(StoreFormat::Fp16);
        let products = Products::Half;
        Self { preset, site: SiteConfig::exact(), formats, products, shared, forward: ForwardScaling::Repeat }
    }

    /// Returns the settings of a site that stores in a format. The window is that of the format, unless the method has
    /// another one than the default.
    ///
    /// ```
    /// use gradscale::{GradientScaling, gradscale_core::store_format::StoreFormat};
    /// let site = GradientScaling::exact().site_in(StoreFormat::E4m3);
    /// assert_eq!((site.format, site.exact.window()), (StoreFormat::E4m3, 4));
    /// ```
    #[must_use]
    pub fn site_in(&self, format: StoreFormat) -> SiteConfig {
        let site = self.site.with_format(format);
        let is_default = self.site.exact.window() == Exact::FP16.window();
        if is_default { site } else { SiteConfig { exact: self.site.exact, ..site } }
    }

    /// Returns true if values of the forward pass can have exponents from the first step on.
    fn can_scale_forward(&self) -> bool {
        self.repeats() || self.preset == Preset::Amax
    }

    /// Returns true if a batch that overflows at a site is repeated, so that every batch with finite f32 gradients is
    /// applied. Other rules skip it.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.preset == Preset::Exact && self.site.repeats()
    }

    /// Creates per-tensor scaling from largest magnitudes, decided in every step, as in FP8 libraries. A batch that
    /// overflows is skipped, as it would be there.
    #[must_use]
    pub const fn amax(amax: Amax) -> Self {
        Self::without_forward(Preset::Amax, SiteConfig::amax(amax))
    }

    /// Creates gradient scaling by the paper's rule with a flush threshold, every 100 steps.
    ///
    /// # Errors
    /// A threshold outside (0, 1).
    pub fn paper(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self::without_forward(Preset::Paper(Paper::new(gamma)?), SiteConfig::paper()))
    }

    /// Creates gradient scaling by the rule of the authors' code, every 100 steps.
    ///
    /// # Errors
    /// A threshold outside (0, 1).
    pub fn authors(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self::without_forward(Preset::Authors(Authors::new(gamma)?), SiteConfig::paper()))
    }

    /// Creates gradient scaling whose forward stores have no exponents.
    const fn without_forward(preset: Preset, site: SiteConfig) -> Self {
        let formats = StoreFormats::uniform(StoreFormat::Fp16);
        let (products, shared) = (Products::Half, SharedLayers::Merged);
        Self { preset, site, formats, products, shared, forward: ForwardScaling::Off }
    }
}

/// Scaling of gradients: one loss scale, one exponent for each cast site, or one for each block of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Loss scaling: one exponent for all gradients, from a schedule ([`LossScale::None`]: 2^0).
    Loss(LossScale),
    /// Gradient scaling: one exponent for each cast site.
    Gradient(GradientScaling),
    /// Block scaling: one exponent for each block of consecutive values, in every store.
    Blocks(BlockScaling),
}

/// Method: precision and scaling of a training. It is parsed from a text, or created with setters for everything that
/// the text can express.
///
/// ```
/// use gradscale::Method;
/// assert_eq!("gs".parse::<Method>()?, "gs:exact,gamma=1e-3,interval=10,room=6,history=ring".parse()?);
/// assert_eq!("dynamic:init=1024,interval=500".parse::<Method>()?.to_string(), "dynamic:init=2^10,interval=500");
/// let error = "fixed:100".parse::<Method>().unwrap_err();
/// assert_eq!(error.to_string(), "method fixed:100: a loss scale must be a power of two from 2^-126 to 2^126, not 100");
///
/// use gradscale::{GradientScaling, gradscale_core::amp::{Level, Precision}};
/// let method = Method::gradient_scaling(GradientScaling::exact().with_gamma(1e-4)?.with_interval(5)?)
///     .with_level(Level::O2)
///     .with_layer("net.encoder", Precision::Single);
/// assert_eq!(method.to_string(), "gs:gamma=0.0001,interval=5,amp=O2,f32=net.encoder");
/// assert_eq!(method.to_string().parse(), Ok(method));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[doc(alias = "GradScaler")]
#[doc(alias = "autocast")]
#[doc(alias = "amp")]
pub struct Method {
    /// Autocast policy, which determines the operators that run in half.
    pub amp: AmpPolicy,
    /// Layers that run in another precision than that of the policy.
    pub layers: Layers,
    /// Loss scale or gradient scaling of the method.
    pub scaling: Scaling,
    /// Storage type of the gradient of a weight that was read in half, before it is converted to f32. Only under a loss
    /// scale can it be half, as in PyTorch. Then it is a cast site, `LAYER/wgrad` or `LAYER/bgrad`, at which values can
    /// flush and overflow. Gradients of several calls and micro-batches are accumulated in f32 in any case.
    pub weight_gradients: Precision,
}

impl Method {
    const fn at_level(level: Level, scaling: Scaling) -> Self {
        Self { amp: AmpPolicy::new(level), layers: Layers::none(), scaling, weight_gradients: Precision::Single }
    }

    /// Creates the baseline method: training in f32 without scaling.
    #[must_use]
    pub const fn fp32() -> Self {
        Self::at_level(Level::O0, Scaling::Loss(LossScale::None))
    }

    /// Creates mixed precision (O1) with gradient scaling by the exact rule: the recommended method.
    #[must_use]
    pub const fn mixed() -> Self {
        Self::at_level(Level::O1, Scaling::Gradient(GradientScaling::exact()))
    }

    /// Creates mixed precision (O1) with a loss-scale schedule.
    #[must_use]
    pub const fn loss_scale(schedule: LossScale) -> Self {
        Self::at_level(Level::O1, Scaling::Loss(schedule))
    }

    /// Creates mixed precision (O1) with gradient scaling: one exponent for each cast site.
    #[must_use]
    pub const fn gradient_scaling(scaling: GradientScaling) -> Self {
        Self::at_level(Level::O1, Scaling::Gradient(scaling))
    }

    /// Creates mixed precision (O1) in 8-bit formats with one exponent for each block of values, for comparison.
    #[must_use]
    pub const fn block_scaling(scaling: BlockScaling) -> Self {
        Self::at_level(Level::O1, Scaling::Blocks(scaling))
    }
}

/// Moves an operator of a policy to a list; on its default list it is not an exception.
fn listed(amp: &AmpPolicy, op: Op, list: List) -> Result<AmpPolicy, Full> {
    let new = exceptions(amp).filter(|(other, _)| *other != op).chain(Some((op, list)));
    let mut policy = AmpPolicy::new(amp.level());
    new.filter(|&(op, list)| list != op.list()).try_for_each(|(op, list)| policy.set(op, list))?;
    Ok(policy)
}

/// Returns the operators that a policy has on another list than the default.
fn exceptions(amp: &AmpPolicy) -> impl Iterator<Item = (Op, List)> {
    Op::ALL.iter().map(|&op| (op, amp.list(op))).filter(|&(op, list)| list != op.list())
}

impl Default for Method {
    fn default() -> Self {
        Self::mixed()
    }
}
