// x / a for the elements that the hash keeps, else 0. The gradient passes the same mask.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    if (hash(seed, f.stream, index) >> 8u) < f.threshold {
        return divide(x, f.a);
    }
    return 0.0;
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return evaluate(f, dy, seed, index);
}
