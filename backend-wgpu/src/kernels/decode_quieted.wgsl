// Halves to f32 by the device's own conversion where that does not make NaN quiet. Needs half.wgsl.

/// Sets the bit of a quiet NaN in the bits of an f32 that is NaN.
fn quiet(bits: u32) -> u32 {
    return select(bits, bits | F32_NAN, (bits & F32_MAGNITUDE) > F32_INFINITY);
}

/// Returns the f32, as bits, with the value of the half in the lower 16 bits; the upper ones are 0.
fn half_to_float_bits(h: u32) -> u32 {
    return quiet(bitcast<u32>(unpack2x16float(h).x));
}

/// Returns the values of two packed halves.
fn unpack_halves(word: u32) -> vec2<f32> {
    let two = bitcast<vec2<u32>>(unpack2x16float(word));
    return vec2<f32>(bits_as_float(quiet(two.x)), bits_as_float(quiet(two.y)));
}
