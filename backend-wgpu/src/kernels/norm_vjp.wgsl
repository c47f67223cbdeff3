// dx = (u − mean(u) − x̂ · mean(u · x̂)) / √(var + eps), u = dy · scale[c]. With given statistics both means are 0.

struct Params {
    store: Store,
    shape: Shape,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> scale: array<f32>;
@group(0) @binding(9) var<storage, read> group_stats: array<vec4<f32>>;

/// 1 if the normalisation has a learned scale.
override SCALED: u32;

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
        var x = x_vec8(o);
        var v = dy_vec8(o);
        for (var j = 0u; j < live; j += 1u) {
            let i = 8u * o + j;
            let n = group_stats[group_of_element(i)];
            var u = v[j >> 2u][j & 3u];
            if SCALED != 0u {
                u *= scale[i % p.shape.channels];
            }
            v[j >> 2u][j & 3u] = (u - n.z - (x[j >> 2u][j & 3u] - n.x) * n.y * n.w) * n.y;
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
