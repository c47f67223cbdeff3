//! Constants that the kernels of all devices share.

use super::{
    buffer::DType,
    control::{DETAIL, HEADER, SEED, SLOTS},
};
use crate::{
    format::Format,
    ops::{BinaryOp, Broadcast, Divisor, Pass, ReduceOp, Rule, SoftmaxColumns, Unary},
    stats::{BINS, Convention, Detail, LIGHT_WORDS, WORDS, words},
};

/// Names and values of constants for kernels. Backends inject them as constants or preprocessor definitions, so that no
/// kernel contains the numbers.
pub const ABI: &[&[(&str, u32)]] = &[
    NUMBERS,
    DType::CODES,
    Detail::CODES,
    Unary::CODES,
    BinaryOp::CODES,
    Broadcast::CODES,
    ReduceOp::CODES,
    Pass::CODES,
    Divisor::CODES,
    Rule::CODES,
    SoftmaxColumns::CODES,
];

/// Formats, word offsets in rows ([`Stats::from_words`](crate::stats::Stats::from_words)) and in a
/// [`Control`](super::Control), and the magnitudes from which a store of half counts an event.
#[expect(clippy::cast_possible_truncation, reason = "numbers of words below 2^16")]
const NUMBERS: &[(&str, u32)] = &[
    ("F16_SIGN", Format::FP16.sign_mask()),
    ("F16_MAX", Format::FP16.max_bits()),
    ("F16_INFINITY", Format::FP16.max_bits() + 1),
    ("F16_NAN", Format::FP16.nan_bits()),
    ("ROW_WORDS", WORDS as u32),
    ("ROW_INFINITE", words::INFINITE as u32),
    ("ROW_OVERFLOWED", words::OVERFLOWED as u32),
    ("ROW_AMAX", words::AMAX as u32),
    ("ROW_DETAIL", words::DETAIL as u32),
    ("ROW_SUMS", LIGHT_WORDS as u32),
    ("ROW_HISTOGRAM", words::HISTOGRAM as u32),
    ("ROW_BINS", BINS as u32),
    ("FLUSH_END", Convention::FP16.flush_end()),
    ("SUBNORMAL_END", Convention::FP16.subnormal_end()),
    ("OVERFLOW_START", Convention::FP16.overflow_start()),
    ("KEY_CONSTANT", Convention::FP16.key_constant()),
    ("CONTROL_DETAIL", DETAIL as u32),
    ("CONTROL_SEED", SEED as u32),
    ("CONTROL_SLOTS", SLOTS as u32),
    ("CONTROL_HEADER", HEADER as u32),
];
