// a + b.

fn apply(f: Function, a: f32, b: f32, seed: vec2<u32>, index: u32) -> f32 {
    return a + b;
}
