// Loader of coop.wgsl for matrices: y = op(a)·op(b) + bias, batched. Reference: core's `Gemm`. Lines, their distances and
// matrices begin at multiples of four, so an eight is two fours, of which one may be outside.

struct Params {
    store: Store,
    output: Output,
    /// Elements from one stored row to the next, and from one matrix to the next.
    lead_a: u32,
    lead_b: u32,
    stride_a: u32,
    stride_b: u32,
    /// Rows and columns of subgroups in a workgroup.
    subgroups: vec2<u32>,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Place of each eight before the first step, and the distance from there, in fours. Number of its fours that are inside the
/// matrix, k not considered.
var<private> a_index: array<u32, 2>;
var<private> a_inside: array<u32, 2>;
var<private> a_distance: u32;
var<private> b_index: array<u32, 2>;
var<private> b_inside: array<u32, 2>;
var<private> b_distance: u32;

/// Returns the place of the eight at (line, k), and the number of its fours that are inside.
fn place_of(start: u32, lead: u32, line: u32, k: u32, lines: u32, along_k: u32) -> vec2<u32> {
    if along_k != 0u {
        return vec2<u32>((start + line * lead + k) / 4u, select(0u, 2u, line < lines));
    }
    return vec2<u32>((start + k * lead + line) / 4u, min((max(lines, line) - line) / 4u, 2u));
}

/// Returns the number of fours of an eight that are inside the matrix and before the end of the sum.
fn fours_before(end: u32, k: u32, fours: u32, along_k: u32) -> u32 {
    if k >= end {
        return 0u;
    }
    return select(fours, min(fours, (end - k) / 4u), along_k != 0u);
}

fn start_a(j: u32, z: u32, line: u32, start: u32, ahead: u32) {
    let place = place_of(z * p.stride_a, p.lead_a, line, start + ahead, p.output.m, A_K_CONTIGUOUS);
    a_index[j] = place.x;
    a_inside[j] = place.y;
}

fn start_b(j: u32, z: u32, line: u32, start: u32, ahead: u32) {
    let place = place_of(z * p.stride_b, p.lead_b, line, start + ahead, p.output.n, B_K_CONTIGUOUS);
    b_index[j] = place.x;
    b_inside[j] = place.y;
}

fn advance_a() {
    a_distance += select(p.lead_a, 1u, A_K_CONTIGUOUS != 0u) * K_TILE / 4u;
}

fn advance_b() {
    b_distance += select(p.lead_b, 1u, B_K_CONTIGUOUS != 0u) * K_TILE / 4u;
}

fn load_a(j: u32, k: u32, end: u32) {
    let fours = fours_before(end, k, a_inside[j], A_K_CONTIGUOUS);
    let i = a_index[j] + a_distance;
    a_eights[j] = Eight(a[select(0u, i, fours > 0u)], a[select(0u, i + 1u, fours > 1u)]);
    a_fours[j] = fours;
}

fn load_b(j: u32, k: u32, end: u32) {
    let fours = fours_before(end, k, b_inside[j], B_K_CONTIGUOUS);
    let i = b_index[j] + b_distance;
    b_eights[j] = Eight(b[select(0u, i, fours > 0u)], b[select(0u, i + 1u, fours > 1u)]);
    b_fours[j] = fours;
}
