// y[i] = x[index[i]] row by row, 0 for an index beyond the table. Reference: core's `Rows`.

struct Params {
    store: Store,
    len: u32,
    table: u32,
    width: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

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
        var v = array<vec4<f32>, 2>();
        for (var j = 0u; j < live; j += 1u) {
            let i = 8u * o + j;
            let row = indices_get(i / p.width);
            if row < p.table {
                v[j >> 2u][j & 3u] = x_at(row * p.width + i % p.width);
            }
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
