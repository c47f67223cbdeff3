// y = op(a)·op(b) + bias, batched, of halves, by cooperative matrices. A subgroup multiplies SIDE×SIDE blocks in one
// instruction, on tensor cores if the GPU has them; coop_8.wgsl and coop_16.wgsl define SIDE. Each of ROWS×COLUMNS
// subgroups computes 4×2 blocks of results. Operands are copied to workgroup memory in their layout, and the next ones
// are loaded while these are multiplied. Parameters are those of gemm.wgsl, with one slice; memory is accessed in
// vectors of four.

struct Params {
    store: Store,
    output: Output,
    lead_a: u32,
    lead_b: u32,
    stride_a: u32,
    stride_b: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
/// Operand a; halves are copied, never computed with, so they keep their bits.
@group(0) @binding(16) var<storage, read> a: array<vec4<f16>>;
@group(0) @binding(17) var<storage, read> b: array<vec4<f16>>;

override A_K_CONTIGUOUS: u32;
override B_K_CONTIGUOUS: u32;
/// Rows and columns of subgroups in a workgroup, and the number of invocations of a subgroup.
override ROWS: u32;
override COLUMNS: u32;
override SIZE: u32;

const K_TILE: u32 = 16u;
/// Maximum number of rows or columns of a tile.
const MAX_TILE_SIDE: u32 = 128u;
/// Halves that pad a line, so that lines begin in other banks.
const PITCH_PADDING: u32 = 8u;

var<workgroup> left: array<f16, MAX_TILE_SIDE * (K_TILE + PITCH_PADDING)>;
var<workgroup> right: array<f16, MAX_TILE_SIDE * (K_TILE + PITCH_PADDING)>;
var<workgroup> results: array<f32, 2048>;
/// True if the device's subgroups have the size that this pipeline was compiled for.
var<workgroup> fits: u32;

/// Returns the number of halves from one line of a tile to the next, for a tile with this number of rows or columns.
fn pitch_of(along: u32, size: u32) -> u32 {
    return select(size + PITCH_PADDING, K_TILE + PITCH_PADDING, along != 0u);
}

/// Returns the position of four number i of a tile: (row or column, k), both in the tile.
fn element_position(i: u32, along: u32, size: u32) -> vec2<u32> {
    let across = select(size, K_TILE, along != 0u) / 4u;
    let line = i / across;
    let four = 4u * (i % across);
    return select(vec2<u32>(four, line), vec2<u32>(line, four), along != 0u);
}

fn load_a(z: u32, row: u32, k: u32) -> vec4<f16> {
    if z >= p.output.batch || row >= p.output.m || k >= p.output.k {
        return vec4<f16>();
    }
    return a[(z * p.stride_a + select(k * p.lead_a + row, row * p.lead_a + k, A_K_CONTIGUOUS != 0u)) / 4u];
}

fn load_b(z: u32, k: u32, column: u32) -> vec4<f16> {
    if z >= p.output.batch || column >= p.output.n || k >= p.output.k {
        return vec4<f16>();
    }
    return b[(z * p.stride_b + select(k * p.lead_b + column, column * p.lead_b + k, B_K_CONTIGUOUS != 0u)) / 4u];
}

fn write_left(at: u32, v: vec4<f16>) {
    left[at] = v.x;
    left[at + 1u] = v.y;
    left[at + 2u] = v.z;
    left[at + 3u] = v.w;
}

fn write_right(at: u32, v: vec4<f16>) {
    right[at] = v.x;
    right[at + 1u] = v.y;
    right[at + 2u] = v.z;
    right[at + 3u] = v.w;
}

/// Loads the block of operand a from a row on, `skip` halves further for its k.
fn left_block(row: u32, skip: u32, line: u32) -> Left {
    let at = select(row, row * line, A_K_CONTIGUOUS != 0u) + skip;
    if A_K_CONTIGUOUS != 0u {
        return coopLoadT<Left>(&left[at], line);
    }
    return coopLoad<Left>(&left[at], line);
}

fn right_block(column: u32, skip: u32, line: u32) -> Right {
    let at = select(column, column * line, B_K_CONTIGUOUS != 0u) + skip;
    if B_K_CONTIGUOUS != 0u {
        return coopLoad<Right>(&right[at], line);
    }
    return coopLoadT<Right>(&right[at], line);
}

/// Stores the block of results that a subgroup has left in `results`, from (r, c) on.
fn store_block(e: Epilogue, z: u32, r: u32, c: u32, start: u32, own: u32) {
    workgroupBarrier();
    let o = p.output;
    for (var i = own; i < SIDE * SIDE / 4u; i += SIZE) {
        let row = r + i / (SIDE / 4u);
        let column = c + 4u * (i % (SIDE / 4u));
        if z < o.batch && row < o.m && column < o.n {
            let at = start + 4u * i;
            var sum = vec4<f32>(results[at], results[at + 1u], results[at + 2u], results[at + 3u]);
            let live = min(o.n - column, 4u);
            if o.bias != NO_BIAS {
                let from_bias = z * o.bias_stride + column;
                sum.x += bias_at(from_bias);
                if live > 1u { sum.y += bias_at(from_bias + 1u); }
                if live > 2u { sum.z += bias_at(from_bias + 2u); }
                if live > 3u { sum.w += bias_at(from_bias + 3u); }
            }
            store_vec4(e, z * o.stride + row * o.ldy + column, sum, live);
        }
    }
    workgroupBarrier();
}

/// Fills the tile with NaN, so that a subgroup size which this pipeline was not built for shows in results and counts.
/// The self-test finds it, and a training would count the NaN in its statistics.
fn store_nan_tile(e: Epilogue, lane: u32, z: u32, r: u32, c: u32) {
    let o = p.output;
    // Computed, because WGSL refuses constants that are NaN.
    let nan = bitcast<f32>(0x7fc00000u | (o.m & 0u));
    let fours = COLUMNS * 2u * SIDE / 4u;
    for (var i = lane; i < ROWS * 4u * SIDE * fours; i += GROUP) {
        let row = r + i / fours;
        let column = c + 4u * (i % fours);
        if z < o.batch && row < o.m && column < o.n {
            store_vec4(e, z * o.stride + row * o.ldy + column, vec4<f32>(nan), min(o.n - column, 4u));
        }
    }
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_size) size_here: u32,
    @builtin(num_subgroups) subgroups_here: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) own: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    let o = p.output;
    let rows = ROWS * 4u * SIDE;
    let columns = COLUMNS * 2u * SIDE;
    // The last row of a grid may have workgroups without a tile, of a matrix after the last. They run too, because
    // subgroup operations must be in uniform control flow.
    let tile_n = number_of_group % o.tiles_n;
    let tile_m = (number_of_group / o.tiles_n) % o.tiles_m;
    let z = number_of_group / (o.tiles_n * o.tiles_m);
    // The same in all invocations of a dispatch, which naga does not know: so one of them writes it, and all load it. The
    // driver chooses the size when it compiles the pipeline, and another one would lead out of the memory of this workgroup.
    if lane == 0u {
        fits = u32(size_here == SIZE && subgroups_here == ROWS * COLUMNS);
    }
    if workgroupUniformLoad(&fits) == 0u {
        store_nan_tile(e, lane, z, tile_m * rows, tile_n * columns);
        end_store(lane, number_of_group);
        return;
    }
    let line_a = pitch_of(A_K_CONTIGUOUS, rows);
    let line_b = pitch_of(B_K_CONTIGUOUS, columns);
    let fours_a = rows * K_TILE / 4u;
    let fours_b = columns * K_TILE / 4u;
    // Blocks of this subgroup.
    let row = subgroup / COLUMNS * 4u * SIDE;
    let column = subgroup % COLUMNS * 2u * SIDE;
    var c00 = Sums();
    var c01 = Sums();
    var c10 = Sums();
    var c11 = Sums();
    var c20 = Sums();
    var c21 = Sums();
    var c30 = Sums();
    var c31 = Sums();
    var next_a = array<vec4<f16>, 2>();
    var next_b = array<vec4<f16>, 2>();
    for (var j = 0u; j < 2u; j += 1u) {
        let i = lane + j * GROUP;
        let from_a = element_position(i, A_K_CONTIGUOUS, rows);
        let from_b = element_position(i, B_K_CONTIGUOUS, columns);
        next_a[j] = load_a(z, tile_m * rows + from_a.x, from_a.y);
        next_b[j] = load_b(z, from_b.y, tile_n * columns + from_b.x);
    }
    for (var k = 0u; k < o.k; k += K_TILE) {
        workgroupBarrier();
        for (var j = 0u; j < 2u; j += 1u) {
            let i = lane + j * GROUP;
            let from_a = element_position(i, A_K_CONTIGUOUS, rows);
            let from_b = element_position(i, B_K_CONTIGUOUS, columns);
            if i < fours_a {
                write_left(
                    select(from_a.y * line_a + from_a.x, from_a.x * line_a + from_a.y, A_K_CONTIGUOUS != 0u),
                    next_a[j],
                );
            }
            if i < fours_b {
                write_right(
                    select(from_b.y * line_b + from_b.x, from_b.x * line_b + from_b.y, B_K_CONTIGUOUS != 0u),
                    next_b[j],
                );
            }
            next_a[j] = load_a(z, tile_m * rows + from_a.x, k + K_TILE + from_a.y);
            next_b[j] = load_b(z, k + K_TILE + from_b.y, tile_n * columns + from_b.x);
        }
        workgroupBarrier();
        for (var d = 0u; d < K_TILE; d += SIDE) {
            // k runs along a line, or from line to line.
            let skip_a = select(d * line_a, d, A_K_CONTIGUOUS != 0u);
            let skip_b = select(d * line_b, d, B_K_CONTIGUOUS != 0u);
            let b0 = right_block(column, skip_b, line_b);
            let b1 = right_block(column + SIDE, skip_b, line_b);
            let a0 = left_block(row, skip_a, line_a);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c01 = coopMultiplyAdd(a0, b1, c01);
            let a1 = left_block(row + SIDE, skip_a, line_a);
            c10 = coopMultiplyAdd(a1, b0, c10);
            c11 = coopMultiplyAdd(a1, b1, c11);
            let a2 = left_block(row + 2u * SIDE, skip_a, line_a);
            c20 = coopMultiplyAdd(a2, b0, c20);
            c21 = coopMultiplyAdd(a2, b1, c21);
            let a3 = left_block(row + 3u * SIDE, skip_a, line_a);
            c30 = coopMultiplyAdd(a3, b0, c30);
            c31 = coopMultiplyAdd(a3, b1, c31);
        }
    }
    let start = subgroup * SIDE * SIDE;
    let r = tile_m * rows + row;
    let c = tile_n * columns + column;
    let side = SIDE;
    // One text for all blocks: written out eight times, the epilogue was 100 KB of code.
    for (var block = 0u; block < 8u; block += 1u) {
        switch block {
            case 0u: { coopStoreT(c00, &results[start], side); }
            case 1u: { coopStoreT(c01, &results[start], side); }
            case 2u: { coopStoreT(c10, &results[start], side); }
            case 3u: { coopStoreT(c11, &results[start], side); }
            case 4u: { coopStoreT(c20, &results[start], side); }
            case 5u: { coopStoreT(c21, &results[start], side); }
            case 6u: { coopStoreT(c30, &results[start], side); }
            default: { coopStoreT(c31, &results[start], side); }
        }
        store_block(e, z, r + block / 2u * SIDE, c + block % 2u * SIDE, start, own);
    }
    end_store(lane, number_of_group);
}
