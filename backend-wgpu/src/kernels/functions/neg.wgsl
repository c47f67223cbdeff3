// −x.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return bits_as_float(bitcast<u32>(x) ^ ~F32_MAGNITUDE);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return bits_as_float(bitcast<u32>(dy) ^ ~F32_MAGNITUDE);
}
