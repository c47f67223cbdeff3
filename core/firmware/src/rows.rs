//! Rows of statistics: every counter, the largest magnitude, all bins, all sums.

use crate::{hash::Hash, inputs};
use core::fmt::{self, Write};
use gradscale_core::{
    format::Format,
    scale::Factor,
    stats::{Convention, Counts, Detail, FlushRule, LIGHT_WORDS, Stats},
};

/// Number of values that one call observes, about as many as a device holds at a time.
const CHUNK: usize = 128;

/// Size limits in bytes of the data of every step, and of an update step (1 KiB of it is the histogram).
const _: () = assert!(size_of::<Counts>() <= 64 && size_of::<Stats>() <= 1228);

/// Computes the statistics row of `values`, observed chunk by chunk.
pub fn row(convention: Convention, exponent: i32, detail: Detail, values: impl IntoIterator<Item = f32>) -> Stats {
    let mut row = Stats::new(convention, exponent, detail);
    let (mut chunk, mut len) = ([0f32; CHUNK], 0);
    for value in values {
        chunk[len] = value;
        len += 1;
        if len == CHUNK {
            row.observe(&chunk);
            len = 0;
        }
    }
    row.observe(&chunk[..len]);
    row
}

/// Returns a gradient of `n` elements multiplied by 2^`exponent`, as a store observes it.
pub fn scaled(seed: u32, n: u32, centre: i32, exponent: i32) -> impl Iterator<Item = f32> {
    let factor = Factor::between(0, exponent);
    (0..n).map(move |i| factor.apply(inputs::gradient(seed, i, centre)))
}

/// Prints sizes of structs, rows of all conventions over the edge cases, rows of scaled gradients, and a merge.
pub fn print(out: &mut impl Write) -> fmt::Result {
    writeln!(out, "size of a light row: {} B, of a full one: {} B", size_of::<Counts>(), size_of::<Stats>())?;
    for format in [Format::FP16, Format::E5M2, Format::E4M3] {
        for rule in FlushRule::ALL {
            let Ok(convention) = Convention::new(format, rule) else { continue };
            let values = inputs::edges().chain(inputs::randoms(1024)).map(f32::from_bits);
            let row = row(convention, 0, Detail::Moments, values);
            print_row(out, format_args!("edges, {format}, {rule:?}"), &row)?;
        }
    }
    for exponent in [-200, -20, 0, 7, 24, 140] {
        let row = row(Convention::FP16, exponent, Detail::Moments, scaled(1, 5000, -20, exponent));
        print_row(out, format_args!("gradient"), &row)?;
    }
    let part = |seed| row(Convention::FP16, 9, Detail::Moments, scaled(seed, 700, -12, 9));
    match part(2).merge(&part(3)) {
        Ok(merged) => print_row(out, format_args!("merged"), &merged),
        Err(error) => writeln!(out, "merged: {error}"),
    }
}

fn print_row(out: &mut impl Write, name: fmt::Arguments<'_>, row: &Stats) -> fmt::Result {
    let mut hash = Hash::new();
    // Sums of the edge cases exceed f32, and the sign of the NaN of ∞ − ∞ depends on the processor.
    for (i, word) in row.to_words().into_iter().enumerate() {
        let sum = (LIGHT_WORDS..LIGHT_WORDS + 8).contains(&i) && f32::from_bits(word).is_nan();
        hash.add(u64::from(if sum { f32::NAN.to_bits() } else { word }));
    }
    for sum in row.moments().map_or([0.0; 4], |m| [m.sum, m.sum_sq, m.sum_ln, m.sum_ln_sq]) {
        hash.add(if sum.is_nan() { f64::NAN.to_bits() } else { sum.to_bits() });
    }
    writeln!(out, "row of {name}: {:?}, all {:016x}", row.counts(), hash.get())?;
    // Non-empty bins, by the exponent of their upper end.
    write!(out, "  bins")?;
    let mut last = (i32::MIN, 0);
    for (c, &count) in (-127..).zip(row.bins().map_or(&[][..], |bins| bins)) {
        // Runs of equal bins are joined, because the edge cases fill most bins equally.
        if count != last.1 {
            last = (c, count);
            write!(out, " {c}:{count}")?;
        }
    }
    writeln!(out)
}
