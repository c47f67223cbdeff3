//! Conversion of formats, details and rows between Python and Rust.

use crate::wrong;
use gradscale_core::{
    cast::Round,
    format::Format,
    stats::{Detail, Stats, WORDS},
    store_format::StoreFormat,
};
use pyo3::{PyResult, exceptions::PyValueError};

/// Number of 32-bit words of a row in Python: those of core, the row's exponent, its format, and zeros up to whole cache
/// lines, so that the counters of every row of an array are aligned for a device that adds to them.
pub const ROW_WORDS: usize = 288;

/// Converts the words of a NumPy array to a statistics row.
pub fn row_of(words: &[u32]) -> PyResult<Stats> {
    let (Some((row, [exponent, format, ..])), ROW_WORDS) = (words.split_at_checked(WORDS), words.len()) else {
        return Err(wrong(format!("a row has {ROW_WORDS} words, not {}", words.len())));
    };
    Stats::from_words(row, store_format(*format)?.convention(), exponent.cast_signed()).map_err(wrong)
}

/// Converts a statistics row to the words of a NumPy array.
pub fn words_of(row: &Stats) -> [u32; ROW_WORDS] {
    let mut words = [0; ROW_WORDS];
    words[..WORDS].copy_from_slice(&row.to_words());
    words[WORDS] = row.exponent().cast_unsigned();
    words[WORDS + 1] = store_format_code(format_of(row));
    words
}

/// Returns the format of the stores that a row counted.
pub fn format_of(row: &Stats) -> StoreFormat {
    let counts = |format: &StoreFormat| format.convention() == row.convention();
    StoreFormat::ALL.into_iter().find(counts).unwrap_or_default()
}

/// Returns the number by which arrays and operators know a format of stores: 0 for FP16, as in rows from before formats.
#[expect(clippy::cast_possible_truncation, reason = "there are three formats")]
pub fn store_format_code(format: StoreFormat) -> u32 {
    StoreFormat::ALL.iter().position(|other| *other == format).unwrap_or_default() as u32
}

/// Converts the number of a format of stores to the format.
pub fn store_format(code: u32) -> PyResult<StoreFormat> {
    let format = usize::try_from(code).ok().and_then(|code| StoreFormat::ALL.get(code));
    format.copied().ok_or_else(|| wrong(format!("{code} is not a format of stores")))
}

/// Merges a row into `words`, which has the rows of the site's earlier calls in this step, or zeros before the first
/// call.
pub fn merge_into(words: &mut [u32], row: &Stats) -> PyResult<()> {
    if row.detail() == Detail::None {
        return Ok(());
    }
    let before = row_of(words)?;
    let all = if before.detail() == Detail::None { *row } else { before.merge(row).map_err(wrong)? };
    words.copy_from_slice(&words_of(&all));
    Ok(())
}

/// Converts a detail's number to a row's level of detail.
pub fn detail(code: u32) -> PyResult<Detail> {
    let all = [Detail::None, Detail::Counts, Detail::Full, Detail::Moments];
    all.into_iter().find(|detail| detail.code() == code).ok_or_else(|| wrong(format!("{code} is not a detail")))
}

/// Returns the name of a level of detail.
pub const fn detail_name(detail: Detail) -> &'static str {
    match detail {
        Detail::None => "none",
        Detail::Counts => "counts",
        Detail::Full => "histogram",
        Detail::Moments => "moments",
    }
}

/// Parses one of the names of a format.
pub fn format(name: &str) -> PyResult<Format> {
    let (name, saturating) = match name.strip_suffix(",saturating") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let custom = |name: &str| {
        let (exponent, mantissa) = name.strip_prefix('e')?.split_once('m')?;
        Format::custom(exponent.parse().ok()?, mantissa.parse().ok()?)
    };
    let format = match name {
        "fp16" | "float16" | "binary16" | "half" => Format::FP16,
        "bf16" | "bfloat16" => Format::BF16,
        "e5m2" | "float8_e5m2" => Format::E5M2,
        "e4m3" | "e4m3fn" | "float8_e4m3fn" => Format::E4M3,
        "tf32" => Format::TF32,
        "fp32" | "float32" | "binary32" => Format::FP32,
        other => custom(other).ok_or_else(|| {
            wrong(format!(
                "{other} is not a format; choose fp16, bf16, e5m2, e4m3, tf32, fp32, or eXmY with X from 2 \
                to 8 and Y from 1 to 23"
            ))
        })?,
    };
    Ok(if saturating { format.saturating() } else { format })
}

/// Parses the name of a rounding mode. The random numbers of stochastic rounding are set elsewhere.
pub fn round(name: &str) -> PyResult<Round> {
    match name {
        "nearest_even" => Ok(Round::NearestEven),
        "toward_zero" => Ok(Round::TowardZero),
        "stochastic" => Ok(Round::Stochastic(0)),
        other => Err(PyValueError::new_err(format!(
            "{other} is not a rounding; choose nearest_even, toward_zero or stochastic"
        ))),
    }
}
