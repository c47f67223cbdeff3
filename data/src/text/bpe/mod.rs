//! Words taken apart into pieces that occur often: byte-pair encoding (Sennrich et al. 2016).

#[cfg(any(test, not(feature = "translation")))]
mod absent;
#[cfg(feature = "translation")]
mod learned;

#[cfg(not(feature = "translation"))]
pub use absent::Pieces;
#[cfg(feature = "translation")]
pub use learned::Pieces;

/// Default number of byte-pair pieces in a language's vocabulary.
pub const PIECES: u16 = 2000;
/// Token that pads sequences to one length.
pub const PAD_TOKEN: u32 = 0;
/// Token at the begin of a sequence.
pub const BEGIN: u32 = 1;
/// Token at the end of a sequence.
pub const END: u32 = 2;
