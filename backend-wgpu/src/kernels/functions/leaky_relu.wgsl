// x where it is positive, else a · x.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return select(f.a * x, x, is_positive(bitcast<u32>(x)));
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return select(f.a * dy, dy, is_positive(bitcast<u32>(saved)));
}
