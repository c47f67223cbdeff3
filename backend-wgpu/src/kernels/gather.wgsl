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
        var line = 8u * o / p.width;
        var column = 8u * o - line * p.width;
        if p.width % 8u == 0u {
            let row = indices_get(line);
            if row < p.table {
                v = x_vec8((row * p.width + column) / 8u);
            }
        } else {
            for (var j = 0u; j < 8u; j += 1u) {
                var element = 0.0;
                if j < live {
                    let row = indices_get(line);
                    if row < p.table {
                        element = x_at(row * p.width + column);
                    }
                }
                v = push_vec8(v, element);
                column += 1u;
                if column == p.width {
                    column = 0u;
                    line += 1u;
                }
            }
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
