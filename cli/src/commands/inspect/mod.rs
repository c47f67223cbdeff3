//! `gradscale inspect`: the bits of a number, or a long sum in few bits.

mod accumulate;
mod exact;
mod layout;

use crate::{Failure, output};
use anstyle::{AnsiColor, Style};
use clap::{Args, Subcommand, ValueEnum};
use exact::{Number, decimal};
use gradscale::gradscale_core::{
    cast::{Round, Status},
    decompose::Class,
    format::Format,
};
use layout::Layout;
use std::fmt::Write;

/// `gradscale inspect`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Inspect {
    /// A number, or its bits: 6.5, -1e-7, inf, 0x3c00, 0b11110000000000. Decimal digits are read exactly and rounded
    /// once.
    #[arg(allow_hyphen_values = true, required = true)]
    number: Option<String>,
    /// Format of the number, to which decimal digits are rounded.
    #[arg(long, value_enum, default_value = "f16")]
    format: Name,
    /// Further inspections
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Measures the error of long sums in an accumulator with few bits, term by term and in chunks, and compares it
    /// with models.
    Accumulate(accumulate::Accumulate),
}

/// Formats by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// binary16: 5 exponent and 10 mantissa bits.
    F16,
    /// bfloat16: 8 and 7.
    Bf16,
    /// OCP FP8: 5 and 2.
    E5m2,
    /// OCP FP8: 4 and 3, no infinity.
    E4m3,
    /// TF32: 8 and 10.
    Tf32,
    /// binary32: 8 and 23.
    F32,
    /// binary64: 11 and 52.
    F64,
    /// binary128: 15 and 112.
    F128,
}

impl Name {
    const fn layout(self) -> Layout {
        match self {
            Self::F16 => Layout::from_format(Format::FP16),
            Self::Bf16 => Layout::from_format(Format::BF16),
            Self::E5m2 => Layout::from_format(Format::E5M2),
            Self::E4m3 => Layout::from_format(Format::E4M3),
            Self::Tf32 => Layout::from_format(Format::TF32),
            Self::F32 => Layout::from_format(Format::FP32),
            Self::F64 => Layout::BINARY64,
            Self::F128 => Layout::BINARY128,
        }
    }
}

/// Prints the parts of a number, or the error of a sum.
///
/// # Errors
/// A text that is no number; options that ask for more work than it takes.
pub fn run(arguments: &Inspect) -> Result<(), Failure> {
    let text = match (&arguments.what, &arguments.number) {
        (Some(What::Accumulate(accumulate)), _) => accumulate::text(accumulate)?,
        (None, number) => text(number.as_deref().unwrap_or_default(), arguments.format.layout())?,
    };
    output::print(&text)
}

fn text(number: &str, layout: Layout) -> Result<String, Failure> {
    let mut text = String::new();
    let bits = match pattern(number) {
        Some(bits) if bits.is_some_and(|bits| bits >> (layout.width() - 1) >> 1 == 0) => bits.unwrap_or_default(),
        Some(_) => return Err(Failure::at(number, format!("more than the {} bits of {layout}", layout.width()))),
        None => {
            let read = Number::parse(number);
            let read = read.ok_or_else(|| {
                Failure::at(
                    number,
                    "neither a number nor a bit pattern such as 0x3c00 or \
                0b1111",
                )
            })?;
            let (bits, status) = read.round(layout, Round::NearestEven);
            let what = match status {
                Status::Exact => "exactly",
                Status::Inexact => "rounded, to nearest even",
                Status::Underflow => "flushed to zero",
                Status::Overflow => "overflowed",
                Status::Invalid => "invalid",
            };
            let (toward_zero, _) = read.round(layout, Round::TowardZero);
            let shown: String = number.chars().take(60).collect();
            let more = if shown.len() < number.len() { "…" } else { "" };
            let zero = decimal(&layout.parts(toward_zero));
            writeln!(text, "{shown}{more} as {layout}: {what}; toward zero it is {zero}").ok();
            bits
        }
    };
    fields(&mut text, layout, bits);
    Ok(text)
}

/// Parses a bit pattern in hexadecimal or binary digits; returns `Some(None)` for more than 128 bits.
fn pattern(text: &str) -> Option<Option<u128>> {
    let digits = |prefix: &str, radix: u32| {
        let digits = text.strip_prefix(prefix)?.replace('_', "");
        let all = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        all.then(|| u128::from_str_radix(&digits, radix).ok())
    };
    digits("0x", 16).or_else(|| digits("0b", 2))
}

fn fields(text: &mut String, layout: Layout, bits: u128) {
    let parts = layout.parts(bits);
    let (mantissa, exponent) = (layout.mantissa_bits as usize, layout.exponent_bits as usize);
    let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into())).bold();
    let (sign, middle, last) = (colour(AnsiColor::Red), colour(AnsiColor::Green), colour(AnsiColor::Blue));
    writeln!(
        text,
        "{sign}{}{sign:#} {middle}{:0exponent$b}{middle:#} {last}{:0mantissa$b}{last:#}   {bits:#0width$x}",
        u8::from(parts.negative),
        parts.field,
        parts.trailing,
        width = 2 + layout.width().div_ceil(4) as usize,
    )
    .ok();
    writeln!(
        text,
        "{sign}sign{sign:#}, {middle}exponent{middle:#} and {last}digits{last:#} of {layout}: {:?}",
        parts.class
    )
    .ok();
    writeln!(text, "value       {}", decimal(&parts)).ok();
    if !matches!(parts.class, Class::Infinite | Class::Nan) {
        let minus = if parts.negative { "−" } else { "" };
        writeln!(text, "            {minus}{} · 2^{}", parts.significand, parts.power).ok();
        let magnitude = bits & (layout.sign_mask() - 1);
        let sign = bits & layout.sign_mask();
        if let Some(below) = magnitude.checked_sub(1) {
            writeln!(text, "next to 0   {}", decimal(&layout.parts(sign | below))).ok();
        }
        writeln!(text, "next from 0 {}", decimal(&layout.parts(sign | (magnitude + 1)))).ok();
    }
}

#[cfg(test)]
mod tests;
