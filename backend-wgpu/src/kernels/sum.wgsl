// y[i] = Σ terms[i] · 2^(e[to] − e[term]), in order from 0. One to four terms; more come in several launches, the sum so
// far as the first term.

struct Params {
    store: Store,
    slots: vec4<u32>,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

override TERMS: u32;

fn scaled(v: vec4<f32>, step: i32) -> vec4<f32> {
    let bits = bitcast<vec4<u32>>(v);
    return vec4<f32>(
        number(scaled_bits(bits.x, step)),
        number(scaled_bits(bits.y, step)),
        number(scaled_bits(bits.z, step)),
        number(scaled_bits(bits.w, step)),
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
    var steps = vec4<i32>();
    for (var j = 0u; j < TERMS; j += 1u) {
        steps[j] = exponent_step(exponent(p.slots[j]), to);
    }
    for (var o = number_of_group * GROUP + lane; o < eights(p.len); o += groups.x * groups.y * GROUP) {
        let a = a_eight(o);
        var lo = vec4<f32>() + scaled(a[0], steps.x);
        var hi = vec4<f32>() + scaled(a[1], steps.x);
        if TERMS > 1u {
            let b = b_eight(o);
            lo += scaled(b[0], steps.y);
            hi += scaled(b[1], steps.y);
        }
        if TERMS > 2u {
            let c = c_eight(o);
            lo += scaled(c[0], steps.z);
            hi += scaled(c[1], steps.z);
        }
        if TERMS > 3u {
            let d = d_eight(o);
            lo += scaled(d[0], steps.w);
            hi += scaled(d[1], steps.w);
        }
        put8(e, o, lo, hi, live_of(o, p.len));
    }
    end_store(lane, number_of_group);
}
