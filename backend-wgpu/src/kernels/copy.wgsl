// y[y0 + Σ iⱼ·yⱼ] = x[x0 + Σ iⱼ·xⱼ]. Reference: core's `Strided`. Indices fit 32 bits, so strides wrap.

struct Params {
    store: Store,
    /// (length, stride of x, stride of y) of each dimension, innermost first; lengths of those not used are 1.
    dims: array<vec4<u32>, 6>,
    count: u32,
    x0: u32,
    y0: u32,
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
    let stride = groups.x * groups.y * GROUP;
    var i = number_of_group * GROUP + lane;
    while i < p.count {
        var rest = i;
        var from_x = p.x0;
        var to_y = p.y0;
        for (var d = 0u; d < 6u; d += 1u) {
            let dim = p.dims[d];
            let at = rest % dim.x;
            rest /= dim.x;
            from_x += at * dim.y;
            to_y += at * dim.z;
        }
        if e.dtype == TYPE_U8 {
            let shift = 8u * (to_y & 3u);
            store_bits(to_y >> 2u, 0xffu << shift, (x_raw(from_x) & 0xffu) << shift);
        } else if e.dtype == TYPE_U32 {
            y_store(to_y, x_raw(from_x));
        } else {
            store_scalar(e, to_y, x_at(from_x));
        }
        if p.count - i <= stride {
            break;
        }
        i += stride;
    }
    end_store(lane, number_of_group);
}
