// The larger of a and b; NaN if one is NaN.

fn apply(f: Function, a: f32, b: f32, seed: vec2<u32>, index: u32) -> f32 {
    if is_nan(a) {
        return a;
    }
    return bits_as_float(select(bitcast<u32>(b), bitcast<u32>(a), !is_nan(b) && order(bitcast<u32>(a)) > order(bitcast<u32>(b))));
}
