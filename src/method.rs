//! How gradients are kept inside the range of half: no scale, one for all, one for each.

use gradscale_core::{
    amp::{AmpPolicy, Level},
    loss_scale::{Bounds, Chainer, Dynamic, LogMax, LossScale, ScheduleError},
    site::{Memory, SiteConfig},
    solve::{Authors, ConfigError, Paper},
};
use std::{fmt, str::FromStr};

/// Rule that gradient scaling decides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Preset {
    /// From the histogram, in integers; between steps.
    Exact,
    /// The paper's Algorithm 1, its slips mended; at once.
    Paper(Paper),
    /// The scales that the authors' code decides on; at once. What is around a decision is this engine's.
    Authors(Authors),
}

/// Gradient scaling: a rule, and how often it decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientScaling {
    /// The rule.
    pub preset: Preset,
    /// Interval, memory, outliers; threshold, window and room of the exact rule.
    pub site: SiteConfig,
}

impl GradientScaling {
    /// The default: exact, every 10 steps.
    #[must_use]
    pub const fn exact() -> Self {
        Self { preset: Preset::Exact, site: SiteConfig::exact() }
    }

    /// Whether a batch that overflows at a site is repeated, so that every batch whose f32 gradients are finite is
    /// stepped. Other rules skip it.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.preset == Preset::Exact && self.site.repeats()
    }

    /// The rule in words that never change their meaning, for checkpoints. Rules that there were before one could
    /// repeat have the words of that time.
    pub(crate) fn saved(&self) -> String {
        let Self { preset, site: SiteConfig { interval, when, calls, memory, outliers, exact } } = self;
        let memory = match memory {
            Memory::None => "amax_history: false".to_owned(),
            Memory::Least => "amax_history: true".to_owned(),
            Memory::Ring => format!("memory: Ring, outliers: {outliers:?}"),
        };
        format!(
            "GradientScaling {{ preset: {preset:?}, site: SiteConfig {{ interval: {interval}, when: {when:?}, \
             calls: {calls:?}, {memory}, exact: {exact:?} }} }}"
        )
    }

    /// The options by which a rule that was saved differs from this one in what it remembers, if that is all.
    pub(crate) fn other_memory(&self, saved: &str) -> Option<&'static str> {
        let with = |memory: Memory| Self { site: SiteConfig { memory, outliers: None, ..self.site }, ..*self };
        let all = [(Memory::None, "history=0"), (Memory::Least, "history=least"), (Memory::Ring, "history=ring")];
        all.into_iter().find(|&(memory, _)| with(memory).saved() == saved).map(|(_, options)| options)
    }

    /// The paper's rule with its threshold, every 100 steps.
    ///
    /// # Errors
    /// A threshold outside (0, 1).
    pub fn paper(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self { preset: Preset::Paper(Paper::new(gamma)?), site: SiteConfig::paper() })
    }

    /// The authors' decision, every 100 steps.
    ///
    /// # Errors
    /// A threshold outside (0, 1).
    pub fn authors(gamma: f64) -> Result<Self, ConfigError> {
        Ok(Self { preset: Preset::Authors(Authors::new(gamma)?), site: SiteConfig::paper() })
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

/// Precision and scaling together.
///
/// ```
/// use gradscale::Method;
/// assert_eq!("gs".parse::<Method>()?, "gs:exact,gamma=1e-3,interval=10,room=6,history=ring".parse()?);
/// let error = "fixed:100".parse::<Method>().unwrap_err();
/// assert_eq!(error.to_string(), "method fixed:100: a loss scale must be a power of two from 2^-126 to 2^126, not 100");
/// # Ok::<(), gradscale::MethodError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// Which operators run in half.
    pub amp: AmpPolicy,
    /// How gradients are scaled.
    pub scaling: Scaling,
}

impl Method {
    /// All in f32: the baseline.
    #[must_use]
    pub const fn fp32() -> Self {
        Self { amp: AmpPolicy::new(Level::O0), scaling: Scaling::Loss(LossScale::None) }
    }

    /// Mixed precision (O1) with gradient scaling by the exact rule: what you want.
    #[must_use]
    pub const fn mixed() -> Self {
        Self { amp: AmpPolicy::new(Level::O1), scaling: Scaling::Gradient(GradientScaling::exact()) }
    }

    /// Mixed precision (O1) with a loss scale.
    #[must_use]
    pub const fn loss_scale(schedule: LossScale) -> Self {
        Self { amp: AmpPolicy::new(Level::O1), scaling: Scaling::Loss(schedule) }
    }

    /// The same scaling under another policy.
    #[must_use]
    pub fn with_amp(self, amp: AmpPolicy) -> Self {
        Self { amp, ..self }
    }
}

impl Default for Method {
    fn default() -> Self {
        Self::mixed()
    }
}

/// Why a text names no method.
#[derive(Clone, PartialEq)]
pub struct MethodError {
    text: String,
    cause: String,
}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "method {}: {}", self.text, self.cause)
    }
}

