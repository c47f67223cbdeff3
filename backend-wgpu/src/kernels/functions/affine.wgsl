// a · x + b.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return f.a * x + f.b;
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return dy * f.a;
}
