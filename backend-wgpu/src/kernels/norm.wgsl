// y = (x − mean) / √(var + eps) · scale[c] + shift[c]. Reference: core's `Norm`.

struct Params {
    store: Store,
    shape: Shape,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(6) var<storage, read> scale: array<f32>;
@group(0) @binding(7) var<storage, read> shift: array<f32>;
@group(0) @binding(9) var<storage, read> group_stats: array<vec4<f32>>;

/// 1 if the normalisation has a learned scale and shift.
override AFFINE: u32;

fn normalize(i: u32, v: f32) -> f32 {
    let n = group_stats[group_of_element(i)];
    let normalized = (v - n.x) * n.y;
    if AFFINE != 0u {
        let channel = i % p.shape.channels;
        return normalized * scale[channel] + shift[channel];
    }
    return normalized;
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
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += groups.x * groups.y * GROUP) {
        let live = elements_in_vec8(o, p.len);
        var v = x_vec8(o);
        for (var j = 0u; j < live; j += 1u) {
            v[j >> 2u][j & 3u] = normalize(8u * o + j, v[j >> 2u][j & 3u]);
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
