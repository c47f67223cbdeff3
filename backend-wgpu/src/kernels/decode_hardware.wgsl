// Halves to f32 by the device's own conversion. Needs half.wgsl.

/// Returns the f32, as bits, with the value of the half in the lower 16 bits; the upper ones are 0.
fn half_to_float_bits(h: u32) -> u32 {
    return bitcast<u32>(unpack2x16float(h).x);
}

/// Returns the values of two packed halves.
fn unpack_halves(word: u32) -> vec2<f32> {
    return unpack2x16float(word);
}
