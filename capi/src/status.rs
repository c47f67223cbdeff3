//! Status codes of all functions.

use core::ffi::{CStr, c_char};
use gradscale_core::{
    cast::SliceError,
    format::Format,
    loss_scale::{ScheduleError, StateError},
    site::WordsError,
    solve::ConfigError,
    stats::{FormatTooWide, MergeError, RowError},
    store_format::StoreFormat,
};

/// Status that every function returns. gs_status_string has a sentence for each.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_status {
    /// The function succeeded.
    GS_OK = 0,
    /// A pointer is NULL, or misaligned for its type.
    GS_ERROR_POINTER = 1,
    /// The number of elements exceeds the address space.
    GS_ERROR_LENGTH = 2,
    /// Source and destination overlap.
    GS_ERROR_OVERLAP = 3,
    /// A structure was not initialised, or by another version of this library.
    GS_ERROR_VERSION = 4,
    /// A structure was modified after it was initialised.
    GS_ERROR_CORRUPTED = 5,
    /// A number is not a value of its enum.
    GS_ERROR_ENUM = 6,
    /// The bit patterns of the format do not have the width of the function, the row has another format than its site, or no
    /// site has that format.
    GS_ERROR_FORMAT = 7,
    /// Stochastic rounding without random numbers.
    GS_ERROR_RANDOM = 8,
    /// The words of a row contradict each other, so no store wrote them.
    GS_ERROR_ROW = 9,
    /// Rows of different formats, rules, exponents or details do not merge.
    GS_ERROR_MERGE = 10,
    /// A row was observed in too little detail for the function.
    GS_ERROR_DETAIL = 11,
    /// The site has not decided yet.
    GS_ERROR_NO_DECISION = 12,
    /// The threshold must be between 1e-6 and 1.
    GS_ERROR_GAMMA = 13,
    /// The window must be 0 to 30 exponents.
    GS_ERROR_WINDOW = 14,
    /// The headroom must be 2 to 30 exponents.
    GS_ERROR_HEADROOM = 15,
    /// Intervals and hysteresis must be at least one step.
    GS_ERROR_INTERVAL = 16,
    /// Outliers must be 8 to 100 exponents above the others.
    GS_ERROR_OUTLIERS = 17,
    /// A loss scale must be a power of two from 2^-126 to 2^126.
    GS_ERROR_SCALE = 18,
    /// The limits of a loss scale must be between 2^-126 and 2^126, the minimum first.
    GS_ERROR_BOUNDS = 19,
    /// The start of a loss scale is outside its limits.
    GS_ERROR_INIT = 20,
    /// Growth must be above and backoff below 2^0.
    GS_ERROR_FACTOR = 21,
    /// A tolerance must be below one million parts per million.
    GS_ERROR_TOLERANCE = 22,
    /// A rising minimum must rise, within the limits, in at most eight steps.
    GS_ERROR_FLOOR = 23,
    /// A decay must be in [0, 1), and a quantile must be finite and not negative.
    GS_ERROR_DECAY = 24,
    /// A history must hold 1 to 16 steps.
    GS_ERROR_HISTORY = 25,
    /// An error for which this version of the library has no number.
    GS_ERROR_OTHER = 26,
}

use gs_status::*;

/// All statuses except GS_OK, in the order of their numbers.
const ERRORS: [gs_status; 26] = [
    GS_ERROR_POINTER,
    GS_ERROR_LENGTH,
    GS_ERROR_OVERLAP,
    GS_ERROR_VERSION,
    GS_ERROR_CORRUPTED,
    GS_ERROR_ENUM,
    GS_ERROR_FORMAT,
    GS_ERROR_RANDOM,
    GS_ERROR_ROW,
    GS_ERROR_MERGE,
    GS_ERROR_DETAIL,
    GS_ERROR_NO_DECISION,
    GS_ERROR_GAMMA,
    GS_ERROR_WINDOW,
    GS_ERROR_HEADROOM,
    GS_ERROR_INTERVAL,
    GS_ERROR_OUTLIERS,
    GS_ERROR_SCALE,
    GS_ERROR_BOUNDS,
    GS_ERROR_INIT,
    GS_ERROR_FACTOR,
    GS_ERROR_TOLERANCE,
    GS_ERROR_FLOOR,
    GS_ERROR_DECAY,
    GS_ERROR_HISTORY,
    GS_ERROR_OTHER,
];

