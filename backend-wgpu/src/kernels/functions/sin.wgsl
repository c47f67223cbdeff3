// sin x.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return sine(x, 0u);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return dy * sine(saved, 1u);
}
