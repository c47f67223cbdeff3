//! `exact`: from the histogram, in integers, without a model.

use super::{Choice, ConfigError, LimitedBy, NoDecision, clamp};
use crate::stats::{BINS, Convention, Rate, Stats};

/// The default rule. With γ(k) the share of the non-zero values that flush at k, and k_of the largest k at which
/// amax does not overflow, of this row or of several ([`Above`]):
///
/// ```text
/// k_uf = least k with γ(k) ≤ γ′            c = k_of − 2
/// k_lo = k_uf if k_uf ≤ c, else the least k ≤ c with γ(k) < 1 and γ(k) ≤ γ(c) + γ′
/// k    = max(k_lo, min(k_lo + window + lift, k_of − room))
/// ```
///
/// Where there is room, at most γ′ of the values are even subnormal; at least 2 bits stay free above, and `room`
/// wherever k_lo allows. A site that cannot keep γ′ does not sit at the edge of overflow for nothing. Of one row alone,
/// the lift is 0 and the room the rule's.
///
/// The least k alone would flush as little and still ruin narrow tensors, all of whose values it makes subnormals
/// with one or two digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exact {
    ppm: u32,
    window: i32,
    room: i32,
}

/// What a decision keeps free above, from what is known of more rows than the one that decides. All exponents are
/// relative to that at which this row was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Above {
    /// The largest k at which none of the rows overflows.
    pub k_of: i32,
    /// Bits kept free above where the threshold allows, at least 2.
    pub room: i32,
    /// By how much values of other rows are smaller than this one's: the exponent goes so much further up, where there
    /// is room.
    pub lift: i32,
    /// Where values overflow that lie this far above k_of, whatever else is decided; none: they need not.
    pub cap: Option<i32>,
}

impl Exact {
    /// γ′ = 10^-3, room 6, and a window that takes the format's least subnormal to its least normal number: 11
    /// for FP16, whatever the flush rule.
    #[must_use]
    pub const fn for_format(format: crate::format::Format) -> Self {
        Self { ppm: 1000, window: format.min_exponent() - format.min_subnormal_exponent() + 1, room: 6 }
    }

    /// The rule for FP16.
    pub const FP16: Self = Self::for_format(crate::format::Format::FP16);

    /// The rule with the threshold γ′, kept in the nearest whole parts per million below 10⁶.
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

    /// The rule with another window: how far above the threshold the exponent goes where there is room.
    ///
    /// # Errors
    /// [`ConfigError::Window`] outside 0..=30.
    pub const fn with_window(self, window: i32) -> Result<Self, ConfigError> {
        if window < 0 || window > 30 { Err(ConfigError::Window(window)) } else { Ok(Self { window, ..self }) }
    }

    /// The rule with another room: bits kept free above where the threshold allows.
    ///
    /// # Errors
    /// [`ConfigError::Room`] outside 2..=30.
    pub const fn with_room(self, room: i32) -> Result<Self, ConfigError> {
        if room < 2 || room > 30 { Err(ConfigError::Room(room)) } else { Ok(Self { room, ..self }) }
    }

    /// γ′ in parts per million.
    #[must_use]
    pub const fn ppm(&self) -> u32 {
        self.ppm
    }

    /// Bits kept free above where the threshold allows.
    #[must_use]
    pub const fn room(&self) -> i32 {
        self.room
    }

    /// How far above the threshold the exponent goes where there is room.
    #[must_use]
    pub const fn window(&self) -> i32 {
        self.window
    }

    /// The largest share that may flush, given what flushes anyway.
    fn allows(&self, rate: Rate, unavoidable: u64) -> bool {
        Rate { part: rate.part.saturating_sub(unavoidable), whole: rate.whole }.within(self.ppm)
    }

    /// Decides from `row`, which needs its histogram.
    ///
    /// # Errors
    /// [`NoDecision`], and the site's state stays.
    ///
    /// ```
    /// use gradscale_core::{solve::{Exact, LimitedBy}, stats::{Convention, Detail, Stats}};
    /// let mut row = Stats::new(Convention::FP16, 0, Detail::Full);
    /// row.observe(&[1e-7, -2e-7, 5e-8, 0.0]);
    /// let choice = Exact::FP16.decide(&row)?;
    /// // 5e-8 is the least value, and 2^11 the least scale that takes it to the normal range.
    /// assert_eq!((choice.k, choice.held), (11, LimitedBy::NormalRange));
    /// # Ok::<(), gradscale_core::solve::NoDecision>(())
    /// ```
    pub fn decide(&self, row: &Stats) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let k_of = row.room_above().ok_or(NoDecision::Empty)?;
        self.decide_below(row, k_of)
    }

    /// As [`Exact::decide`], with an upper limit k_of that stems from more than this row (an amax history).
    ///
    /// # Errors
    /// [`NoDecision`], and the site's state stays.
    pub fn decide_below(&self, row: &Stats, k_of: i32) -> Result<Choice, NoDecision> {
        self.decide_within(row, &Above { k_of, room: self.room, lift: 0, cap: None })
    }

    /// As [`Exact::decide`], with what is known of other rows too.
    ///
    /// # Errors
    /// [`NoDecision`], and the site's state stays.
    pub fn decide_within(&self, row: &Stats, above: &Above) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let curve = Curve::from_row(row)?;
        let k_uf = curve.least_k(|rate| self.allows(rate, 0));
        let highest = above.k_of.saturating_sub(2);
        let (k_lo, missed) = if k_uf <= highest {
            (k_uf, false)
        } else {
            let unavoidable = curve.at(highest).part;
            let least = curve.least_k(|rate| rate.part < rate.whole && self.allows(rate, unavoidable));
            (least.min(highest), true)
        };
        let lifted = k_lo.saturating_add(self.window).saturating_add(above.lift);
        let roomy = above.k_of.saturating_sub(above.room);
        let capped = above.cap.map_or(i32::MIN, |cap| above.k_of.saturating_sub(cap.max(above.room)));
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

    /// A lower exponent from amax alone, for rows without a histogram whose site has overflowed: as high as room
    /// allows, and not above the exponent in force.
    ///
    /// # Errors
    /// [`NoDecision`], and the site's state stays.
    pub fn lower(&self, row: &Stats) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let k_of = row.room_above().ok_or(NoDecision::Empty)?;
        self.lower_within(row, &Above { k_of, room: self.room, lift: 0, cap: None })
    }

    /// As [`Exact::lower`], with what is known of other rows too.
    ///
    /// # Errors
    /// [`NoDecision`], and the site's state stays.
    pub fn lower_within(&self, row: &Stats, above: &Above) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let k = clamp(above.k_of.saturating_sub(above.room).min(0));
        Ok(Choice { k, held: LimitedBy::Overflow, gamma: f64::NAN })
    }
}

/// γ(k) for all k: what flushes up to each key.
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

    /// γ(k): flush iff c ≤ T − k, c = key − 127.
    fn at(&self, k: i32) -> Rate {
        let last = self.convention.last_flushed().saturating_sub(k).saturating_add(127);
        let part = self.bins.iter().zip(0..).filter(|&(_, key)| key <= last).map(|(&bin, _)| u64::from(bin)).sum();
        Rate { part, whole: self.whole }
    }

    /// The least k that `fits`, for a condition that holds for all larger k once it holds.
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
