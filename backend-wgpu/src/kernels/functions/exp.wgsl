// e^x, which is its derivative.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return exponential(x);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return dy * saved;
}
