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
    var steps = vec4<i32>();
    for (var j = 0u; j < TERMS; j += 1u) {
        steps[j] = exponent_step(exponent(p.slots[j]), to);
    }
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += groups.x * groups.y * GROUP) {
        var terms = array<array<vec4<f32>, 2>, 4>();
        terms[0] = a_vec8(o);
        if TERMS > 1u {
            terms[1] = b_vec8(o);
        }
        if TERMS > 2u {
            terms[2] = c_vec8(o);
        }
        if TERMS > 3u {
            terms[3] = d_vec8(o);
        }
        var v = array<vec4<f32>, 2>();
        for (var j = 0u; j < 8u; j += 1u) {
            var sum = 0.0;
            for (var t = 0u; t < TERMS; t += 1u) {
                sum += bits_as_float(scaled_bits(bitcast<u32>(terms[t][j >> 2u][j & 3u]), steps[t]));
            }
            v[j >> 2u][j & 3u] = sum;
        }
        store_vec8(e, o, v[0], v[1], elements_in_vec8(o, p.len));
    }
    end_store(lane, number_of_group);
}
