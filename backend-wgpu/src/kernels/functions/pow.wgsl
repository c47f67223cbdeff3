// x^a.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return power(x, f.a);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return dy * (f.a * power(saved, f.a - 1.0));
}
