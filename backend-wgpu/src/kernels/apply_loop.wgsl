// Eight values by functions whose text is long: one after the other, by one copy of it.

fn apply_vec8(
    f: Function, a: array<vec4<f32>, 2>, b: array<vec4<f32>, 2>, seed: vec2<u32>, i: u32,
) -> array<vec4<f32>, 2> {
    var v = a;
    var z = b;
    for (var j = 0u; j < 8u; j += 1u) {
        v = push_vec8(v, apply(f, v[0].x, z[0].x, seed, i + j));
        z = push_vec8(z, 0.0);
    }
    return v;
}
