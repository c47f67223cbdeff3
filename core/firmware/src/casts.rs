//! Casts: every format with every rounding over the edges and random patterns, decoding of all patterns.

use crate::{hash::Hash, inputs};
use core::fmt::{self, Write};
use gradscale_core::{
    cast::{Cast, Round, Status},
    format::Format,
};

/// Number of random patterns of each kind for each format and rounding mode.
const RANDOMS: u32 = 4096;

const FORMATS: [Format; 4] = [Format::FP16, Format::BF16, Format::E5M2, Format::E4M3];

/// Rounding mode of element `i`: stochastic rounding uses the `i`-th random number.
type Rounding = fn(u32) -> Round;

const ROUNDS: [(&str, Rounding); 3] = [
    ("nearest", |_| Round::NearestEven),
    ("toward zero", |_| Round::TowardZero),
    ("stochastic", |i| Round::Stochastic(inputs::random(i))),
];

/// Checksums of one line of the section about casts: of all bit patterns and of all statuses.
struct Sum {
    hash: Hash,
    counts: [u32; 5],
}

impl Sum {
    const fn new() -> Self {
        Self { hash: Hash::new(), counts: [0; 5] }
    }

    fn add(&mut self, Cast { bits, status }: Cast) {
        let status = match status {
            Status::Exact => 0,
            Status::Inexact => 1,
            Status::Underflow => 2,
            Status::Overflow => 3,
            Status::Invalid => 4,
        };
        self.hash.add(u64::from(bits) << 3 | status as u64);
        self.counts[status] += 1;
    }

    fn print(&self, out: &mut impl Write, name: fmt::Arguments<'_>) -> fmt::Result {
        let [exact, inexact, underflow, overflow, invalid] = self.counts;
        writeln!(
            out,
            "{name}: {:016x}, {exact} exact, {inexact} inexact, {underflow} underflow, {overflow} overflow, {invalid} invalid",
            self.hash.get()
        )
    }
}

/// Returns the f64 of an f32 pattern, with additional significand bits `low`. It is assembled from integers, because a
/// conversion would quiet NaNs.
fn widen(bits: u32, low: u32) -> f64 {
    let bits = u64::from(bits);
    let field = match bits >> 23 & 0xff {
        0 => 1023 - 150,
        0xff => 0x7ff,
        field => field + 1023 - 127,
    };
    f64::from_bits((bits >> 31) << 63 | field << 52 | (bits & 0x007f_ffff) << 29 | u64::from(low & 0x1fff_ffff))
}

/// Prints the section about casts: one line for each format and rounding mode.
pub fn print(out: &mut impl Write) -> fmt::Result {
    let saturating = FORMATS.map(Format::saturating);
    for format in FORMATS.into_iter().chain(saturating) {
        for (name, round) in ROUNDS {
            let mut sum = Sum::new();
            for (i, bits) in (0..).zip(inputs::edges().chain(inputs::randoms(RANDOMS))) {
                sum.add(format.encode(f32::from_bits(bits), round(i)));
            }
            sum.print(out, format_args!("f32 to {format}, {name}"))?;
        }
    }
    for format in FORMATS.into_iter().chain([Format::FP32, Format::FP32.saturating()]) {
        for (name, round) in ROUNDS {
            let mut sum = Sum::new();
            for (i, bits) in (0..).zip(inputs::edges().chain(inputs::randoms(RANDOMS))) {
                // Exactly a value of f32, and the nearest and the farthest f64 next to it on the side away from zero.
                for low in [0, 1, u32::MAX] {
                    sum.add(format.encode_f64(widen(bits, low), round(i)));
                }
            }
            sum.print(out, format_args!("f64 to {format}, {name}"))?;
        }
    }
    for format in FORMATS {
        let mut hash = Hash::new();
        for bits in 0..1u32 << format.width() {
            hash.add(u64::from(format.decode(bits).to_bits()));
        }
        writeln!(out, "{format} to f32: {:016x}", hash.get())?;
    }
    Ok(())
}
