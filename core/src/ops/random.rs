//! Counter-based random numbers, which do not depend on the order of execution.

/// Position of an element, for operators that draw a random number for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct At {
    /// Random seed of the step, from [`crate::backend::Control`].
    pub seed: u64,
    /// Index of the element in the output of the operator.
    pub index: u32,
}

/// Computes a random u32 for (seed, stream, index). It uses 32-bit operations only, so that shaders can compute it too.
///
/// Each word is mixed by a bijection of 32 bits (xor-shifts and odd multipliers).
#[inline]
#[must_use]
pub const fn hash(at: At, stream: u32) -> u32 {
    let [a, b, c, d, e, f, g, h] = at.seed.to_le_bytes();
    let mut x = mix(u32::from_le_bytes([a, b, c, d]) ^ 0x9E37_79B9);
    x = mix(x ^ u32::from_le_bytes([e, f, g, h]));
    x = mix(x ^ stream);
    mix(x ^ at.index)
}

const fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7FEB_352D);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846C_A68B);
    x ^ x >> 16
}

/// Returns the fraction `keep` in units of 2^-24, as [`dropout_keeps`] compares it.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; keep is in (0, 1]")]
pub const fn dropout_threshold(keep: f32) -> u32 {
    (keep * 16_777_216.0) as u32
}

/// Returns true if dropout keeps an element: the upper 24 bits of its random number are below the threshold.
#[inline]
#[must_use]
pub const fn dropout_keeps(at: At, stream: u32, keep: f32) -> bool {
    hash(at, stream) >> 8 < dropout_threshold(keep)
}
