// x times a gate that is linear from −3 to 3.

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    // Clamped, so that no compiler multiplies the sum out: x / 6 + 1/2 would lose all digits near −3. A NaN is
    // detected by bits, because compilers may assume that comparisons have no NaN.
    let gate = clamp(x + 3.0, 0.0, 6.0) * 0.166666667;
    return select(select(select(x * gate, x, x >= 3.0), 0.0, x <= -3.0), x, is_nan(x));
}

fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    let inside = select(select(dy * (saved * 0.333333333 + 0.5), dy, saved > 3.0), 0.0, saved < -3.0);
    return select(inside, saved, is_nan(saved));
}
