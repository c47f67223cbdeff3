// Negative values become 0, −0 too; a NaN stays.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    let bits = bitcast<u32>(x);
    return bits_as_float(select(bits, 0u, bits > F32_MAGNITUDE && !is_nan(x)));
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return bits_as_float(select(0u, bitcast<u32>(dy), is_positive(bitcast<u32>(saved))));
}
