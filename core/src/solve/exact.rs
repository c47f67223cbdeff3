//! Rule `exact`: decides from the histogram, in integers, without a model.

use super::{Choice, ConfigError, LimitedBy, NoDecision, clamp};
use crate::stats::{BINS, Convention, Rate, Stats};

/// Exact rule for a site's exponent, the default. γ(k) is the fraction of the non-zero values that flush at k. k_of is
/// the largest k at which amax does not overflow, for this row or for several rows ([`HeadroomConstraints`]):
///
/// ```text
/// k_uf = least k with γ(k) ≤ γ′            c = k_of − 2
/// k_lo = k_uf if k_uf ≤ c, else the least k ≤ c with γ(k) < 1 and γ(k) ≤ γ(c) + γ′
/// k    = max(k_lo, min(k_lo + window + lift, k_of − room))
/// ```
///
/// If there is enough range, at most γ′ of the values are even subnormal. At least 2 bits stay free above, and `room`
/// bits wherever k_lo allows. A site that cannot keep γ′ does not stay at the edge of overflow, because it would gain
/// nothing. For one row alone, the lift is 0, and the headroom is that of the rule.
///
/// Maximum window. FP16 has 40 exponents, and the least headroom and the threshold's own values need ten.
pub(crate) const MAX_WINDOW: i32 = 30;

/// The smallest k alone would flush as little, but it ruins narrow tensors: all their values become subnormals with one
/// or two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exact {
    ppm: u32,
    window: i32,
    room: i32,
}

/// Headroom constraints of a decision, derived from more rows than the one that decides. All exponents are relative to
/// the exponent at which this row was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadroomConstraints {
    /// Largest k at which none of the rows overflows, relative to this row's exponent.
    pub max_no_overflow: i32,
    /// Headroom in bits, kept free above where the threshold allows; at least 2.
    pub headroom_bits: i32,
    /// Number of exponents by which other rows are smaller than this one. The exponent rises by this amount more, if
    /// there is enough range.
    pub lift: i32,
    /// Outlier limit: values this many bits above k_of may overflow even if the threshold would allow a smaller
    /// exponent. `None`: no such limit.
    pub outlier_cap: Option<i32>,
}

impl Exact {
    /// Returns the rule for a format: γ′ = 10^-3, headroom 6, and a window that takes the format's smallest subnormal
    /// to its smallest normal number. The window is 11 for FP16, whatever the flush rule.
    #[must_use]
    pub const fn for_format(format: crate::format::Format) -> Self {
        Self { ppm: 1000, window: format.min_exponent() - format.min_subnormal_exponent() + 1, room: 6 }
    }

    /// Exact rule with the settings for FP16.
    pub const FP16: Self = Self::for_format(crate::format::Format::FP16);

    /// Returns the same rule with the window of a format.
    pub(crate) const fn with_window_of(self, format: crate::format::Format) -> Self {
        Self { window: Self::for_format(format).window, ..self }
    }

    /// Sets the flush threshold γ′ of the rule, rounded to whole parts per million below 10⁶.
    ///
    /// # Errors
    /// [`ConfigError::Gamma`] outside (0, 1), or if less than one part per million.
    pub fn with_gamma(self, gamma: f64) -> Result<Self, ConfigError> {
        let ppm = libm::round(super::open_unit(gamma)? * 1e6);
        if gamma < 1e-6 {
            return Err(ConfigError::Gamma(gamma));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 10⁶")]
        let ppm = (ppm as u32).min(999_999);
        Ok(Self { ppm, ..self })
    }

    /// Sets the window: the number of exponents above the threshold that the rule goes if there is enough range.
    ///
    /// # Errors
    /// [`ConfigError::Window`] outside 0..=30.
    pub const fn with_window(self, window: i32) -> Result<Self, ConfigError> {
        if window < 0 || window > MAX_WINDOW { Err(ConfigError::Window(window)) } else { Ok(Self { window, ..self }) }
    }

    /// Sets the headroom of the rule: bits kept free above where the threshold allows.
    ///
    /// # Errors
    /// [`ConfigError::Headroom`] outside 2..=30.
    pub const fn with_headroom(self, room: i32) -> Result<Self, ConfigError> {
        if room < 2 || room > 30 { Err(ConfigError::Headroom(room)) } else { Ok(Self { room, ..self }) }
    }

    /// Returns the flush threshold γ′ of the rule in parts per million.
    #[must_use]
    pub const fn ppm(&self) -> u32 {
        self.ppm
    }

    /// Returns the headroom of the rule: bits kept free above where the threshold allows.
    #[must_use]
    pub const fn headroom(&self) -> i32 {
        self.room
    }

    /// Returns the window: the number of exponents above the threshold that the rule goes if there is enough range.
    #[must_use]
    pub const fn window(&self) -> i32 {
        self.window
    }

    /// Returns true if a flush rate is within γ′, apart from `unavoidable` values, which flush anyway.
    fn allows(&self, rate: Rate, unavoidable: u64) -> bool {
        Rate { part: rate.part.saturating_sub(unavoidable), whole: rate.whole }.within(self.ppm)
    }

    /// Decides the exponent from the statistics row `row`, which needs its histogram.
    ///
    /// # Errors
    /// [`NoDecision`]; the site's state is unchanged then.
    ///
    /// ```
    /// use gradscale_core::{solve::{Exact, LimitedBy}, stats::{Convention, Detail, Stats}};
    /// let mut row = Stats::new(Convention::FP16, 0, Detail::Full);
    /// row.observe(&[1e-7, -2e-7, 5e-8, 0.0]);
    /// let choice = Exact::FP16.decide(&row)?;
    /// // 5e-8 is the smallest value, and 2^11 the smallest scale that takes it to the normal range.
    /// assert_eq!((choice.k, choice.held), (11, LimitedBy::NormalRange));
    /// # Ok::<(), gradscale_core::solve::NoDecision>(())
    /// ```
    pub fn decide(&self, row: &Stats) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let k_of = row.headroom_above().ok_or(NoDecision::Empty)?;
        self.decide_below(row, k_of)
    }

