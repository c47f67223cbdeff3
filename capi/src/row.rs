//! Rows of statistics.

use crate::{
    memory::{GS_ABI_VERSION, Plain, read, slice, slice_apart, write},
    status::{
        answer, format,
        gs_status::{self, GS_ERROR_DETAIL, GS_ERROR_ENUM, GS_ERROR_FORMAT, GS_ERROR_VERSION},
    },
};
use gradscale_core::{
    cast::{Round, encode_slice, f16_slice_from_f32},
    format::Format,
    scale::Factor,
    stats::{Convention, Counts, Detail, FlushRule, Stats},
};
use half::f16;

/// Number of 32-bit words of a gs_row.
pub const GS_ROW_WORDS: usize = 280;
const _: () = assert!(GS_ROW_WORDS == gradscale_core::stats::WORDS, "cbindgen wants a number");

/// Flush rule: result of a device's store below the smallest normal number. The thresholds are those of FP16.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_flush {
    /// Nearest even, subnormals kept: at most 2^-25 flushes. All casts of this library follow it.
    GS_FLUSH_NEAREST = 0,
    /// Toward zero, subnormals kept: below 2^-24 flushes.
    GS_FLUSH_TOWARD_ZERO = 1,
    /// Subnormals are flushed before rounding: below 2^-14.
    GS_FLUSH_BEFORE_ROUNDING = 2,
    /// Rounded onto the format's grid, then flushed: below 2^-14 - 2^-25.
    GS_FLUSH_AFTER_ROUNDING = 3,
    /// Rounded as if the exponent were unbounded, then flushed: below 2^-14 - 2^-26.
    GS_FLUSH_AFTER_UNBOUNDED_ROUNDING = 4,
}

/// Level of detail of a row; each level includes those before it.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_detail {
    /// Statistics are off: the row counts nothing.
    GS_DETAIL_NONE = 0,
    /// The row has counters and the largest magnitude.
    GS_DETAIL_COUNTS = 1,
    /// Also the histogram, in steps that decide.
    GS_DETAIL_HISTOGRAM = 2,
    /// Also sums, for models of the caller.
    GS_DETAIL_MOMENTS = 3,
}

/// Statistics row: summary of all values that one store rounded. A device may write the words itself:
///
/// | words    | content                                                                                       |
/// | -------- | --------------------------------------------------------------------------------------------- |
/// | 0..14    | count, zeros, infinite, nan, flushed, overflowed, subnormal: 64 bits each, low word first     |
/// | 14       | bits of the largest finite magnitude                                                          |
/// | 15       | gs_detail                                                                                     |
/// | 16..24   | sums of u, u^2, ln|u|, ln^2|u|: each as two floats, the large part first                      |
/// | 24..280  | histogram: bin (bits(|u|) + 0x7fffff) >> 23 counts the finite u that are not zero (nearest even) |
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct gs_row {
    /// Version of the structure: GS_ABI_VERSION.
    pub version: u32,
    /// Format of the store, a gs_format.
    pub format: u32,
    /// Flush rule of the store, a gs_flush.
    pub flush: u32,
    /// Exponent at which the values were observed: true magnitude = |u| * 2^-exponent.
    pub exponent: i32,
    /// Counters, sums and histogram of the values, as in the table above.
    pub words: [u32; GS_ROW_WORDS],
}

// SAFETY: integers.
unsafe impl Plain for gs_row {}

/// Counters of a statistics row.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct gs_counts {
    /// Number of all values in the row.
    pub count: u64,
    /// Number of values that were zero before the store.
    pub zeros: u64,
    /// Number of values that were infinite before the store.
    pub infinite: u64,
    /// Number of values that were NaN before the store.
    pub nan: u64,
    /// Number of non-zero values that became zero in the store.
    pub flushed: u64,
    /// Number of finite values that were too large for the store's format.
    pub overflowed: u64,
    /// Number of values that were stored as subnormals.
    pub subnormal: u64,
    /// Largest finite magnitude, 0 if there is none.
    pub amax: f32,
    /// Exponent at which the values were observed.
    pub exponent: i32,
}

// SAFETY: numbers.
unsafe impl Plain for gs_counts {}

pub(crate) fn detail(number: u32) -> Result<Detail, gs_status> {
    [Detail::None, Detail::Counts, Detail::Full, Detail::Moments]
        .into_iter()
        .find(|detail| detail.code() == number)
        .ok_or(GS_ERROR_ENUM)
}

impl gs_row {
    pub(crate) fn open(&self) -> Result<Stats, gs_status> {
        if self.version != GS_ABI_VERSION {
            return Err(GS_ERROR_VERSION);
        }
        let rule = usize::try_from(self.flush).ok().and_then(|at| FlushRule::ALL.get(at)).ok_or(GS_ERROR_ENUM)?;
        let convention = Convention::new(format(self.format)?, *rule)?;
        Ok(Stats::from_words(&self.words, convention, self.exponent)?)
    }

    fn with(self, row: &Stats) -> Self {
        Self { words: row.to_words(), ..self }
    }
}

/// # Safety
/// As for [`read`].
pub(crate) unsafe fn row_at(row: *const gs_row) -> Result<Stats, gs_status> {
    // SAFETY: promised by the caller.
    unsafe { read(row) }?.open()
}

/// Initialises an empty row for a store at exponent: the values of gs_site_request, or 0 and GS_DETAIL_HISTOGRAM to
/// observe values unscaled. GS_BF16 has no rows, because it has the range of f32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_init(
    row: *mut gs_row, format: u32, flush: u32, exponent: i32, detail: u32,
) -> gs_status {
    answer(|| {
        let mut new = gs_row { version: GS_ABI_VERSION, format, flush, exponent, words: [0; GS_ROW_WORDS] };
        let convention = new.open()?.convention();
        new.words = Stats::new(convention, exponent, self::detail(detail)?).to_words();
        // SAFETY: promised by the caller.
        unsafe { write(row, new) }
    })
}

