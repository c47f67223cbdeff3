//! Conversion of sounds to another sampling rate.

#[cfg(any(test, not(feature = "speech")))]
mod absent;
#[cfg(feature = "speech")]
mod computed;

#[cfg(not(feature = "speech"))]
pub use absent::resample;
#[cfg(feature = "speech")]
pub use computed::resample;
