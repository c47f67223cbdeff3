//! How gradients are kept inside the range of half: no scale, one for all, one for each.

mod baselines;
mod gradient;
mod growth;
mod layers;
mod precision;
pub(crate) mod saved;
mod schedule;
mod setters;
mod text;

pub use baselines::{BASELINES, Baseline};
pub use layers::Layers;
pub(crate) use layers::is_of;
pub use text::{METHODS, MethodError};

use gradscale_core::{
    amp::{AmpPolicy, Full, Level, List, Precision},
    loss_scale::LossScale,
    ops::Op,
    site::SiteConfig,
    solve::{Amax, Authors, ConfigError, Paper},
};

/// Rule that gradient scaling decides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// From the histogram, in integers; between steps.
    Exact,
    /// From largest magnitudes alone, as FP8 libraries do: [`SiteConfig::amax`] has the numbers.
    Amax,
    /// The paper's Algorithm 1, its slips mended; at once.
    Paper(Paper),
    /// The scales that the authors' code decides on; at once. What is around a decision is this engine's.
    Authors(Authors),
}

impl Preset {
    /// Whether a site's own rows are all that decisions need. The paper's rules ask for operands of products too.
    #[must_use]
    pub const fn decides_from_rows(&self) -> bool {
        match self {
            Self::Exact | Self::Amax => true,
            Self::Paper(_) | Self::Authors(_) => false,
        }
    }
}

/// The cast sites of a layer that is called several times in a step, as recurrent cells and shared heads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedLayers {
    /// One site: its calls share an exponent and merge what they observe.
    #[default]
    Merged,
    /// A site for each call, so that gradients which shrink or grow along a long sequence are all served. The call
    /// nearest to the loss has the layer's own name, `cell.hh/dgrad`, the next one `cell.hh/dgrad@2`, and so on: how
    /// large a gradient is depends on the way that it has come, however long the sequence is.
    Each,
}

/// Gradient scaling: a rule, and how often it decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientScaling {
    /// The rule.
    pub preset: Preset,
    /// Interval, memory, outliers; threshold, window and room of the exact rule.
    pub site: SiteConfig,
    /// Whether calls of one layer share a site.
    pub shared: SharedLayers,
}

impl GradientScaling {
    /// The default: exact, every 10 steps.
    #[must_use]
    pub const fn exact() -> Self {
        Self { preset: Preset::Exact, site: SiteConfig::exact(), shared: SharedLayers::Merged }
    }

    /// Whether a batch that overflows at a site is repeated, so that every batch whose f32 gradients are finite is
    /// stepped. Other rules skip it.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.preset == Preset::Exact && self.site.repeats()
    }

    /// Per-tensor scales from largest magnitudes, decided in every step: what FP8 libraries do. A batch that overflows is
    /// skipped, as theirs would be.
    #[must_use]
    pub const fn amax(amax: Amax) -> Self {
        Self { preset: Preset::Amax, site: SiteConfig::amax(amax), shared: SharedLayers::Merged }
    }

    /// The paper's rule with its threshold, every 100 steps.
    ///
    /// # Errors
    /// A threshold outside (0, 1).
    pub fn paper(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self { preset: Preset::Paper(Paper::new(gamma)?), site: SiteConfig::paper(), shared: SharedLayers::Merged })
    }

    /// The authors' decision, every 100 steps.
    ///
    /// # Errors
    /// A threshold outside (0, 1).
    pub fn authors(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self {
            preset: Preset::Authors(Authors::new(gamma)?),
            site: SiteConfig::paper(),
            shared: SharedLayers::Merged,
        })
    }
}

/// Who writes the exponents.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// One number for all, by a schedule ([`LossScale::None`]: 2^0).
    Loss(LossScale),
    /// Every site its own.
    Gradient(GradientScaling),
}

/// Precision and scaling together: as text, or with setters for all that the text can say.
///
/// ```
/// use gradscale::Method;
/// assert_eq!("gs".parse::<Method>()?, "gs:exact,gamma=1e-3,interval=10,room=6,history=ring".parse()?);
/// assert_eq!("dynamic:init=1024,interval=500".parse::<Method>()?.to_string(), "dynamic:init=2^10,interval=500");
/// let error = "fixed:100".parse::<Method>().unwrap_err();
/// assert_eq!(error.to_string(), "method fixed:100: a loss scale must be a power of two from 2^-126 to 2^126, not 100");
///
/// use gradscale::{GradientScaling, core::amp::{Level, Precision}};
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
    /// Which operators run in half.
    pub amp: AmpPolicy,
    /// Layers that run in another precision than the policy says.
    pub layers: Layers,
    /// How gradients are scaled.
    pub scaling: Scaling,
    /// What the gradient of a weight that was read in half is stored as before it reaches f32. Only under a loss scale
    /// can it be half, as it is in PyTorch: then it is a cast site, `LAYER/wgrad` or `LAYER/bgrad`, at which values
    /// flush and overflow like others. Gradients of several calls and micro-batches add in f32 all the same.
    pub weight_gradients: Precision,
}

impl Method {
    const fn at_level(level: Level, scaling: Scaling) -> Self {
        Self { amp: AmpPolicy::new(level), layers: Layers::none(), scaling, weight_gradients: Precision::Single }
    }

    /// All in f32: the baseline.
    #[must_use]
    pub const fn fp32() -> Self {
        Self::at_level(Level::O0, Scaling::Loss(LossScale::None))
    }

    /// Mixed precision (O1) with gradient scaling by the exact rule: what you want.
    #[must_use]
    pub const fn mixed() -> Self {
        Self::at_level(Level::O1, Scaling::Gradient(GradientScaling::exact()))
    }

    /// Mixed precision (O1) with a loss scale.
    #[must_use]
    pub const fn loss_scale(schedule: LossScale) -> Self {
        Self::at_level(Level::O1, Scaling::Loss(schedule))
    }

    /// Mixed precision (O1) with a scale for each gradient.
    #[must_use]
    pub const fn gradient_scaling(scaling: GradientScaling) -> Self {
        Self::at_level(Level::O1, Scaling::Gradient(scaling))
    }
}

/// A policy with an operator on a list; where it usually is on that, it is no exception.
fn listed(amp: &AmpPolicy, op: Op, list: List) -> Result<AmpPolicy, Full> {
    let new = exceptions(amp).filter(|(other, _)| *other != op).chain(Some((op, list)));
    let mut policy = AmpPolicy::new(amp.level());
    new.filter(|&(op, list)| list != op.list()).try_for_each(|(op, list)| policy.set(op, list))?;
    Ok(policy)
}

/// The operators that a policy has on another list than they usually are on.
fn exceptions(amp: &AmpPolicy) -> impl Iterator<Item = (Op, List)> {
    Op::ALL.iter().map(|&op| (op, amp.list(op))).filter(|&(op, list)| list != op.list())
}

impl Default for Method {
    fn default() -> Self {
        Self::mixed()
    }
}