/// Adds count values to a row, as the store sees them: multiplied by 2^exponent, before rounding.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_observe(row: *mut gs_row, u: *const f32, count: usize) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let (old, u) = unsafe { (read(row)?, slice(u, count)?) };
        let mut stats = old.open()?;
        stats.observe(u);
        // SAFETY: promised by the caller.
        unsafe { write(row, old.with(&stats)) }
    })
}

/// Adds the statistics of another row: of another micro-batch, call or thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_merge(row: *mut gs_row, other: *const gs_row) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let (old, other) = unsafe { (read(row)?, row_at(other)?) };
        let merged = old.open()?.merge(&other)?;
        // SAFETY: promised by the caller.
        unsafe { write(row, old.with(&merged)) }
    })
}

/// Returns the counters of a row in counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_counts(row: *const gs_row, counts: *mut gs_counts) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let row = unsafe { row_at(row)? };
        let Counts { count, zeros, infinite, nan, flushed, overflowed, subnormal, amax, exponent } = *row.counts();
        let all = gs_counts { count, zeros, infinite, nan, flushed, overflowed, subnormal, amax, exponent };
        // SAFETY: promised by the caller.
        unsafe { write(counts, all) }
    })
}

/// Computes the fraction of the non-zero values that flushes at the row's exponent + exponent_delta. Returns
/// GS_ERROR_DETAIL without a histogram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_flushed_at(row: *const gs_row, exponent_delta: i32, share: *mut f64) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let rate = unsafe { row_at(row)? }.flushed_at(exponent_delta).ok_or(GS_ERROR_DETAIL)?;
        // SAFETY: promised by the caller.
        unsafe { write(share, rate.value()) }
    })
}

/// Computes the fraction of the sum of magnitudes that flushes at the row's exponent + exponent_delta, within a factor
/// of 2. Returns GS_ERROR_DETAIL without a histogram.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_lost_at(row: *const gs_row, exponent_delta: i32, share: *mut f64) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let lost = unsafe { row_at(row)? }.lost_at(exponent_delta).ok_or(GS_ERROR_DETAIL)?;
        // SAFETY: promised by the caller.
        unsafe { write(share, lost) }
    })
}

/// Stores a gradient in eight bits, otherwise like gs_row_store_fp16: rounds each value once to the row's format and writes
/// its bit pattern. The row's format must be one of the 8-bit formats; a saturating one writes its largest number where a
/// value overflows, and counts the overflow all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_store8(
    row: *mut gs_row, v: *const f32, from_exponent: i32, y: *mut u8, count: usize,
) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let (old, v, y) = unsafe {
            let v = slice(v, count)?;
            (read(row)?, v, slice_apart(y, count, v)?)
        };
        let format = format(old.format)?;
        if format.width() != 8 {
            return Err(GS_ERROR_FORMAT);
        }
        let stats = store(old.open()?, v, from_exponent, y, |scaled, y| {
            Ok(encode_slice(format, scaled, y, Round::NearestEven).map(|_| ())?)
        })?;
        // SAFETY: promised by the caller.
        unsafe { write(row, old.with(&stats)) }
    })
}

/// Scales values to the exponent of a row in blocks, adds each block to the row, and passes it on to be encoded. Returns
/// the new row.
fn store<W>(
    mut stats: Stats, v: &[f32], from_exponent: i32, y: &mut [W],
    mut encode: impl FnMut(&[f32], &mut [W]) -> Result<(), gs_status>,
) -> Result<Stats, gs_status> {
    let factor = Factor::between(from_exponent, stats.exponent());
    let mut scaled = [0.0; BLOCK];
    for (v, y) in v.chunks(BLOCK).zip(y.chunks_mut(BLOCK)) {
        let Some(scaled) = scaled.get_mut(..v.len()) else { continue };
        for (scaled, &v) in scaled.iter_mut().zip(v) {
            *scaled = factor.apply(v);
        }
        stats.observe(scaled);
        encode(scaled, y)?;
    }
    Ok(stats)
}

/// Number of elements that are scaled at a time. Their floats are 1 KiB, which fits the stack of a microcontroller.
const BLOCK: usize = 256;

/// Stores a gradient: multiplies count values at from_exponent by 2^(row.exponent - from_exponent), adds them to the
/// row, rounds each once to FP16, nearest even, and writes it. The row's format must be GS_FP16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_row_store_fp16(
    row: *mut gs_row, v: *const f32, from_exponent: i32, y: *mut u16, count: usize,
) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let (old, v, y) = unsafe {
            let v = slice(v, count)?;
            (read(row)?, v, slice_apart(y, count, v)?)
        };
        let stats = old.open()?;
        if stats.convention().format() != Format::FP16 {
            return Err(GS_ERROR_FORMAT);
        }
        let mut halves = [f16::ZERO; BLOCK];
        let stats = store(stats, v, from_exponent, y, |scaled, y| {
            let Some(halves) = halves.get_mut(..scaled.len()) else { return Ok(()) };
            f16_slice_from_f32(scaled, halves, Round::NearestEven)?;
            for (y, half) in y.iter_mut().zip(halves) {
                *y = half.to_bits();
            }
            Ok(())
        })?;
        // SAFETY: promised by the caller.
        unsafe { write(row, old.with(&stats)) }
    })
}
