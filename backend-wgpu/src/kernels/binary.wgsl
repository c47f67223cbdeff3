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

/// True for functions whose text is so short that eight of them are faster than a loop.
fn is_short() -> bool {
    if KIND != BINARY_GRAD {
        return KIND != BINARY_DIV;
    }
    return OP == UNARY_NEG || OP == UNARY_ABS || OP == UNARY_RELU || OP == UNARY_LEAKY_RELU || OP == UNARY_TANH
        || OP == UNARY_SIGMOID || OP == UNARY_EXP || OP == UNARY_RECIP || OP == UNARY_AFFINE || OP == UNARY_SIGN
        || OP == UNARY_HARDSWISH || OP == UNARY_ID;
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
        let i = 8u * o;
        var v = a_vec8(o);
        var z = broadcast_of_b(o, live);
        if is_short() {
            v = array<vec4<f32>, 2>(
                vec4<f32>(
                    combine(v[0].x, z[0].x, seed_words, i),
                    combine(v[0].y, z[0].y, seed_words, i + 1u),
                    combine(v[0].z, z[0].z, seed_words, i + 2u),
                    combine(v[0].w, z[0].w, seed_words, i + 3u),
                ),
                vec4<f32>(
                    combine(v[1].x, z[1].x, seed_words, i + 4u),
                    combine(v[1].y, z[1].y, seed_words, i + 5u),
                    combine(v[1].z, z[1].z, seed_words, i + 6u),
                    combine(v[1].w, z[1].w, seed_words, i + 7u),
                ),
            );
        } else {
            for (var j = 0u; j < 8u; j += 1u) {
                v = push_vec8(v, combine(v[0].x, z[0].x, seed_words, i + j));
                z = push_vec8(z, 0.0);
            }
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
