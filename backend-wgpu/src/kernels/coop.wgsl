// Products of halves by cooperative matrices. A subgroup multiplies SIDE×SIDE blocks in one instruction, on tensor cores if
// the GPU has them; coop_8.wgsl and coop_16.wgsl define SIDE. Each of the subgroups of a workgroup, arranged in rows and
// columns, computes 4×2 blocks of results.
//
// Operands stay in their layout in memory. A lane loads eight neighbours: eight k of one line (a row of a, a column of b) if
// the operand is contiguous along k, else eight lines of one k. In workgroup memory lines are always contiguous along k,
// because blocks are loaded from there more often than they are written: 4×2 products of blocks take 6 blocks. On RDNA 3 a
// block along k is 2 loads of 16 bytes for each invocation, and one across k is 16 loads of 2 bytes. The next eights are
// loaded while these are multiplied. Sums have the same order whatever the arrangement of subgroups.
//
// Needs store.wgsl, shared.wgsl, output.wgsl, store_row.wgsl; a loader declares `p.output: Output`, `p.subgroups`, and for a,
// and for b likewise,
//   fn start_a(j: u32, z: u32, line: u32, start: u32, ahead: u32)   computes addresses of eight j for k = start + ahead
//   fn advance_a()                                                  moves all by K_TILE of k
//   fn load_a(j: u32, k: u32, end: u32)                             loads eight j, which begins at k, into `a_eights`, and
//                                                                   the number of its fours that are there into `a_fours`
// `start` is the same for the whole workgroup. Fours outside the matrices, and from `end` on, are not there: something else
// is loaded without a condition, and zero is written. A condition would wait for the load.

@group(0) @binding(16) var<storage, read> a: array<vec4<f16>>;
@group(0) @binding(17) var<storage, read> b: array<vec4<f16>>;

/// 1 if a, or b, is contiguous along k.
override A_K_CONTIGUOUS: u32;
override B_K_CONTIGUOUS: u32;
/// Number of invocations of a subgroup.
override SIZE: u32;

const K_TILE: u32 = 16u;
/// Halves from one line of a tile to the next. The padding lets lines begin in other banks.
const PITCH: u32 = K_TILE + 8u;
/// Maximum number of lines of both tiles: 256 and 64.
const MAX_TILE_LINES: u32 = 320u;
/// Lines of the eights that all invocations load at once, of which there are up to two for each operand.
const LINES_AT_ONCE: u32 = 128u;

/// Line that is in no matrix.
const NO_LINE: u32 = 0xffffffffu;

/// Eight neighbours in memory. They are copied, never computed with, so they keep their bits.
struct Eight {
    low: vec4<f16>,
    high: vec4<f16>,
}

/// Lines of a, and behind them those of b.
var<workgroup> tiles: array<f16, MAX_TILE_LINES * PITCH>;
var<workgroup> results: array<f32, 2048>;
/// True if the device's subgroups have the size that this pipeline was compiled for.
var<workgroup> fits: u32;

/// Returns (line, k) of the first eight that an invocation loads. Across k, neighbouring invocations load different k, and
/// so write to different banks.
fn load_position(lane: u32, along_k: u32) -> vec2<u32> {
    if along_k != 0u {
        return vec2<u32>(lane / 2u, 8u * (lane % 2u));
    }
    return vec2<u32>(8u * (lane / K_TILE), lane % K_TILE);
}

/// Eights that an invocation has loaded for the next step, and the number of fours of each that are there.
var<private> a_eights: array<Eight, 2>;
var<private> b_eights: array<Eight, 2>;
var<private> a_fours: array<u32, 2>;
var<private> b_fours: array<u32, 2>;

/// Loads the eights of a step.
fn load_eights(a_k: u32, b_k: u32, end: u32) {
    load_a(0u, a_k, end);
    load_a(1u, a_k, end);
    load_b(0u, b_k, end);
    load_b(1u, b_k, end);
}

