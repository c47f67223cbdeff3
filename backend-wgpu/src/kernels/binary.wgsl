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

/// Kind of the binary operator, one of BINARY_*; with BINARY_GRAD, `OP` is the function whose vjp it is.
override KIND: u32;

fn max_propagating_nan(a: f32, b: f32) -> f32 {
    if is_nan(a) {
        return a;
    }
    return bits_as_float(select(bitcast<u32>(b), bitcast<u32>(a), !is_nan(b) && order(bitcast<u32>(a)) > order(bitcast<u32>(b))));
}

fn combine(a: f32, b: f32, seed_words: vec2<u32>, i: u32) -> f32 {
    switch KIND {
        case BINARY_ADD: { return a + b; }
        case BINARY_SUB: { return a - b; }
        case BINARY_MUL: { return a * b; }
        case BINARY_DIV: { return divide(a, b); }
        case BINARY_MAX: { return max_propagating_nan(a, b); }
        default: { return derivative(p.function, a, b, seed_words, i); }
    }
}

/// Returns the element of b for element i of a.
fn index_of_b(i: u32) -> u32 {
    if p.over == OVER_PER_COLUMN {
        return i % p.cols;
    }
    if p.over == OVER_PER_ROW {
        return i / p.cols;
    }
    return 0u;
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
        var x = a_vec8(o);
        var z = array<vec4<f32>, 2>();
        if p.over == OVER_ALL {
            z = b_vec8(o);
        }
        var v = array<vec4<f32>, 2>();
        for (var j = 0u; j < live; j += 1u) {
            let i = 8u * o + j;
            if p.over != OVER_ALL {
                z[j >> 2u][j & 3u] = b_at(index_of_b(i));
            }
            v[j >> 2u][j & 3u] = combine(x[j >> 2u][j & 3u], z[j >> 2u][j & 3u], seed_words, i);
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
