// −1, 0 or 1. Computed by bits, because the device may read subnormals as 0.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & F32_MAGNITUDE;
    return bits_as_float(select(bits, 0x3f800000u | (bits & ~F32_MAGNITUDE), magnitude - 1u < F32_INFINITY));
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return 0.0;
}