/// Writes eight halves that are `next` halves apart.
fn write_halves(at: u32, next: u32, low: vec4<f16>, high: vec4<f16>) {
    tiles[at] = low.x;
    tiles[at + next] = low.y;
    tiles[at + 2u * next] = low.z;
    tiles[at + 3u * next] = low.w;
    tiles[at + 4u * next] = high.x;
    tiles[at + 5u * next] = high.y;
    tiles[at + 6u * next] = high.z;
    tiles[at + 7u * next] = high.w;
}

/// Writes an eight, with zeros in place of fours that are not there. Few are not, and to select zeros takes drivers three
/// instructions for each half.
fn write_eight(at: u32, next: u32, v: Eight, fours: u32) {
    if fours == 2u {
        write_halves(at, next, v.low, v.high);
    } else {
        write_halves(at, next, select(vec4<f16>(), v.low, fours == 1u), vec4<f16>());
    }
}

/// Loads the block of operand a from a place in the tiles on.
fn left_block(at: u32) -> Left {
    let pitch = PITCH;
    return coopLoadT<Left>(&tiles[at], pitch);
}

fn right_block(at: u32) -> Right {
    let pitch = PITCH;
    return coopLoad<Right>(&tiles[at], pitch);
}

/// Stores the block of results that a subgroup has left in `results`, from (r, c) on; NaN if the subgroup does not fit.
fn store_block(e: Epilogue, split: u32, z: u32, r: u32, c: u32, start: u32, own: u32, is_fitting: bool) {
    workgroupBarrier();
    for (var i = own; i < SIDE * SIDE / 4u; i += SIZE) {
        let row = r + i / (SIDE / 4u);
        let column = c + 4u * (i % (SIDE / 4u));
        if column < p.output.n {
            // Computed, because WGSL refuses constants that are NaN.
            var sum = vec4<f32>(bitcast<f32>(0x7fc00000u | (p.output.m & 0u)));
            if is_fitting {
                let at = start + 4u * i;
                sum = vec4<f32>(results[at], results[at + 1u], results[at + 2u], results[at + 3u]);
            }
            store_row(e, split, z, row, column, sum, min(p.output.n - column, 4u));
        }
    }
    workgroupBarrier();
}

