// |x|. Masks select by bits, also where the device reads subnormals as 0.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return bits_as_float(bitcast<u32>(x) & F32_MAGNITUDE);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    let sign = ~F32_MAGNITUDE;
    let bits = bitcast<u32>(saved);
    let negative = (bits & sign) != 0u && is_positive(bits ^ sign);
    return bits_as_float(select(0u, bitcast<u32>(dy) ^ select(0u, sign, negative), is_positive(bits) || negative));
}
