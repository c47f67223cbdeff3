// Eight values by functions whose text is so short that eight copies are faster than a loop.

fn apply_vec8(
    f: Function, a: array<vec4<f32>, 2>, b: array<vec4<f32>, 2>, seed: vec2<u32>, i: u32,
) -> array<vec4<f32>, 2> {
    return array<vec4<f32>, 2>(
        vec4<f32>(
            apply(f, a[0].x, b[0].x, seed, i),
            apply(f, a[0].y, b[0].y, seed, i + 1u),
            apply(f, a[0].z, b[0].z, seed, i + 2u),
            apply(f, a[0].w, b[0].w, seed, i + 3u),
        ),
        vec4<f32>(
            apply(f, a[1].x, b[1].x, seed, i + 4u),
            apply(f, a[1].y, b[1].y, seed, i + 5u),
            apply(f, a[1].z, b[1].z, seed, i + 6u),
            apply(f, a[1].w, b[1].w, seed, i + 7u),
        ),
    );
}
