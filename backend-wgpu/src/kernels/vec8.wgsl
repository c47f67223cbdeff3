
/// Returns eight values without the first one, and with `v` behind them. Eight times it collects values one by one, or
/// brings each in turn to the front: without a dynamic index, which may move an array to memory.
fn push_vec8(eight: array<vec4<f32>, 2>, v: f32) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(vec4<f32>(eight[0].yzw, eight[1].x), vec4<f32>(eight[1].yzw, v));
}

fn sum_of_vec8(v: array<vec4<f32>, 2>) -> f32 {
    let sums = v[0] + v[1];
    return (sums.x + sums.y) + (sums.z + sums.w);
}
