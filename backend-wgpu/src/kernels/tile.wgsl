// The product of tiles, for matrices and convolutions: 64×64 results in a workgroup of 16×16 invocations, each of which
// sums 4×4 in f32, in order of k. Tiles of both operands pass through workgroup memory, 16 deep; the next are on their
// way while these are multiplied. Needs store.wgsl, shared.wgsl; a kernel declares `p.output: Output`, the operand
// `bias`, and
//   fn prepare(z: u32, row: u32, col: u32)        what this invocation will load: 4 rows of a, 4 columns of b
//   fn a_four(z: u32, row: u32, k: u32) -> vec4<f32>     rows row to row + 3 of a in column k
//   fn b_four(z: u32, k: u32, col: u32) -> vec4<f32>     columns col to col + 3 of b in row k
// which give 0 outside the matrices. `A_ALONG` and `B_ALONG` say along what memory runs: invocations beside each other
// load what lies side by side.

/// m, n, k of each of `batch` products; where result (z, r, c) goes: z · stride + r · lead + c; its bias:
/// z · bias_stride + c. With several slices each sums `depth` of k, into `slices` as [slice, z, m, n].
struct Output {
    m: u32,
    n: u32,
    k: u32,
    batch: u32,
    stride: u32,
    lead: u32,
    bias_stride: u32,
    has_bias: u32,
    depth: u32,
    slices: u32,
    tiles_m: u32,
    tiles_n: u32,
}

@group(0) @binding(8) var<storage, read_write> slices: array<f32>;
/// 1 where a's memory runs along k, and b's along k.
override A_ALONG: u32;
override B_ALONG: u32;

const TILE: u32 = 64u;
const DEPTH: u32 = 16u;
const SIDE: u32 = 16u;

var<workgroup> tile_a: array<vec4<f32>, 256>;
var<workgroup> tile_b: array<vec4<f32>, 256>;

/// Where an invocation loads: (which four, which k) of a tile.
fn load_place(lane: u32, along_k: u32) -> vec2<u32> {
    return select(vec2<u32>(lane % SIDE, lane / SIDE), vec2<u32>(lane / SIDE, lane % SIDE), along_k != 0u);
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
        let row = tile_m * TILE + 4u * from_a.x;
        let col = tile_n * TILE + 4u * from_b.x;
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
            tile_a[from_a.y * SIDE + from_a.x] = a;
            tile_b[from_b.y * SIDE + from_b.x] = b;
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
            for (var d = 0u; d < DEPTH; d += 1u) {
                let u = tile_a[d * SIDE + lane / SIDE];
                let v = tile_b[d * SIDE + lane % SIDE];
                c0 += u.x * v;
                c1 += u.y * v;
                c2 += u.z * v;
                c3 += u.w * v;
            }
        }
        let r = tile_m * TILE + 4u * (lane / SIDE);
        let c = tile_n * TILE + 4u * (lane % SIDE);
        if c < o.n {
            let live = min(o.n - c, 4u);
            if o.slices > 1u {
                keep(slice, z, r, c, c0, live);
                keep(slice, z, r + 1u, c, c1, live);
                keep(slice, z, r + 2u, c, c2, live);
                keep(slice, z, r + 3u, c, c3, live);
            } else {
                let more = bias_four(z, c, live);
                result(e, z, r, c, c0, more, live);
                result(e, z, r + 1u, c, c1, more, live);
                result(e, z, r + 2u, c, c2, more, live);
                result(e, z, r + 3u, c, c3, more, live);
            }
        }
    }
    end_store(lane, number_of_group);
}

fn bias_four(z: u32, c: u32, live: u32) -> vec4<f32> {
    var four = vec4<f32>();
    if p.output.has_bias != 0u {
        let i = z * p.output.bias_stride + c;
        four.x = bias_at(i);
        if live > 1u { four.y = bias_at(i + 1u); }
        if live > 2u { four.z = bias_at(i + 2u); }
        if live > 3u { four.w = bias_at(i + 3u); }
    }
    return four;
}

/// Stores four results of a row; without a bias nothing is added, so that −0 stays.
fn result(e: Epilogue, z: u32, r: u32, c: u32, v: vec4<f32>, more: vec4<f32>, live: u32) {
    if r < p.output.m {
        let i = z * p.output.stride + r * p.output.lead + c;
        put4(e, i, select(v, v + more, p.output.has_bias != 0u), live);
    }
}

/// Keeps four sums of a slice.
fn keep(slice: u32, z: u32, r: u32, c: u32, v: vec4<f32>, live: u32) {
    if r < p.output.m {
        let i = ((slice * p.output.batch + z) * p.output.m + r) * p.output.n + c;
        slices[i] = v.x;
        if live > 1u { slices[i + 1u] = v.y; }
        if live > 2u { slices[i + 2u] = v.z; }
        if live > 3u { slices[i + 3u] = v.w; }
    }
}
