// The product of tiles, for matrices and convolutions: 64×64 results in a workgroup of 16×16 invocations, each of which
// sums 4×4 in f32, in order of k; where few rows or columns are wanted, 16×16 results, one each. Tiles of both operands
// pass through workgroup memory, 16 or 64 deep; the next are on their way while these are multiplied.
//
// Needs store.wgsl, shared.wgsl, output.wgsl; a kernel declares `p.output: Output`, the operand `bias`, and
//   fn prepare(z: u32, row: u32, col: u32)        what this invocation will load: 4 rows of a, 4 columns of b
//   fn a_four(z: u32, row: u32, k: u32) -> vec4<f32>     rows row to row + 3 of a in column k
//   fn b_four(z: u32, k: u32, col: u32) -> vec4<f32>     columns col to col + 3 of b in row k
// What they give for rows and columns outside the matrices does not matter: it meets no result that is kept. `A_ALONG`
// and `B_ALONG` say along what memory runs: invocations beside each other load what lies side by side.

@group(0) @binding(8) var<storage, read_write> slices: array<f32>;
/// 1 where a's memory runs along k, and b's along k.
override A_ALONG: u32;
override B_ALONG: u32;

/// Fours of results along each side of a tile: 16 or 4.
override FOURS: u32;
override DEPTH: u32 = GROUP / FOURS;
const SIDE: u32 = 16u;

var<workgroup> tile_a: array<vec4<f32>, 256>;
var<workgroup> tile_b: array<vec4<f32>, 256>;

/// Where an invocation loads: (which four, which k) of a tile.
fn load_place(lane: u32, along_k: u32) -> vec2<u32> {
    return select(vec2<u32>(lane % FOURS, lane / FOURS), vec2<u32>(lane / DEPTH, lane % DEPTH), along_k != 0u);
}

fn product(lane: u32, number_of_group: u32) {
    let o = p.output;
    begin_store(lane);
    let e = epilogue();
    // The last row of a grid may hold workgroups without a tile.
    if number_of_group < o.tiles_m * o.tiles_n * o.batch * o.slices {
        let tile_n = number_of_group % o.tiles_n;
        let tile_m = (number_of_group / o.tiles_n) % o.tiles_m;
        let rest = number_of_group / (o.tiles_n * o.tiles_m);
        let z = rest % o.batch;
        let slice = rest / o.batch;
        let from_a = load_place(lane, A_ALONG);
        let from_b = load_place(lane, B_ALONG);
        let row = 4u * (tile_m * FOURS + from_a.x);
        let col = 4u * (tile_n * FOURS + from_b.x);
        prepare(z, row, col);
        let start = slice * o.depth;
        let end = min(o.k, start + o.depth);
        var c0 = vec4<f32>();
        var c1 = vec4<f32>();
        var c2 = vec4<f32>();
        var c3 = vec4<f32>();
        var a = vec4<f32>();
        var b = vec4<f32>();
        if start + from_a.y < end {
            a = a_four(z, row, start + from_a.y);
        }
        if start + from_b.y < end {
            b = b_four(z, start + from_b.y, col);
        }
        for (var k = start; k < end; k += DEPTH) {
            workgroupBarrier();
            tile_a[from_a.y * FOURS + from_a.x] = a;
            tile_b[from_b.y * FOURS + from_b.x] = b;
            workgroupBarrier();
            let next_a = k + DEPTH + from_a.y;
            let next_b = k + DEPTH + from_b.y;
            a = vec4<f32>();
            b = vec4<f32>();
            if next_a < end {
                a = a_four(z, row, next_a);
            }
            if next_b < end {
                b = b_four(z, next_b, col);
            }
            if FOURS == SIDE {
                for (var d = 0u; d < DEPTH; d += 1u) {
                    let u = tile_a[d * SIDE + lane / SIDE];
                    let v = tile_b[d * SIDE + lane % SIDE];
                    c0 += u.x * v;
                    c1 += u.y * v;
                    c2 += u.z * v;
                    c3 += u.w * v;
                }
            } else {
                for (var d = 0u; d < DEPTH; d += 1u) {
                    c0.x += one(tile_a[d * FOURS + lane / (4u * SIDE)], lane / SIDE)
                        * one(tile_b[d * FOURS + (lane % SIDE) / 4u], lane);
                }
            }
        }
        if FOURS == SIDE {
            let r = 4u * (tile_m * FOURS + lane / SIDE);
            let c = 4u * (tile_n * FOURS + lane % SIDE);
            if c < o.n {
                let live = min(o.n - c, 4u);
                let sums = array<vec4<f32>, 4>(c0, c1, c2, c3);
                for (var j = 0u; j < 4u; j += 1u) {
                    finish_row(e, slice, z, r + j, c, sums[j], live);
                }
            }
        } else {
            let c = 4u * tile_n * FOURS + lane % SIDE;
            if c < o.n {
                finish_row(e, slice, z, 4u * tile_m * FOURS + lane / SIDE, c, c0, 1u);
            }
        }
    }
    end_store(lane, number_of_group);
}

/// Component `i` modulo 4.
fn one(four: vec4<f32>, i: u32) -> f32 {
    return select(select(four.x, four.y, (i & 1u) == 1u), select(four.z, four.w, (i & 1u) == 1u), (i & 2u) == 2u);
}

/// What becomes of `live` sums side by side. Without a bias nothing is added, so that −0 stays.
fn finish_row(e: Epilogue, slice: u32, z: u32, r: u32, c: u32, v: vec4<f32>, live: u32) {
    let o = p.output;
    if r >= o.m {
        return;
    }
    if o.slices > 1u {
        let i = ((slice * o.batch + z) * o.m + r) * o.n + c;
        slices[i] = v.x;
        if live > 1u { slices[i + 1u] = v.y; }
        if live > 2u { slices[i + 2u] = v.z; }
        if live > 3u { slices[i + 3u] = v.w; }
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
    put4(e, z * o.stride + r * o.lead + c, sum, live);
}
