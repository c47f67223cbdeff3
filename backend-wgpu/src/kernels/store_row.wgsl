// Store of a product's sums, for all engines. Needs store.wgsl, shared.wgsl, output.wgsl; a kernel declares
// `p.output: Output` and the operand `bias`.

@group(0) @binding(8) var<storage, read_write> split_k_partials: array<f32>;

/// Stores `live` neighbouring sums of a row, as results or as partial sums. Without a bias nothing is added, so that −0
/// stays.
fn store_row(e: Epilogue, split: u32, z: u32, r: u32, c: u32, v: vec4<f32>, live: u32) {
    let o = p.output;
    if r >= o.m {
        return;
    }
    if o.splits > 1u {
        let i = ((split * o.batch + z) * o.m + r) * o.n + c;
        split_k_partials[i] = v.x;
        if live > 1u { split_k_partials[i + 1u] = v.y; }
        if live > 2u { split_k_partials[i + 2u] = v.z; }
        if live > 3u { split_k_partials[i + 3u] = v.w; }
        return;
    }
    var sum = v;
    if o.bias != NO_BIAS {
        let i = z * o.bias_stride + c;
        sum.x += bias_at(i);
        if live > 1u { sum.y += bias_at(i + 1u); }
        if live > 2u { sum.z += bias_at(i + 2u); }
        if live > 3u { sum.w += bias_at(i + 3u); }
    }
    store_vec4(e, z * o.stride + r * o.ldy + c, sum, live);
}
