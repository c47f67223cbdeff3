//! Rule `amax`: decides from largest magnitudes alone, as FP8 libraries scale their tensors.

use super::{Choice, ConfigError, LimitedBy, clamp};

/// Maximum number of rows in an amax history, because a site's ring has this length.
pub const AMAX_ROWS: u32 = 16;
/// Maximum margin, in binades, because beyond it FP16 has no normal number left below 65504.
pub const MAX_AMAX_MARGIN: u32 = 30;

/// Rule of per-tensor scaling in FP8 libraries: the power of two that takes the largest magnitude just below 65504.
///
/// With a history this is delayed scaling, as in Transformer Engine: the largest magnitude of the last rows decides for
/// the next step. Without a history it is current scaling: each tensor's own maximum decides before the store.
///
/// Delayed scaling without a margin overflows as soon as a magnitude exceeds the power of two that its history has left
/// free.
///
/// ```
/// use gradscale_core::solve::Amax;
/// let amax = Amax::new(16, 1)?;
/// // The largest magnitude overflows above 2^9, and one binade stays free.
/// assert_eq!(amax.decide_below(9).k, 8);
/// # Ok::<(), gradscale_core::solve::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Amax {
    history: u32,
    margin: u32,
}

impl Amax {
    /// Creates the amax rule over the last `history` rows (0: the row's own maximum), which leaves `margin` binades
    /// free.
    ///
    /// # Errors
    /// [`ConfigError::History`] above [`AMAX_ROWS`], [`ConfigError::Margin`] above [`MAX_AMAX_MARGIN`].
    pub const fn new(history: u32, margin: u32) -> Result<Self, ConfigError> {
        if history > AMAX_ROWS {
            Err(ConfigError::History(history))
        } else if margin > MAX_AMAX_MARGIN {
            Err(ConfigError::Margin(margin))
        } else {
            Ok(Self { history, margin })
        }
    }

    /// Returns the length of the history in rows; 0 for the row's own maximum.
    #[must_use]
    pub const fn history(&self) -> u32 {
        self.history
    }

    /// Returns the number of binades that the amax rule leaves free above the largest magnitude.
    #[must_use]
    pub const fn margin(&self) -> u32 {
        self.margin
    }

    /// Chooses the exponent below `k_of`, the largest at which no row of the history overflows. The predicted fraction
    /// that flushes is NaN, because the rule has no model of small values.
    #[must_use]
    pub fn decide_below(&self, k_of: i32) -> Choice {
        let wanted = k_of.saturating_sub(self.margin as i32);
        let k = clamp(wanted);
        let held = if k == wanted { LimitedBy::Amax } else { LimitedBy::Range };
        Choice { k, held, gamma: f64::NAN }
    }
}
