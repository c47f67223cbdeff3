// Elementwise kernels apply the vjp of a function of one tensor: a is the saved value, b the gradient.

fn apply(f: Function, a: f32, b: f32, seed: vec2<u32>, index: u32) -> f32 {
    return derivative(f, a, b, seed, index);
}
