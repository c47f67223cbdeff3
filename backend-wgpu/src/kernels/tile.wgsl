// Tiled GEMM for matrices and convolutions. A workgroup of 16×16 invocations computes 64×64 results, 4×4 each in f32 in the
// order of k, or for few rows or columns 16×16 results, one each. K tiles of 16 or 64 of both operands are in workgroup
// memory, and the next ones are loaded while these are multiplied.
//
// Needs store.wgsl, shared.wgsl, output.wgsl; a kernel declares `p.output: Output`, the operand `bias`, and
//   fn prepare(z: u32, row: u32, col: u32)        computes addresses of 4 rows of a and 4 columns of b for this invocation
//   fn load_a_vec4(z: u32, row: u32, k: u32) -> vec4<f32>     rows row to row + 3 of a in column k
//   fn load_b_vec4(z: u32, k: u32, col: u32) -> vec4<f32>     columns col to col + 3 of b in row k
// Rows and columns outside the matrices may have any value, because their products are never stored. `A_K_CONTIGUOUS` and
// `B_K_CONTIGUOUS` give the contiguous direction, along which neighbouring invocations load neighbouring elements.

@group(0) @binding(8) var<storage, read_write> split_k_partials: array<f32>;
/// 1 if a, or b, is contiguous along k.
override A_K_CONTIGUOUS: u32;
override B_K_CONTIGUOUS: u32;

/// 4-wide vectors along each side of a tile: 16 or 4.
override TILE_VEC4S: u32;
override K_TILE: u32 = GROUP / TILE_VEC4S;
const SIDE: u32 = 16u;

var<workgroup> tile_a: array<vec4<f32>, 256>;
var<workgroup> tile_b: array<vec4<f32>, 256>;

/// Returns the position in a tile of the 4-wide vector that an invocation loads: (vector, k).
fn load_position(lane: u32, along_k: u32) -> vec2<u32> {
    return select(vec2<u32>(lane % TILE_VEC4S, lane / TILE_VEC4S), vec2<u32>(lane / K_TILE, lane % K_TILE), along_k != 0u);
}

fn multiply_tiles(lane: u32, number_of_group: u32) {
    let o = p.output;
    begin_store(lane);
    let e = epilogue();
    // The last row of a grid may contain workgroups without a tile.
    if number_of_group < o.tiles_m * o.tiles_n * o.batch * o.splits {
        let tile_n = number_of_group % o.tiles_n;
        let tile_m = (number_of_group / o.tiles_n) % o.tiles_m;
        let rest = number_of_group / (o.tiles_n * o.tiles_m);
        let z = rest % o.batch;
        let split = rest / o.batch;
        let a_position = load_position(lane, A_K_CONTIGUOUS);
        let b_position = load_position(lane, B_K_CONTIGUOUS);
        let row = 4u * (tile_m * TILE_VEC4S + a_position.x);
        let col = 4u * (tile_n * TILE_VEC4S + b_position.x);
        prepare(z, row, col);
        let start = split * o.split_len;
        let end = min(o.k, start + o.split_len);
        var c0 = vec4<f32>();
        var c1 = vec4<f32>();
        var c2 = vec4<f32>();
        var c3 = vec4<f32>();
        var a = vec4<f32>();
        var b = vec4<f32>();
        if start + a_position.y < end {
            a = load_a_vec4(z, row, start + a_position.y);
        }
        if start + b_position.y < end {
            b = load_b_vec4(z, start + b_position.y, col);
        }
        for (var k = start; k < end; k += K_TILE) {
            workgroupBarrier();
            tile_a[a_position.y * TILE_VEC4S + a_position.x] = a;
            tile_b[b_position.y * TILE_VEC4S + b_position.x] = b;
            workgroupBarrier();
            let next_a = k + K_TILE + a_position.y;
            let next_b = k + K_TILE + b_position.y;
            a = vec4<f32>();
            b = vec4<f32>();
            if next_a < end {
                a = load_a_vec4(z, row, next_a);
            }
            if next_b < end {
                b = load_b_vec4(z, next_b, col);
            }
            if TILE_VEC4S == SIDE {
                for (var d = 0u; d < K_TILE; d += 1u) {
                    let u = tile_a[d * SIDE + lane / SIDE];
                    let v = tile_b[d * SIDE + lane % SIDE];
                    c0 += u.x * v;
                    c1 += u.y * v;
                    c2 += u.z * v;
                    c3 += u.w * v;
                }
            } else {
                for (var d = 0u; d < K_TILE; d += 1u) {
                    c0.x += component(tile_a[d * TILE_VEC4S + lane / (4u * SIDE)], lane / SIDE)
                        * component(tile_b[d * TILE_VEC4S + (lane % SIDE) / 4u], lane);
                }
            }
        }
        if TILE_VEC4S == SIDE {
            let r = 4u * (tile_m * TILE_VEC4S + lane / SIDE);
            let c = 4u * (tile_n * TILE_VEC4S + lane % SIDE);
            if c < o.n {
                let live = min(o.n - c, 4u);
                let sums = array<vec4<f32>, 4>(c0, c1, c2, c3);
                for (var j = 0u; j < 4u; j += 1u) {
                    store_row(e, split, z, r + j, c, sums[j], live);
                }
            }
        } else {
            let c = 4u * tile_n * TILE_VEC4S + lane % SIDE;
            if c < o.n {
                store_row(e, split, z, 4u * tile_m * TILE_VEC4S + lane / SIDE, c, c0, 1u);
            }
        }
    }
    end_store(lane, number_of_group);
}

/// Returns component `i` modulo 4 of a vector.
fn component(four: vec4<f32>, i: u32) -> f32 {
    return select(select(four.x, four.y, (i & 1u) == 1u), select(four.z, four.w, (i & 1u) == 1u), (i & 2u) == 2u);
}

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
