// f32 to halves by integers, on devices whose own conversion has other bits. Needs half.wgsl.

/// Returns the half, in the lower 16 bits, nearest to the f32 with these bits.
fn float_to_half_bits(x: u32) -> u32 {
    return encode_by_integers(x);
}

/// Returns the halves nearest to two f32 given as bits, packed.
fn pack_halves(x: u32, y: u32) -> u32 {
    return encode_by_integers(x) | (encode_by_integers(y) << 16u);
}
