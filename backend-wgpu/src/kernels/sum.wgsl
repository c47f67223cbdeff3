// y[i] = Σ terms[i] · 2^(e[to] − e[term]), in order from 0. One to four terms; more come in several launches, the sum so
// far as the first term.

struct Params {
    store: Store,
    slots: vec4<u32>,
    types: vec4<u32>,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

override TERMS: u32;

/// Returns eight sums, of which `live` are needed, with the next terms added, which are multiplied by 2^step.
fn add_scaled(sums: array<vec4<f32>, 2>, terms: array<vec4<f32>, 2>, step: i32, live: u32) -> array<vec4<f32>, 2> {
    let count = min(live, 4u);
    return array<vec4<f32>, 2>(
        sums[0] + bitcast<vec4<f32>>(scaled_vec4(bitcast<vec4<u32>>(terms[0]), step, count)),
        sums[1] + bitcast<vec4<f32>>(scaled_vec4(bitcast<vec4<u32>>(terms[1]), step, count)),
    );
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    let to = exponent(p.store.site);
    let steps = vec4<i32>(
        exponent_step(exponent(p.slots.x), to),
        exponent_step(exponent(p.slots.y), to),
        exponent_step(exponent(p.slots.z), to),
        exponent_step(exponent(p.slots.w), to),
    );
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += groups.x * groups.y * GROUP) {
        let live = elements_in_vec8(o, p.len);
        var v = add_scaled(array<vec4<f32>, 2>(), a_vec8(o), steps.x, live);
        if TERMS > 1u {
            v = add_scaled(v, b_vec8(o), steps.y, live);
        }
        if TERMS > 2u {
            v = add_scaled(v, c_vec8(o), steps.z, live);
        }
        if TERMS > 3u {
            v = add_scaled(v, d_vec8(o), steps.w, live);
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
