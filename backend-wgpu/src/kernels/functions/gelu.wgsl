// x · Φ(x).

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    return x * normal_cdf(x);
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    return dy * (normal_cdf(saved) + saved * (0.398942280 * exponential(-0.5 * saved * saved)));
}
