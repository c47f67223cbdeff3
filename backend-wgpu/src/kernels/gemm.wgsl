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

/// Index of the first vector, how many of its elements are inside the matrix if it is across k, and the distance from there
/// to the vector that is loaded next. Where ALIGNED is 1, K_TILE is a multiple of 8, so that the distance is one, too.
var<private> a_index: u32;
var<private> a_live: u32;
var<private> a_ahead: u32;
var<private> b_index: u32;
var<private> b_live: u32;
var<private> b_ahead: u32;

/// Returns the index of the vector at (line, k) and its live elements. Lines beyond the last load the last one again.
fn vector_of(start: u32, lead: u32, line: u32, k: u32, lines: u32, along_k: u32) -> vec2<u32> {
    if along_k != 0u {
        return vec2<u32>(start + min(line, lines - 1u) * lead + k, 4u);
    }
    let first = min(line, (lines - 1u) / 4u * 4u);
    return vec2<u32>(start + k * lead + first, min(lines - first, 4u));
}

fn start_a(z: u32, line: u32, start: u32, ahead: u32) {
    let vector = vector_of(z * p.stride_a, p.lead_a, line, start + ahead, p.output.m, A_K_CONTIGUOUS);
    a_index = vector.x;
    a_live = vector.y;
}

fn start_b(z: u32, line: u32, start: u32, ahead: u32) {
    let vector = vector_of(z * p.stride_b, p.lead_b, line, start + ahead, p.output.n, B_K_CONTIGUOUS);
    b_index = vector.x;
    b_live = vector.y;
}

fn advance_a() {
    a_ahead += select(K_TILE * p.lead_a, K_TILE, A_K_CONTIGUOUS != 0u);
}

fn advance_b() {
    b_ahead += select(K_TILE * p.lead_b, K_TILE, B_K_CONTIGUOUS != 0u);
}

fn load_a(k: u32, end: u32) -> vec4<f32> {
    if ALIGNED != 0u {
        return a_aligned_vec4(a_index, a_ahead);
    }
    if A_K_CONTIGUOUS != 0u {
        return first_of_vec4(a_vec4(a_index + a_ahead, end - k), end - k);
    }
    return a_vec4(a_index + a_ahead, a_live);
}

fn load_b(k: u32, end: u32) -> vec4<f32> {
    if ALIGNED != 0u {
        return b_aligned_vec4(b_index, b_ahead);
    }
    if B_K_CONTIGUOUS != 0u {
        return first_of_vec4(b_vec4(b_index + b_ahead, end - k), end - k);
    }
    return b_vec4(b_index + b_ahead, b_live);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    multiply_tiles(lane, group_number(group, groups));
}
