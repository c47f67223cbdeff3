// √x, whose derivative is computed from the result.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return square_root(x);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return dy * divide(0.5, saved);
}
