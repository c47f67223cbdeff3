// x times its sigmoid.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return x * sigmoid(x);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    let s = sigmoid(saved);
    return dy * (s * (1.0 + saved * (1.0 - s)));
}
