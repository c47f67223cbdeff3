//! Reduce modes of gradients over ranks, and their overlap with the backward pass.

use std::{fmt, str::FromStr};

/// Arithmetic of the sum over the gradients of all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReduceMode {
    /// Exact FP16 sums that are rounded once: the bits are the same for any number of ranks. Each rank sends half the
    /// bytes of f32 if it has one micro-batch.
    #[default]
    ExactF16,
    /// Native f32 sums, by the all-reduce of the transport: bits depend on the number of ranks and on the transport.
    NativeF32,
}

impl ReduceMode {
    /// All modes of reducing gradients over ranks.
    pub const ALL: [Self; 2] = [Self::ExactF16, Self::NativeF32];
}

impl fmt::Display for ReduceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExactF16 => "exact",
            Self::NativeF32 => "fast",
        })
    }
}

impl FromStr for ReduceMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("{text} is not an exchange; choose exact or fast"))
    }
}

/// Minimum number of weights of a bucket: with fewer, the cost of a message exceeds that of its bytes.
const MIN_BUCKET_SIZE: usize = 1 << 16;
/// Number of buckets of a large network: it needs few messages, and 15 of 16 buckets can be sent before the backward
/// pass ends.
const BUCKETS: usize = 16;

/// Overlap of gradient communication with the backward pass. Bits do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// Automatic overlap: sends buckets during the backward pass of the rank's last micro-batch, as soon as their
    /// gradients are complete. A bucket has 65,536 weights or a sixteenth of all weights, whichever is more.
    #[default]
    Auto,
    /// Overlap with buckets of at least this many weights; the gradient of one parameter is never split.
    BucketSize(usize),
    /// No overlap: sends gradients after the backward pass.
    Off,
}

impl Overlap {
    /// Returns the minimum bucket size for a network of `weights` weights; `None` without overlap.
    pub(crate) fn bucket_size(self, weights: usize) -> Option<usize> {
        match self {
            Self::Auto => Some((weights / BUCKETS).max(MIN_BUCKET_SIZE)),
            Self::BucketSize(size) => Some(size),
            Self::Off => None,
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("on"),
            Self::BucketSize(size) => write!(f, "{size}"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("on", _) => Ok(Self::Auto),
            ("off", _) => Ok(Self::Off),
            (_, Ok(size)) if size > 0 => Ok(Self::BucketSize(size)),
            _ => Err(format!("{text} is not an overlap; choose on, off or the number of weights in a bucket")),
        }
    }
}
