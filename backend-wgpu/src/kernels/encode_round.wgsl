// f32 to halves by conversion to f16 and packing, where packing alone does not round to nearest: AMD's truncates. Needs
// half.wgsl, and f16 in shaders.

/// Returns the half, in the lower 16 bits, nearest to the f32 with these bits.
fn float_to_half_bits(x: u32) -> u32 {
    return pack_halves(x, 0u);
}

/// Returns the halves nearest to two f32 given as bits, packed. Devices differ in the payload of NaN, so that is made of
/// integers.
fn pack_halves(x: u32, y: u32) -> u32 {
    let packed = pack2x16float(vec2<f32>(vec2<f16>(vec2<f32>(bits_as_float(x), bits_as_float(y)))));
    let lo = select(packed & 0xffffu, nan_to_half_bits(x), (x & F32_MAGNITUDE) > F32_INFINITY);
    let hi = select(packed & 0xffff0000u, nan_to_half_bits(y) << 16u, (y & F32_MAGNITUDE) > F32_INFINITY);
    return lo | hi;
}
