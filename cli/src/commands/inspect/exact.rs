//! Exact conversion between decimal numbers and bit patterns, rounded once and never through f64.

use super::layout::{BitFields, Layout};
use gradscale::gradscale_core::{
    cast::{Round, Status},
    decompose::Class,
};
use num_bigint::BigUint;
use std::fmt::Write;

/// Limit of decimal exponents, in powers of ten. Every format rounds beyond it alike, because binary128 ends at 10^4933
/// and 10^-4966.
const MAX_DECIMAL_EXPONENT: i64 = 6000;

/// Maximum number of digits of a value that are printed.
const MAX_PRINTED_DIGITS: usize = 64;
/// Number of digits to which a number with too many is rounded.
const ROUNDED: usize = 36;

/// Exact value of a number given as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    negative: bool,
    size: Size,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Size {
    /// Finite magnitude: decimal digits, and the power of ten that multiplies them.
    Finite(BigUint, i32),
    Infinite,
    Nan,
}

impl Number {
    /// Parses a number as Rust's f64 does: 6.5, -1e-7, inf, nan. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let like: f64 = text.parse().ok()?;
        let negative = text.starts_with('-');
        let unsigned = text.trim_start_matches(['+', '-']);
        if like.is_nan() {
            return Some(Self { negative, size: Size::Nan });
        }
        if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Some(Self { negative, size: Size::Infinite });
        }
        let (written, power) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = written.split_once('.').unwrap_or((written, ""));
        let all = [whole, fraction].concat();
        let digits = all.trim_start_matches('0');
        // An exponent beyond i64 is far beyond all formats.
        let power = power.parse().unwrap_or(if power.starts_with('-') { i64::MIN / 4 } else { i64::MAX / 4 });
        let power = power.saturating_sub(i64::try_from(fraction.len()).ok()?);
        let leading = power.saturating_add(i64::try_from(digits.len()).ok()?);
        let (digits, power) = match leading {
            _ if digits.is_empty() => ("0", 0),
            MAX_DECIMAL_EXPONENT.. => ("1", MAX_DECIMAL_EXPONENT),
            ..=-6000 => ("1", -MAX_DECIMAL_EXPONENT),
            _ => (digits, power),
        };
        let digits = BigUint::parse_bytes(digits.as_bytes(), 10)?;
        Some(Self { negative, size: Size::Finite(digits, i32::try_from(power).ok()?) })
    }

    /// Returns the nearest bit pattern, or the next toward zero, and the status of the rounding.
    pub fn round(&self, layout: Layout, round: Round) -> (u128, Status) {
        let sign = if self.negative { layout.sign_mask() } else { 0 };
        let (magnitude, status) = match &self.size {
            Size::Nan => (layout.nan_bits(), Status::Exact),
            Size::Infinite => match layout.infinity_bits() {
                Some(infinity) => (infinity, Status::Exact),
                None => (layout.nan_bits(), Status::Invalid),
            },
            Size::Finite(digits, power) => magnitude(layout, digits, *power, round),
        };
        (sign | magnitude, status)
    }
}

fn magnitude(layout: Layout, digits: &BigUint, power: i32, round: Round) -> (u128, Status) {
    let zero = BigUint::ZERO;
    if *digits == zero {
        return (0, Status::Exact);
    }
    let ten = BigUint::from(10u8).pow(power.unsigned_abs());
    let (above, below) = if power < 0 { (digits.clone(), ten) } else { (digits * ten, BigUint::from(1u8)) };
    // The power of two of the leading digit: between one less than this difference and it.
    let bits = |n: &BigUint| i32::try_from(n.bits()).unwrap_or(i32::MAX);
    let mut exponent = bits(&above) - bits(&below);
    let shifted = |n: &BigUint, by: i32| if by > 0 { n << by.unsigned_abs() } else { n.clone() };
    if shifted(&above, -exponent) < shifted(&below, exponent) {
        exponent -= 1;
    }
    let exponent = exponent.max(layout.min_exponent());
    let unit = exponent - i32::try_from(layout.mantissa_bits).unwrap_or(i32::MAX);
    let (above, below) = (shifted(&above, -unit), shifted(&below, unit));
    let (kept, rest) = (&above / &below, &above % &below);
    let odd = kept.bit(0);
    let twice = rest.clone() << 1u8;
    let up = round == Round::NearestEven && (twice > below || (twice == below && odd));
    // A carry moves into the exponent field, as it should. At most 113 digits, and an exponent of 16 bits above them.
    let kept = u128::try_from(kept).unwrap_or(u128::MAX >> 1);
    let field = u128::from((exponent - layout.min_exponent()).unsigned_abs());
    let bits = (field << layout.mantissa_bits) + kept + u128::from(up);
    if bits > layout.max_bits() {
        let largest = if round == Round::TowardZero { Some(layout.max_bits()) } else { layout.infinity_bits() };
        return (largest.unwrap_or(layout.nan_bits()), Status::Overflow);
    }
    let status = if rest == zero {
        Status::Exact
    } else if bits == 0 {
        Status::Underflow
    } else {
        Status::Inexact
    };
    (bits, status)
}

/// Formats the value in decimal: exact, or rounded to 36 digits with a note if it has more than 64.
pub fn decimal(parts: &BitFields) -> String {
    let minus = if parts.negative { "-" } else { "" };
    match parts.class {
        Class::Nan => "NaN".to_owned(),
        Class::Infinite => format!("{minus}inf"),
        Class::Zero => format!("{minus}0"),
        Class::Normal | Class::Subnormal => format!("{minus}{}", finite(parts)),
    }
}

fn finite(parts: &BitFields) -> String {
    let significand = BigUint::from(parts.significand);
    // s · 2^-p = s · 5^p · 10^-p
    let (number, mut power) = if parts.power < 0 {
        (significand * BigUint::from(5u8).pow(parts.power.unsigned_abs()), i64::from(parts.power))
    } else {
        (significand << parts.power.unsigned_abs(), 0)
    };
    let mut digits = number.to_string();
    let mut note = "";
    if digits.trim_end_matches('0').len() > MAX_PRINTED_DIGITS {
        let cut = digits.len() - ROUNDED;
        let unit = BigUint::from(10u8).pow(u32::try_from(cut).unwrap_or(u32::MAX));
        digits = ((number + (&unit >> 1u8)) / unit).to_string();
        power += i64::try_from(cut).unwrap_or(i64::MAX);
        note = " (rounded to 36 digits)";
    }
    let kept = digits.trim_end_matches('0').len();
    power += i64::try_from(digits.len() - kept).unwrap_or(i64::MAX);
    digits.truncate(kept);
    written(&digits, power) + note
}

/// Formats digits · 10^power, without an exponent from 10^-4 up to 10^7.
fn written(digits: &str, power: i64) -> String {
    let len = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let leading = len + power - 1;
    let mut text = String::new();
    let zeros = |n: i64| "0".repeat(usize::try_from(n).unwrap_or(0));
    if !(-4..7).contains(&leading) {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        write!(text, "{first}{dot}{rest}e{leading}").ok();
    } else if power >= 0 {
        write!(text, "{digits}{}", zeros(power)).ok();
    } else if leading >= 0 {
        let (whole, fraction) = digits.split_at(usize::try_from(leading + 1).unwrap_or(0));
        write!(text, "{whole}.{fraction}").ok();
    } else {
        write!(text, "0.{}{digits}", zeros(-leading - 1)).ok();
    }
    text
}
