//! Configuration of a site: the time and the rule of its decisions.

use crate::{
    solve::{Amax, ConfigError, Exact},
    stats::Detail,
    store_format::StoreFormat,
};

/// Setting of a site: time at which the exponent of an update takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// Between steps: the row of one step decides for the next, without a wait inside a backward pass.
    Between,
    /// Inside the step, before the store: every update of the paper's rules.
    AtOnce,
}

/// Setting of a site: number of times that its operator runs in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calls {
    /// The site's operator runs once in a step.
    One,
    /// The operator runs several times in a step (for example a recurrent cell or a shared head). The calls share the
    /// exponent, and their rows merge. Such a site decides inside a step, from its first call, only in the first step
    /// or after a row that was not finite. After another skip it takes the exponent decided from its merged rows.
    Several,
}

/// Setting of a site: influence of earlier rows on a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// No influence: each row decides alone. This was the rule before batches could be repeated.
    None,
    /// Memory with a second limit: the lowest ceiling of the last 16 rows also applies, for heavy-tailed gradients.
    Least,
    /// History of ceilings of the last 16 rows. The exponent serves as many of them as FP16 can, and the headroom
    /// follows their spread. It requires that a batch is repeated if it overflows ([`super::Site::repeat`]). After a
    /// skip, a guard remembers longer than the history ([`super::Guard`]).
    Ring,
}

/// Configuration of a cast site: update interval, timing, memory and rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Number of optimizer steps from one update of the exponent to the next, at least 1.
    pub interval: u32,
    /// Time at which an update of the exponent takes effect.
    pub when: When,
    /// Number of times that the site's operator runs in one step.
    pub calls: Calls,
    /// Influence of earlier rows on a decision of the site.
    pub memory: Memory,
    /// Outlier limit: batches more than this number of exponents above the whole history are skipped, although they are
    /// finite; from 8 to 100. This departs from f32 training. Needs [`Memory::Ring`].
    pub outliers: Option<i32>,
    /// Default rule with its threshold, window and headroom. Under [`Memory::Ring`] its headroom is the maximum. Under
    /// [`When::AtOnce`] the caller supplies the decisions.
    pub exact: Exact,
    /// Rule that decides from largest magnitudes instead of `exact`, in every step. Needs [`Memory::None`] and
    /// [`When::Between`]; `interval` is not read. Batches that overflow are skipped, because Transformer Engine has no
    /// repeat either; see [`super::Site::finish`].
    pub amax: Option<Amax>,
    /// Format of the values that the site stores. Its rows must have the format's convention
    /// ([`StoreFormat::convention`]).
    pub format: StoreFormat,
}

impl SiteConfig {
    /// Returns the default configuration: `exact` for FP16, every 10 optimizer steps, between steps, with the ring as
    /// history.
    #[must_use]
    pub const fn exact() -> Self {
        Self { memory: Memory::Ring, ..Self::exact_alone() }
    }

    /// Returns `exact` without a history, which was the default before the ring existed.
    #[must_use]
    pub const fn exact_alone() -> Self {
        Self {
            interval: 10,
            when: When::Between,
            calls: Calls::One,
            memory: Memory::None,
            outliers: None,
            exact: Exact::FP16,
            amax: None,
            format: StoreFormat::Fp16,
        }
    }

    /// Returns the configuration for per-tensor scales from largest magnitudes, as in FP8 libraries.
    #[must_use]
    pub const fn amax(amax: Amax) -> Self {
        Self { interval: 1, amax: Some(amax), ..Self::exact_alone() }
    }

    /// Returns the configuration for the paper's rules: every 100 optimizer steps, inside the step (paper, §5.1).
    #[must_use]
    pub const fn paper() -> Self {
        Self { interval: 100, when: When::AtOnce, ..Self::exact_alone() }
    }

    /// Returns the same configuration for stores in another format, with the window of that format. Threshold and
    /// headroom stay.
    ///
    /// ```
    /// use gradscale_core::{site::SiteConfig, store_format::StoreFormat};
    /// let windows = StoreFormat::ALL.map(|format| SiteConfig::exact().with_format(format).exact.window());
    /// assert_eq!(windows, [11, 3, 4]);
    /// ```
    #[must_use]
    pub const fn with_format(self, format: StoreFormat) -> Self {
        Self { format, exact: self.exact.with_window_of(format.format()), ..self }
    }

    /// Checks that the settings of a site are valid together.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self.outliers {
            _ if self.interval == 0 => Err(ConfigError::Interval),
            _ if self.amax.is_some()
                && (self.memory, self.when, self.outliers) != (Memory::None, When::Between, None) =>
            {
                Err(ConfigError::Amax)
            }
            Some(bits) if !(8..=100).contains(&bits) => Err(ConfigError::Outliers(bits)),
            _ => match self.amax {
                Some(amax) if i64::from(amax.margin()) > i64::from(self.format.format().binades()) => {
                    Err(ConfigError::MarginOfFormat { margin: amax.margin(), format: self.format })
                }
                Some(_) | None => Ok(()),
            },
        }
    }

    /// Returns true if a batch that overflowed at a site is repeated.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.memory == Memory::Ring && self.when == When::Between
    }

    /// Returns true under delayed scaling: the row of each step decides for the next, and none inside its own step.
    pub(super) fn is_delayed(&self) -> bool {
        self.amax.is_some_and(|amax| amax.history() != 0)
    }

    /// Returns the detail of statistics that a row needs for an update.
    pub(super) const fn detail(&self) -> Detail {
        match (self.amax, self.when) {
            (Some(_), _) => Detail::Counts,
            (None, When::Between) => Detail::Full,
            (None, When::AtOnce) => Detail::Moments,
        }
    }
}
