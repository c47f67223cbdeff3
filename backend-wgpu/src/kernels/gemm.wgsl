// y = op(a)·op(b) + bias, batched. Reference: core's `Gemm`; the tile of tile.wgsl.

struct Params {
    store: Store,
    output: Output,
    /// Elements from one stored row to the next, and from one matrix to the next.
    lead_a: u32,
    lead_b: u32,
    stride_a: u32,
    stride_b: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

fn prepare(z: u32, row: u32, col: u32) {
}

fn load_a_vec4(z: u32, row: u32, k: u32) -> vec4<f32> {
    // Stored [m, k], or [k, m].
    var four = vec4<f32>();
    if row >= p.output.m {
        return four;
    }
    if A_K_CONTIGUOUS == 0u {
        return a_vec4(z * p.stride_a + k * p.lead_a + row, p.output.m - row);
    }
    let i = z * p.stride_a + row * p.lead_a + k;
    four.x = a_at(i);
    if row + 1u < p.output.m { four.y = a_at(i + p.lead_a); }
    if row + 2u < p.output.m { four.z = a_at(i + 2u * p.lead_a); }
    if row + 3u < p.output.m { four.w = a_at(i + 3u * p.lead_a); }
    return four;
}

fn load_b_vec4(z: u32, k: u32, col: u32) -> vec4<f32> {
    // Stored [k, n], or [n, k].
    var four = vec4<f32>();
    if col >= p.output.n {
        return four;
    }
    if B_K_CONTIGUOUS == 0u {
        return b_vec4(z * p.stride_b + k * p.lead_b + col, p.output.n - col);
    }
    let i = z * p.stride_b + col * p.lead_b + k;
    four.x = b_at(i);
    if col + 1u < p.output.n { four.y = b_at(i + p.lead_b); }
    if col + 2u < p.output.n { four.z = b_at(i + 2u * p.lead_b); }
    if col + 3u < p.output.n { four.w = b_at(i + 3u * p.lead_b); }
    return four;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    multiply_tiles(lane, group_number(group, groups));
}
