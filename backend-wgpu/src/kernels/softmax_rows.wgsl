// Rows of a softmax. A workgroup has 256 / threads rows at a time, with `threads` invocations for each. An invocation has
// four neighbouring columns of every 4 · threads. Needs store.wgsl.

struct RowShape {
    /// Number of rows of all matrices, and of one matrix.
    rows: u32,
    matrix_rows: u32,
    columns: u32,
    /// Number of invocations for a row: a power of two, at most 256.
    threads: u32,
    /// Number of times that a workgroup's rows fit all rows.
    tiles: u32,
}

/// Row of an invocation.
struct OwnRow {
    /// Index of the row's first element, and of its first column for this invocation.
    start: u32,
    first: u32,
    /// Number of columns that are stored: none beyond the last row.
    columns: u32,
    /// Number of columns up to the last that the row may read.
    end: u32,
}

var<workgroup> row_sums: array<f32, GROUP>;

fn own_row(tile: u32, lane: u32) -> OwnRow {
    let row = tile * (GROUP / p.shape.threads) + lane / p.shape.threads;
    let first = 4u * (lane % p.shape.threads);
    if row >= p.shape.rows {
        return OwnRow(0u, first, 0u, 0u);
    }
    return OwnRow(row * p.shape.columns, first, p.shape.columns, min(end_of_row(row), p.shape.columns));
}

/// Adds a number of each invocation of a row. Requires uniform control flow.
fn sum_of_row(lane: u32, own: f32) -> f32 {
    let thread = lane % p.shape.threads;
    row_sums[lane] = own;
    workgroupBarrier();
    for (var half = p.shape.threads / 2u; half != 0u; half /= 2u) {
        if thread < half {
            row_sums[lane] += row_sums[lane + half];
        }
        workgroupBarrier();
    }
    return row_sums[lane - thread];
}

/// Returns which of four columns are among the first `live`.
fn first_of_vec4(live: u32) -> vec4<bool> {
    return vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(live);
}

fn sum_of_vec4(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

fn exponential_vec4(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(exponential(v.x), exponential(v.y), exponential(v.z), exponential(v.w));
}
