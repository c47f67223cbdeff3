// Halves to f32 by integers, on devices whose own conversion has other bits. Needs half.wgsl.

/// Returns the f32, as bits, with the value of the half in the lower 16 bits; the upper ones are 0.
fn half_to_float_bits(h: u32) -> u32 {
    return decode_by_integers(h);
}

/// Returns the values of two packed halves.
fn unpack_halves(word: u32) -> vec2<f32> {
    return vec2<f32>(bits_as_float(decode_by_integers(word & 0xffffu)), bits_as_float(decode_by_integers(word >> 16u)));
}
