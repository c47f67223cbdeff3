//! Fractional exponents, for schedules that grow by less than a factor of two.

/// Exponent of a loss scale as a fraction, in units of 1/`per_exponent`. It is an integer, so that a schedule's state
/// neither drifts nor differs between machines. The exponent in force is its floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fraction {
    units: i64,
    per_exponent: u32,
}

impl Fraction {
    /// Creates the fractional exponent `exponent` in units of 1/`per_exponent`; a `per_exponent` of 0 counts as 1.
    #[must_use]
    pub const fn new(exponent: i32, per_exponent: u32) -> Self {
        let per_exponent = if per_exponent == 0 { 1 } else { per_exponent };
        Self { units: exponent as i64 * per_exponent as i64, per_exponent }
    }

    /// Returns the fractional exponent as an integer: the numerator over [`Fraction::per_exponent`].
    #[must_use]
    pub const fn units(self) -> i64 {
        self.units
    }

    /// Returns the number of units of the fractional exponent in one whole exponent.
    #[must_use]
    pub const fn per_exponent(self) -> u32 {
        self.per_exponent
    }

    /// Returns the fractional exponent with another numerator, limited to the range between two exponents.
    #[must_use]
    pub const fn with_units(self, units: i64, least: i32, most: i32) -> Self {
        let least = least as i64 * self.per_exponent as i64;
        let most = most as i64 * self.per_exponent as i64;
        let units = if units < least {
            least
        } else if units > most {
            most
        } else {
            units
        };
        Self { units, ..self }
    }

    /// Returns the whole exponent in force: the largest integer that is not greater than the fractional one.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "made from i32 exponents and kept between two")]
    pub const fn exponent(self) -> i32 {
        // Never None, because an exponent has at least one unit. The compiler cannot see it and would link a panic.
        match self.units.checked_div_euclid(self.per_exponent as i64) {
            Some(exponent) => exponent as i32,
            None => 0,
        }
    }
}
