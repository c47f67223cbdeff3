//! `gradscale inspect`: one number, digit by digit.

use crate::{Failure, output};
use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use gradscale::core::{
    cast::{Round, Status},
    format::Format,
    parts::Parts,
};
use std::fmt::Write;

/// `gradscale inspect`.
#[derive(Clone, Debug, Args)]
pub struct Inspect {
    /// A number, or the bits of one: 6.5, -1e-7, inf, 0x3c00, 0b11110000000000.
    #[arg(allow_hyphen_values = true)]
    pub number: String,
    /// Format to take apart, and to cast to.
    #[arg(long, value_enum, default_value = "f16")]
    pub format: Name,
}

/// Formats by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// binary16: 5 exponent and 10 mantissa bits.
    F16,
    /// bfloat16: 8 and 7.
    Bf16,
    /// OCP FP8: 5 and 2.
    E5m2,
    /// OCP FP8: 4 and 3, no infinity.
    E4m3,
    /// binary32: 8 and 23.
    F32,
}

impl Name {
    const fn format(self) -> Format {
        match self {
            Self::F16 => Format::FP16,
            Self::Bf16 => Format::BF16,
            Self::E5m2 => Format::E5M2,
            Self::E4m3 => Format::E4M3,
            Self::F32 => Format::FP32,
        }
    }
}

/// Prints what a number is made of.
///
/// # Errors
/// A text that is no number.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    output::print(&text(arguments)?)
}

fn text(arguments: &Inspect) -> Result<String, Failure> {
    let format = arguments.format.format();
    let mut text = String::new();
    let bits = match pattern(&arguments.number) {
        Some(bits) if u64::from(bits) >> format.width() == 0 => bits,
        Some(_) => {
            return Err(Failure::at(&arguments.number, format!("more than the {} bits of {format}", format.width())));
        }
        None => {
            let not = |_| Failure::at(&arguments.number, "neither a number nor bits (0x3c00, 0b1111)");
            let number: f64 = arguments.number.parse().map_err(not)?;
            let cast = format.encode_f64(number, Round::NearestEven);
            let what = match cast.status {
                Status::Exact => "exactly",
                Status::Inexact => "rounded, to nearest even",
                Status::Underflow => "flushed to zero",
                Status::Overflow => "overflowed",
                Status::Invalid => "invalid",
            };
            let toward_zero = format.encode_f64(number, Round::TowardZero);
            writeln!(text, "{number} as {format}: {what}; toward zero it is {}", value(format, toward_zero.bits)).ok();
            cast.bits
        }
    };
    fields(&mut text, format, bits);
    Ok(text)
}

/// Bits as hexadecimal or binary digits.
fn pattern(text: &str) -> Option<u32> {
    let digits = |prefix: &str, radix| {
        let digits = text.strip_prefix(prefix)?;
        u32::from_str_radix(&digits.replace('_', ""), radix).ok()
    };
    digits("0x", 16).or_else(|| digits("0b", 2))
}

fn value(format: Format, bits: u32) -> String {
    let value = format.decode(bits);
    if value == 0.0 || (1e-4..1e7).contains(&value.abs()) { value.to_string() } else { format!("{value:e}") }
}

fn fields(text: &mut String, format: Format, bits: u32) {
    let parts = Parts::of(format, bits);
    let (mantissa, exponent) = (format.mantissa_bits() as usize, format.exponent_bits() as usize);
    let trailing = bits & ((1 << mantissa) - 1);
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into())).bold();
    let (sign, middle, last) = (colour(AnsiColor::Red), colour(AnsiColor::Green), colour(AnsiColor::Blue));
    writeln!(
        text,
        "{sign}{}{sign:#} {middle}{:0exponent$b}{middle:#} {last}{trailing:0mantissa$b}{last:#}   {bits:#0width$x}",
        u8::from(parts.negative),
        parts.exponent_field,
        width = 2 + format.width().div_ceil(4) as usize,
    )
    .ok();
    writeln!(
        text,
        "{sign}sign{sign:#}, {middle}exponent{middle:#} and {last}digits{last:#} of {format}: {:?}",
        parts.class
    )
    .ok();
    writeln!(text, "value       {}", value(format, bits)).ok();
    if parts.value().is_finite() {
        let power = parts.exponent - i32::try_from(mantissa).unwrap_or_default();
        let minus = if parts.negative { "−" } else { "" };
        writeln!(text, "            {minus}{} · 2^{power}", parts.significand).ok();
        let magnitude = bits & (format.sign_mask() - 1);
        let sign = bits & format.sign_mask();
        if let Some(below) = magnitude.checked_sub(1) {
            writeln!(text, "next to 0   {}", value(format, sign | below)).ok();
        }
        writeln!(text, "next from 0 {}", value(format, sign | (magnitude + 1))).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(number: &str, format: Name) -> String {
        let text = text(&Inspect { number: number.to_owned(), format }).expect("a number");
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn numbers_are_taken_apart() {
        let one = plain("0x3c00", Name::F16);
        assert!(one.starts_with("0 01111 0000000000   0x3c00\n"), "{one}");
        assert!(one.contains("value       1\n") && one.contains("1024 · 2^-10"), "{one}");
        let six = plain("6.5", Name::F32);
        assert!(six.contains("0 10000001 10100000000000000000000   0x40d00000"), "{six}");
        assert!(plain("-1e-8", Name::F16).contains("flushed to zero"));
        assert!(plain("65520", Name::F16).contains("overflowed; toward zero it is 65504"));
        assert!(plain("65520", Name::F16).contains("inf"));
        assert!(plain("0x7f", Name::E4m3).contains("NaN"));
    }

    #[test]
    fn what_is_no_number_is_said() {
        for number in ["", "x", "0x", "0xzz", "0x10000", "1e"] {
            let error = text(&Inspect { number: number.to_owned(), format: Name::F16 }).expect_err("no number");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