/// The sentence of [`fmt::Display`].
impl fmt::Debug for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MethodError {}

/// Methods as people write them.
pub const METHODS: &str = "fp32, fp16, fixed:SCALE, dynamic, dynamic:INTERVAL, logmax, gs[:exact|paper|paper-literal|authors][,OPTION=VALUE …]";

impl FromStr for Method {
    type Err = MethodError;

    /// `fp32`, `fp16`, `fixed:128`, `dynamic` (×2 after 2000 clean steps), `dynamic:10` (the paper's baseline, which
    /// grows by 2^(1/10) each step), `logmax`, `gs`, `gs:paper` …; options of `gs`: `gamma`, `interval`, and for the
    /// exact rule `window`, `room`, `history`, `outliers`.
    ///
    /// `history=ring`, the default, remembers the last 16 rows of each site and repeats a batch that does not fit;
    /// `room` is then the most room. `history=0` decides from each row alone and skips such a batch
    /// (`gs:exact,room=6,history=0` was the default before); `history=least`, or 1, also looks back 16 steps for the
    /// largest value. `outliers=24` skips batches, finite as they are, that lie more than 24 exponents above the last.
    fn from_str(text: &str) -> Result<Self, MethodError> {
        parse(text.trim()).map_err(|cause| MethodError { text: text.trim().to_owned(), cause })
    }
}

fn parse(text: &str) -> Result<Method, String> {
    let (name, rest) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
    let schedule = |error: ScheduleError| error.to_string();
    let loss = |schedule: LossScale| Ok(Method::loss_scale(schedule));
    match (name, rest) {
        ("fp32", None) => Ok(Method::fp32()),
        ("fp16", None) => loss(LossScale::None),
        ("fixed", Some(scale)) => loss(LossScale::fixed(number(scale)?).map_err(schedule)?),
        ("dynamic", None) => loss(LossScale::Dynamic(Dynamic::default())),
        ("dynamic", Some(interval)) => {
            let chainer = Chainer::new(number(interval)?, Bounds::default()).map_err(schedule)?;
            loss(LossScale::Chainer(chainer))
        }
        ("logmax", None) => {
            let log_max = LogMax::new(gradscale_core::loss_scale::LogMaxConfig::default()).map_err(schedule)?;
            loss(LossScale::LogMax(log_max))
        }
        _ if name == "gs" || name.starts_with("gs,") => {
            let options = text[2..].trim_start_matches([':', ',']);
            gradient(options).map(|scaling| Method { scaling: Scaling::Gradient(scaling), ..Method::mixed() })
        }
        ("fixed", None) => Err("say which scale: fixed:128".to_owned()),
        _ => Err(format!("unknown; there are {METHODS}")),
    }
}

fn gradient(options: &str) -> Result<GradientScaling, String> {
    let mut parts = options.split(',').map(str::trim).filter(|part| !part.is_empty()).peekable();
    let preset = parts.next_if(|part| !part.contains('=')).unwrap_or("exact");
    let (mut gamma, mut settings) = (1e-3, Vec::new());
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("{part} is no option=value"))?;
        if key == "gamma" { gamma = number(value)? } else { settings.push((key, value)) }
    }
    let rule = |error: ConfigError| error.to_string();
    let mut scaling = match preset {
        "exact" => {
            let mut scaling = GradientScaling::exact();
            scaling.site.exact = scaling.site.exact.with_gamma(gamma).map_err(rule)?;
            scaling
        }
        "paper" => GradientScaling::paper(gamma).map_err(rule)?,
        "paper-literal" => {
            let preset = Preset::Paper(Paper::new(gamma).map_err(rule)?.literal());
            GradientScaling { preset, site: SiteConfig::paper() }
        }
        "authors" => GradientScaling::authors(gamma).map_err(rule)?,
        other => return Err(format!("{other} is no preset; there are exact, paper, paper-literal, authors")),
    };
    for (key, value) in settings {
        let site = &mut scaling.site;
        match (key, preset) {
            ("interval", _) => match number(value)? {
                0 => return Err(ConfigError::Interval.to_string()),
                interval => site.interval = interval,
            },
            ("window", "exact") => site.exact = site.exact.with_window(number(value)?).map_err(rule)?,
            ("room", "exact") => site.exact = site.exact.with_room(number(value)?).map_err(rule)?,
            ("history", "exact") => {
                site.memory = match value {
                    "0" => Memory::None,
                    "least" | "1" => Memory::Least,
                    "ring" => Memory::Ring,
                    _ => return Err(format!("history is ring, least or 0, not {value}")),
                }
            }
            ("outliers", "exact") => match number(value)? {
                bits if (8..=100).contains(&bits) => site.outliers = Some(bits),
                bits => return Err(ConfigError::Outliers(bits).to_string()),
            },
            _ => return Err(format!("{preset} has no option {key}")),
        }
    }
    if scaling.site.outliers.is_some() && scaling.site.memory != Memory::Ring {
        return Err("outliers are told by history=ring".to_owned());
    }
    Ok(scaling)
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{text} is not a number that fits here"))
}
