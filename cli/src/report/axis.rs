//! Axes, which map values to positions.

use super::text::power;

/// Unit in which an axis of a plot labels its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers, labelled without a unit.
    Plain,
    /// Fractions of 1, labelled in percent.
    Percent,
    /// Exponents, shown as powers of this base.
    Power(u32),
    /// Exponents of scales, labelled as integers.
    Exponent,
}

/// Axis of a plot: values from `low` to `high`, drawn at coordinates from `from` to `to`.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
    pub from: f64,
    pub to: f64,
    pub unit: Unit,
}

impl Axis {
    /// Creates an axis for these values. A single value gets a margin, and exponents are rounded to integers.
    pub fn new(unit: Unit, low: f64, high: f64) -> Self {
        let (low, high) = if low.is_finite() && high.is_finite() { (low, high) } else { (0.0, 1.0) };
        let (low, high) =
            if matches!(unit, Unit::Power(_) | Unit::Exponent) { (low.floor(), high.ceil()) } else { (low, high) };
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, from: 0.0, to: 1.0, unit }
    }

    /// Returns the axis between two other coordinates of the drawing.
    pub const fn placed(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    /// Returns the position of a value, clamped to the axis. NaN stays NaN.
    pub fn at(&self, value: f64) -> f64 {
        self.from + (value.clamp(self.low, self.high) - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Returns about `count` round values for tick labels.
    pub fn ticks(&self, count: f64) -> Vec<f64> {
        let rough = (self.high - self.low) / count;
        let magnitude = 10f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * magnitude >= rough * 0.999).unwrap_or(10.0);
        let step = nice * magnitude;
        let step = if matches!(self.unit, Unit::Power(_) | Unit::Exponent) { step.max(1.0).round() } else { step };
        let mut ticks = Vec::new();
        let mut at = (self.low / step).ceil();
        while at * step <= self.high + step * 1e-9 && ticks.len() < 50 {
            // No −0.
            ticks.push(at * step + 0.0);
            at += 1.0;
        }
        ticks
    }

    /// Formats a value as the axis labels it.
    pub fn label(&self, value: f64) -> String {
        match self.unit {
            Unit::Power(base) => power(base, value),
            Unit::Percent => trimmed(100.0 * value),
            Unit::Plain => trimmed(value),
            Unit::Exponent => format!("{value:.0}").replace('-', "−"),
        }
    }
}

/// Formats an axis label without trailing zeros.
fn trimmed(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_numbers_within() {
        let ticks = |unit, low, high, count| Axis::new(unit, low, high).ticks(count);
        assert_eq!(ticks(Unit::Plain, 0.0, 150.0, 4.0), [0.0, 50.0, 100.0, 150.0]);
        assert_eq!(ticks(Unit::Power(2), -25.0, 16.0, 4.0), [-20.0, 0.0]);
        assert_eq!(ticks(Unit::Power(2), 0.0, 1.0, 4.0), [0.0, 1.0]);
        let axis = Axis::new(Unit::Percent, 0.0, 0.5).placed(10.0, 20.0);
        assert_eq!((axis.at(0.25), axis.at(7.0), axis.label(0.125)), (15.0, 20.0, "12.5".to_owned()));
        assert!(axis.at(f64::NAN).is_nan());
    }

    #[test]
    fn nothing_is_a_number_too() {
        for (low, high) in [(f64::NAN, 1.0), (f64::INFINITY, f64::NEG_INFINITY), (3.0, 3.0)] {
            let axis = Axis::new(Unit::Plain, low, high);
            assert!(axis.low < axis.high && !axis.ticks(4.0).is_empty(), "{low} {high}");
        }
    }
}
