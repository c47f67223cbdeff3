// tanh x, whose derivative is computed from the result.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return hyperbolic_tangent(x);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return dy * (1.0 - saved * saved);
}