impl gs_status {
    const fn text(self) -> &'static CStr {
        match self {
            GS_OK => c"done",
            GS_ERROR_POINTER => c"a pointer is NULL or misaligned for its type",
            GS_ERROR_LENGTH => c"the number of elements exceeds the address space",
            GS_ERROR_OVERLAP => c"source and destination overlap",
            GS_ERROR_VERSION => c"a structure is not initialised, or was by another version of this library; call its init function first",
            GS_ERROR_CORRUPTED => c"a structure was overwritten after it was initialised; only functions of this library may write it",
            GS_ERROR_ENUM => c"a number is not a value of its enum",
            GS_ERROR_FORMAT => c"the format does not fit: its patterns are not as wide as the elements, or the row has another format than its site, or no site has that format",
            GS_ERROR_RANDOM => c"stochastic rounding needs random numbers, one for each element; pass an array of them",
            GS_ERROR_ROW => c"the words of a row contradict each other; pass a row as a store or gs_row_init wrote it",
            GS_ERROR_MERGE => c"rows with different formats, flush rules, exponents or details cannot be merged",
            GS_ERROR_DETAIL => c"the row was observed in too little detail; store with a histogram",
            GS_ERROR_NO_DECISION => c"there is no such result yet, for example because the site has not decided",
            GS_ERROR_GAMMA => c"the threshold must be between 1e-6 and 1",
            GS_ERROR_WINDOW => c"the window must be 0 to 30 exponents",
            GS_ERROR_HEADROOM => c"the room must be 2 to 30 exponents",
            GS_ERROR_INTERVAL => c"intervals and hysteresis must be at least one step",
            GS_ERROR_OUTLIERS => c"outliers must be 8 to 100 exponents above the others",
            GS_ERROR_SCALE => c"a loss scale must be a power of two from 2^-126 to 2^126",
            GS_ERROR_BOUNDS => c"the limits of a loss scale must be between 2^-126 and 2^126, the minimum first",
            GS_ERROR_INIT => c"the first exponent of a loss scale must be within its limits",
            GS_ERROR_FACTOR => c"the growth factor must be above 1 and the backoff factor below 1",
            GS_ERROR_TOLERANCE => c"a tolerance must be below 1000000 parts per million",
            GS_ERROR_FLOOR => c"a rising minimum must have at most eight increasing exponents, all within the limits",
            GS_ERROR_DECAY => c"a decay must be in [0, 1), and a quantile must be finite and not negative",
            GS_ERROR_HISTORY => c"a history must hold 1 to 16 steps",
            GS_ERROR_OTHER => c"an error that this version of the library has no status for; install the header and the library of one version",
        }
    }
}

/// Returns the sentence of a status, without a full stop; an invalid number has a sentence too. Never NULL; do not free
/// it.
#[unsafe(no_mangle)]
pub extern "C" fn gs_status_string(status: i32) -> *const c_char {
    let known = core::iter::once(&GS_OK).chain(&ERRORS).find(|known| **known as i32 == status);
    known.map_or(c"not a status", |known| known.text()).as_ptr()
}

/// Runs the body of a function and returns its status.
pub(crate) fn answer(body: impl FnOnce() -> Result<(), gs_status>) -> gs_status {
    body().err().unwrap_or(GS_OK)
}

impl From<RowError> for gs_status {
    fn from(_: RowError) -> Self {
        GS_ERROR_ROW
    }
}

impl From<MergeError> for gs_status {
    fn from(_: MergeError) -> Self {
        GS_ERROR_MERGE
    }
}

