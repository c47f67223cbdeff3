//! Inputs that are identical on every machine: edge cases of all formats, and seeded random numbers.

/// Significand bits below the upper four of the test inputs: none; half a last place of E4M3, bfloat16 and binary16;
/// all ones down to the middle above the largest bfloat16 and binary16.
const TAILS: [u32; 6] = [0, 1 << 19, 1 << 15, 1 << 12, 0x000f_8000, 0x000f_f000];

/// Bits of special f32: the largest one, ∞, and NaNs: signalling, quiet, with all payload bits, and with payload bits
/// below those that a half keeps.
const SPECIAL: [u32; 6] = [0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff, 0x7fbf_e001];

/// Returns the `k`-th random number: SplitMix32, multiplications and shifts of a counter, so it needs no history.
#[must_use]
pub const fn random(k: u32) -> u32 {
    let mut z = k.wrapping_mul(0x9e37_79b9).wrapping_add(0x7f4a_7c15);
    z = (z ^ (z >> 16)).wrapping_mul(0x21f0_aaad);
    z = (z ^ (z >> 15)).wrapping_mul(0x735a_2d97);
    z ^ (z >> 15)
}

/// Returns f32 patterns at and around every position where some format rounds differently. They are each exponent, each
/// upper part of the significand, each of [`TAILS`], one last place to either side, both signs; then [`SPECIAL`].
pub fn edges() -> impl Iterator<Item = u32> {
    (0..255u32 << 3)
        .flat_map(|upper| TAILS.map(|tail| upper << 20 | tail))
        .flat_map(|bits| [bits.saturating_sub(1), bits, bits + 1])
        .chain((0..23).map(|digit| 1 << digit))
        .chain(SPECIAL)
        .flat_map(|bits| [bits, bits | 0x8000_0000])
}

/// Returns `n` random patterns, then `n` with exponents between 2^-27 and 2^16, because only one in six of the former
/// becomes a finite half other than 0.
pub fn randoms(n: u32) -> impl Iterator<Item = u32> {
    let near = |r: u32| r & 0x807f_ffff | (100 + random(!r) % 44) << 23;
    (0..n).map(random).chain((n..2 * n).map(move |k| near(random(k))))
}

/// Returns element `i` of a tensor like the gradient before a ReLU: two in three are ±0, the others are between
/// 2^(centre − 8) and 2^(centre + 8).
#[must_use]
pub fn gradient(seed: u32, i: u32, centre: i32) -> f32 {
    let r = random(i ^ seed.wrapping_mul(0x0100_0193));
    if !r.is_multiple_of(3) {
        return f32::from_bits(r & 0x8000_0000);
    }
    let field = centre + 119 + (r >> 4 & 15).cast_signed();
    f32::from_bits(r & 0x8000_0000 | field.cast_unsigned() << 23 | random(!r) & 0x007f_ffff)
}
