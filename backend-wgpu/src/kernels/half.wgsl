// binary16 made of integers, the same bits on every driver: f32 subnormals are honoured, whatever the device's
// arithmetic does with them. Reference: core's `Format::encode` and `Format::decode`; IEEE 754-2019 §4.3.1, §5.4.2.
//
// Kernels convert through the functions of a decode_….wgsl and an encode_….wgsl. They use these integers, or the
// device's own conversion where conversions.wgsl has shown that it has the same bits.

const F32_MAGNITUDE: u32 = 0x7fffffffu;
const F32_INFINITY: u32 = 0x7f800000u;
const F32_NAN: u32 = 0x7fc00000u;
const F32_HIDDEN: u32 = 0x00800000u;
/// Bits of 65520, the least magnitude that rounds to ∞, and of 2^-14, the least normal half.
const HALF_OVERFLOW: u32 = 0x477ff000u;
const HALF_NORMAL: u32 = 0x38800000u;

/// Drops `shift` digits (1 to 31), to nearest even.
fn round_shift(digits: u32, shift: u32) -> u32 {
    let kept = digits >> shift;
    let rest = digits & ((1u << shift) - 1u);
    let tie = 1u << (shift - 1u);
    return kept + select(0u, 1u, rest > tie || (rest == tie && (kept & 1u) == 1u));
}

/// Returns the half, in the lower 16 bits, of an f32 that is NaN: quiet, with the upper bits of its payload.
fn nan_to_half_bits(x: u32) -> u32 {
    return ((x >> 16u) & F16_SIGN) | F16_NAN | ((x >> 13u) & 0x3ffu);
}

/// Returns the half, in the lower 16 bits, nearest to the f32 with these bits.
fn encode_by_integers(x: u32) -> u32 {
    let sign = (x >> 16u) & F16_SIGN;
    let m = x & F32_MAGNITUDE;
    if m >= HALF_OVERFLOW {
        return select(sign | F16_INFINITY, nan_to_half_bits(x), m > F32_INFINITY);
    }
    if m >= HALF_NORMAL {
        return sign | (((m + 0xfffu + ((m >> 13u) & 1u)) >> 13u) - (112u << 10u));
    }
    // In units of 2^-24; values below half a unit are 0.
    return sign | round_shift((m & (F32_HIDDEN - 1u)) | F32_HIDDEN, min(126u - (m >> 23u), 25u));
}

/// Returns the f32, as bits, with the value of the half in the lower 16 bits.
fn decode_by_integers(h: u32) -> u32 {
    let sign = (h & F16_SIGN) << 16u;
    let m = h & (F16_SIGN - 1u);
    if m >= F16_INFINITY {
        return sign | select(F32_INFINITY, F32_NAN | (m << 13u), m > F16_INFINITY);
    }
    if m >= 0x400u {
        return sign | ((m << 13u) + (112u << 23u));
    }
    // m · 2^-24: an integer becomes an f32 exactly, and its exponent is then lowered.
    return sign | select(0u, bitcast<u32>(f32(m)) - (24u << 23u), m != 0u);
}

/// Returns the f32 with these bits. A function, because a constant expression may not be NaN.
fn bits_as_float(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}
