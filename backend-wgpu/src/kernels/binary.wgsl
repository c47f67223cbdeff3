// y[i] = f(a[i], b[…]). Reference: core's `Binary`.

struct Params {
    store: Store,
    function: Function,
    len: u32,
    cols: u32,
    /// Broadcast of b over a: one of OVER_*.
    over: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Returns the elements of b for elements 8o to 8o + 7 of a, of which `live` are needed.
fn broadcast_of_b(o: u32, live: u32) -> array<vec4<f32>, 2> {
    if p.over == OVER_ALL {
        return b_vec8(o);
    }
    var z = array<vec4<f32>, 2>();
    if p.over == OVER_PER_COLUMN && p.cols % 8u == 0u {
        return b_vec8(o % (p.cols / 8u));
    }
    var row = 0u;
    var column = 0u;
    if p.over == OVER_PER_COLUMN || p.over == OVER_PER_ROW {
        row = 8u * o / p.cols;
        column = 8u * o - row * p.cols;
    }
    for (var j = 0u; j < 8u; j += 1u) {
        var element = 0.0;
        if j < live {
            element = b_at(select(row, column, p.over == OVER_PER_COLUMN));
        }
        z = push_vec8(z, element);
        if p.over == OVER_PER_COLUMN || p.over == OVER_PER_ROW {
            column += 1u;
            if column == p.cols {
                column = 0u;
                row += 1u;
            }
        }
    }
    return z;
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
    let seed_words = seed();
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += groups.x * groups.y * GROUP) {
        let live = elements_in_vec8(o, p.len);
        let v = apply_vec8(p.function, a_vec8(o), broadcast_of_b(o, live), seed_words, 8u * o);
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