impl From<FormatTooWide> for gs_status {
    fn from(FormatTooWide(_): FormatTooWide) -> Self {
        GS_ERROR_FORMAT
    }
}

impl From<SliceError> for gs_status {
    fn from(error: SliceError) -> Self {
        match error {
            SliceError::Width { .. } => GS_ERROR_FORMAT,
            SliceError::Length { .. } => GS_ERROR_LENGTH,
            _ => GS_ERROR_OTHER,
        }
    }
}

impl From<ConfigError> for gs_status {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Gamma(_) => GS_ERROR_GAMMA,
            ConfigError::Window(_) => GS_ERROR_WINDOW,
            ConfigError::Headroom(_) => GS_ERROR_HEADROOM,
            ConfigError::Interval => GS_ERROR_INTERVAL,
            ConfigError::Outliers(_) => GS_ERROR_OUTLIERS,
            _ => GS_ERROR_OTHER,
        }
    }
}

impl From<ScheduleError> for gs_status {
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::Scale(_) => GS_ERROR_SCALE,
            ScheduleError::Bounds { .. } => GS_ERROR_BOUNDS,
            ScheduleError::Start(_) => GS_ERROR_INIT,
            ScheduleError::Factor(_) => GS_ERROR_FACTOR,
            ScheduleError::Interval => GS_ERROR_INTERVAL,
            ScheduleError::Tolerance(_) => GS_ERROR_TOLERANCE,
            ScheduleError::Floor => GS_ERROR_FLOOR,
            ScheduleError::Decay(_) => GS_ERROR_DECAY,
            ScheduleError::History(_) => GS_ERROR_HISTORY,
            _ => GS_ERROR_OTHER,
        }
    }
}

// Words with a valid checksum and invalid content were written by code that computes the checksum.
impl From<WordsError> for gs_status {
    fn from(_: WordsError) -> Self {
        GS_ERROR_CORRUPTED
    }
}

impl From<StateError> for gs_status {
    fn from(_: StateError) -> Self {
        GS_ERROR_CORRUPTED
    }
}

/// Number format of a cast or a store.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_format {
    /// FP16: IEEE binary16, 5 exponent and 10 mantissa bits.
    GS_FP16 = 0,
    /// BF16: the upper half of binary32, 8 exponent and 7 mantissa bits.
    GS_BF16 = 1,
    /// OCP 8-bit E5M2, with infinities.
    GS_E5M2 = 2,
    /// OCP 8-bit E4M3: no infinities; too large becomes NaN.
    GS_E4M3 = 3,
    /// E5M2 whose casts saturate: too large becomes the largest finite number.
    GS_E5M2_SATURATING = 4,
    /// E4M3 whose casts saturate: too large becomes the largest finite number.
    GS_E4M3_SATURATING = 5,
}

/// Converts a number from C to a format of stores: FP16, E5M2 or E4M3.
pub(crate) fn store_format(number: u32) -> Result<StoreFormat, gs_status> {
    let wanted = format(number)?;
    let is_wanted = |store: &StoreFormat| store.format() == wanted;
    StoreFormat::ALL.into_iter().find(is_wanted).ok_or(GS_ERROR_FORMAT)
}

/// Converts a number from C to a format.
pub(crate) fn format(number: u32) -> Result<Format, gs_status> {
    Ok(match number {
        n if n == gs_format::GS_FP16 as u32 => Format::FP16,
        n if n == gs_format::GS_BF16 as u32 => Format::BF16,
        n if n == gs_format::GS_E5M2 as u32 => Format::E5M2,
        n if n == gs_format::GS_E4M3 as u32 => Format::E4M3,
        n if n == gs_format::GS_E5M2_SATURATING as u32 => Format::E5M2.saturating(),
        n if n == gs_format::GS_E4M3_SATURATING as u32 => Format::E4M3.saturating(),
        _ => return Err(GS_ERROR_ENUM),
    })
}
