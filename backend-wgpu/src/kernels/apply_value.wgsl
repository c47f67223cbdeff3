// Elementwise kernels apply a function of one tensor. The second operand is ignored.

fn apply(f: Function, a: f32, b: f32, seed: vec2<u32>, index: u32) -> f32 {
    return evaluate(f, a, seed, index);
}
