//! Log spectra, the input of speech networks.

#[cfg(not(feature = "speech"))]
mod absent;
#[cfg(feature = "speech")]
mod computed;

#[cfg(not(feature = "speech"))]
pub use absent::Spectra;
#[cfg(feature = "speech")]
pub use computed::Spectra;

/// Milliseconds of sound in a spectrum, and from one to the next (Deep Speech 2).
const WINDOW: u32 = 20;
const STRIDE: u32 = 10;
/// Sampling rates of recordings that are accepted, in samples a second.
const RATES: std::ops::RangeInclusive<u32> = 1000..=384_000;

/// Checks the sampling rate of a recording, since a filter between any two rates may take much memory.
///
/// # Errors
/// A rate below 1 kHz or above 384 kHz.
pub(super) fn check_rate(rate: u32) -> Result<(), String> {
    if RATES.contains(&rate) {
        return Ok(());
    }
    Err(format!("sampled at {rate} Hz; choose a rate from {} to {} Hz", RATES.start(), RATES.end()))
}

/// Returns the shortest sound with this number of frames, in seconds.
pub fn min_seconds(frames: usize) -> f64 {
    let strides = frames.saturating_sub(1) as f64;
    (f64::from(WINDOW) + f64::from(STRIDE) * strides) / 1000.0
}