    /// Decides like [`Exact::decide`], with an upper limit k_of that comes from more than this row (an amax history).
    ///
    /// # Errors
    /// [`NoDecision`]; the site's state is unchanged then.
    pub fn decide_below(&self, row: &Stats, k_of: i32) -> Result<Choice, NoDecision> {
        self.decide_within(
            row,
            &HeadroomConstraints { max_no_overflow: k_of, headroom_bits: self.room, lift: 0, outlier_cap: None },
        )
    }

    /// Decides like [`Exact::decide`], within constraints that come from other rows too.
    ///
    /// # Errors
    /// [`NoDecision`]; the site's state is unchanged then.
    pub fn decide_within(&self, row: &Stats, above: &HeadroomConstraints) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let curve = Curve::from_row(row)?;
        let k_uf = curve.least_k(|rate| self.allows(rate, 0));
        let highest = above.max_no_overflow.saturating_sub(2);
        let (k_lo, missed) = if k_uf <= highest {
            (k_uf, false)
        } else {
            let unavoidable = curve.at(highest).part;
            let least = curve.least_k(|rate| rate.part < rate.whole && self.allows(rate, unavoidable));
            (least.min(highest), true)
        };
        let lifted = k_lo.saturating_add(self.window).saturating_add(above.lift);
        let roomy = above.max_no_overflow.saturating_sub(above.headroom_bits);
        let capped = above
            .outlier_cap
            .map_or(i32::MIN, |cap| above.max_no_overflow.saturating_sub(cap.max(above.headroom_bits)));
        let wanted = k_lo.max(lifted.min(roomy)).max(capped);
        let k = clamp(wanted);
        let held = if k != wanted {
            LimitedBy::Range
        } else if missed {
            LimitedBy::Overflow
        } else if k == lifted {
            LimitedBy::NormalRange
        } else {
            LimitedBy::Threshold
        };
        Ok(Choice { k, held, gamma: curve.at(k).value() })
    }

    /// Decides a lower exponent from amax alone, for a row without a histogram whose site has overflowed: as high as
    /// the headroom allows, but not above the exponent in force.
    ///
    /// # Errors
    /// [`NoDecision`]; the site's state is unchanged then.
    pub fn lower(&self, row: &Stats) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let k_of = row.headroom_above().ok_or(NoDecision::Empty)?;
        self.lower_within(
            row,
            &HeadroomConstraints { max_no_overflow: k_of, headroom_bits: self.room, lift: 0, outlier_cap: None },
        )
    }

    /// Decides like [`Exact::lower`], within constraints that come from other rows too.
    ///
    /// # Errors
    /// [`NoDecision`]; the site's state is unchanged then.
    pub fn lower_within(&self, row: &Stats, above: &HeadroomConstraints) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let k = clamp(above.max_no_overflow.saturating_sub(above.headroom_bits).min(0));
        Ok(Choice { k, held: LimitedBy::Overflow, gamma: f64::NAN })
    }
}

/// Fraction of flushed values as a function γ(k) of the exponent, computed from a row's histogram.
struct Curve<'a> {
    bins: &'a [u32; BINS],
    convention: Convention,
    whole: u64,
}

impl<'a> Curve<'a> {
    fn from_row(row: &'a Stats) -> Result<Self, NoDecision> {
        let bins = row.bins().ok_or(NoDecision::Detail)?;
        let whole = bins.iter().map(|&bin| u64::from(bin)).sum();
        if whole == 0 {
            return Err(NoDecision::Empty);
        }
        Ok(Self { bins, convention: row.convention(), whole })
    }

    /// Computes γ(k): values flush if and only if c ≤ T − k, with c = key − 127.
    fn at(&self, k: i32) -> Rate {
        let last = self.convention.last_flushed().saturating_sub(k).saturating_add(127);
        let part = self.bins.iter().zip(0..).filter(|&(_, key)| key <= last).map(|(&bin, _)| u64::from(bin)).sum();
        Rate { part, whole: self.whole }
    }

    /// Returns the smallest k that `fits`, for a condition that holds for all larger k once it holds.
    fn least_k(&self, fits: impl Fn(Rate) -> bool) -> i32 {
        let mut part = 0;
        let mut key = 0;
        for &bin in self.bins {
            if !fits(Rate { part: part + u64::from(bin), whole: self.whole }) {
                break;
            }
            part += u64::from(bin);
            key += 1;
        }
        // All keys below `key` may flush: T − k = key − 1 − 127.
        self.convention.last_flushed() - (key - 1 - 127)
    }
}