/// Computes the tile of a workgroup.
fn multiply_blocks(
    lane: u32, number_of_group: u32, subgroup_here: u32, own_here: u32, size_here: u32, subgroups_here: u32,
) {
    let o = p.output;
    let e = epilogue();
    let tile = p.subgroups * vec2<u32>(4u, 2u) * SIDE;
    let tile_n = number_of_group % o.tiles_n;
    let tile_m = (number_of_group / o.tiles_n) % o.tiles_m;
    let rest = number_of_group / (o.tiles_n * o.tiles_m);
    let z = rest % o.batch;
    let split = rest / o.batch;
    let first = vec2<u32>(tile_m, tile_n) * tile;
    // The same in all invocations of a dispatch, which naga does not know: so one of them writes it, and all load it. The
    // driver chooses the size when it compiles the pipeline, and another one would lead out of the memory of this workgroup.
    // Then all results are NaN: the self-test finds them, and a training would count them in its statistics.
    if lane == 0u {
        fits = u32(size_here == SIZE && subgroups_here == p.subgroups.x * p.subgroups.y);
    }
    let is_fitting = workgroupUniformLoad(&fits) != 0u;
    let subgroup = select(lane / SIZE, subgroup_here, is_fitting);
    let own = select(lane % SIZE, own_here, is_fitting);
    let start = split * o.split_len;
    let end = select(start, min(o.k, start + o.split_len), is_fitting);
    let a_position = load_position(lane, A_K_CONTIGUOUS);
    let b_position = load_position(lane, B_K_CONTIGUOUS);
    for (var j = 0u; j < 2u; j += 1u) {
        // Beyond the tile nothing is there.
        let lines = vec2<u32>(a_position.x, b_position.x) + j * LINES_AT_ONCE;
        let line = select(vec2<u32>(NO_LINE), first + lines, lines < tile);
        start_a(j, z, line.x, start, a_position.y);
        start_b(j, z, line.y, start, b_position.y);
    }
    let a_place = a_position.x * PITCH + a_position.y;
    let b_place = (tile.x + b_position.x) * PITCH + b_position.y;
    let a_next = select(PITCH, 1u, A_K_CONTIGUOUS != 0u);
    let b_next = select(PITCH, 1u, B_K_CONTIGUOUS != 0u);
    // Blocks of this subgroup.
    let row = subgroup / p.subgroups.y * 4u * SIDE;
    let column = subgroup % p.subgroups.y * 2u * SIDE;
    let left = row * PITCH;
    let right = (tile.x + column) * PITCH;
    var c00 = Sums();
    var c01 = Sums();
    var c10 = Sums();
    var c11 = Sums();
    var c20 = Sums();
    var c21 = Sums();
    var c30 = Sums();
    var c31 = Sums();
    load_eights(start + a_position.y, start + b_position.y, end);
    for (var k = start; k < end; k += K_TILE) {
        workgroupBarrier();
        for (var j = 0u; j < 2u; j += 1u) {
            if a_position.x + j * LINES_AT_ONCE < tile.x {
                write_eight(a_place + j * LINES_AT_ONCE * PITCH, a_next, a_eights[j], a_fours[j]);
            }
            if b_position.x + j * LINES_AT_ONCE < tile.y {
                write_eight(b_place + j * LINES_AT_ONCE * PITCH, b_next, b_eights[j], b_fours[j]);
            }
        }
        workgroupBarrier();
        advance_a();
        advance_b();
        load_eights(k + K_TILE + a_position.y, k + K_TILE + b_position.y, end);
        for (var d = 0u; d < K_TILE; d += SIDE) {
            let b0 = right_block(right + d);
            let b1 = right_block(right + SIDE * PITCH + d);
            let a0 = left_block(left + d);
            c00 = coopMultiplyAdd(a0, b0, c00);
            c01 = coopMultiplyAdd(a0, b1, c01);
            let a1 = left_block(left + SIDE * PITCH + d);
            c10 = coopMultiplyAdd(a1, b0, c10);
            c11 = coopMultiplyAdd(a1, b1, c11);
            let a2 = left_block(left + 2u * SIDE * PITCH + d);
            c20 = coopMultiplyAdd(a2, b0, c20);
            c21 = coopMultiplyAdd(a2, b1, c21);
            let a3 = left_block(left + 3u * SIDE * PITCH + d);
            c30 = coopMultiplyAdd(a3, b0, c30);
            c31 = coopMultiplyAdd(a3, b1, c31);
        }
    }
    let own_results = subgroup * SIDE * SIDE;
    let r = first.x + row;
    let c = first.y + column;
    let side = SIDE;
    // One text for all blocks: written out eight times, the epilogue was 100 KB of code.
    for (var block = 0u; block < 8u; block += 1u) {
        if is_fitting {
            switch block {
                case 0u: { coopStoreT(c00, &results[own_results], side); }
                case 1u: { coopStoreT(c01, &results[own_results], side); }
                case 2u: { coopStoreT(c10, &results[own_results], side); }
                case 3u: { coopStoreT(c11, &results[own_results], side); }
                case 4u: { coopStoreT(c20, &results[own_results], side); }
                case 5u: { coopStoreT(c21, &results[own_results], side); }
                case 6u: { coopStoreT(c30, &results[own_results], side); }
                default: { coopStoreT(c31, &results[own_results], side); }
            }
        }
        store_block(e, split, z, r + block / 2u * SIDE, c + block % 2u * SIDE, own_results, own, is_fitting);
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
    let o = p.output;
    begin_store(lane);
    // The last row of a grid may contain workgroups without a tile.
    if number_of_group < o.tiles_m * o.tiles_n * o.batch * o.splits {
        multiply_blocks(lane, number_of_group, subgroup, own, size_here, subgroups_here);
    }
    end_store(lane, number_of_group);
}
