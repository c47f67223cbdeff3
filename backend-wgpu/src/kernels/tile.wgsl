// Tiled GEMM for matrices and convolutions. A workgroup of 256 invocations computes ROWS×COLUMNS results in f32, in the
// order of k: 8×8, 8×4, 4×8 or 4×4 results for each invocation, or one for the tile of 16×16. Tiles of both operands,
// K_TILE deep, are in workgroup memory, and the next ones are loaded while these are multiplied. Every tile adds the same
// terms in the same order, so the choice of a tile changes no bit.
//
// Operands stay in their layout. A lane loads four neighbours of memory and writes them as one vector; what is transposed
// is transposed in registers, which only names them differently. Neighbours are four k of one line (a row of a, a column of
// b) if the operand is contiguous along k, else four lines of one k.
//
// Needs store.wgsl, shared.wgsl, output.wgsl, store_row.wgsl; a kernel declares `p.output: Output`, the operand `bias`, and
// for a, and for b likewise,
//   fn start_a(z: u32, line: u32, start: u32, ahead: u32)   computes addresses for k = start + ahead
//   fn advance_a()                                          moves them by K_TILE of k
//   fn load_a(k: u32, end: u32) -> vec4<f32>                loads the vector of k, which is below `end`; zero from `end` on
// `start` is the same for the whole workgroup. Lines outside the matrices may have any value, because their products are
// never stored.

/// 1 if a, or b, is contiguous along k.
override A_K_CONTIGUOUS: u32;
override B_K_CONTIGUOUS: u32;
/// 1 if every vector of four neighbours starts at a multiple of four elements, and sums have whole tiles.
override ALIGNED: u32;

/// Results of a workgroup: 16×16, 256×16, or 64 or 128 in each direction; and the depth of its tiles.
override ROWS: u32;
override COLUMNS: u32;
override K_TILE: u32;
/// Invocations along the columns of a tile: 4 if it has 256 rows, else 16.
override LANE_COLUMNS: u32;
/// 4-wide vectors along k, along the rows and along the columns of a tile.
override QUARTERS: u32 = K_TILE / 4u;
override A_VEC4S: u32 = ROWS / 4u;
override B_VEC4S: u32 = COLUMNS / 4u;
/// 4-wide vectors of results of an invocation in each direction: 0 for one result.
override ROW_VEC4S: u32 = ROWS * LANE_COLUMNS / 1024u;
override COLUMN_VEC4S: u32 = COLUMNS / (4u * LANE_COLUMNS);

var<workgroup> tile_a: array<vec4<f32>, 256>;
var<workgroup> tile_b: array<vec4<f32>, 256>;

/// Returns the bits that are flipped in the place of a vector along k, so that eight neighbouring lines are in eight
/// different groups of banks.
fn swizzle(slot: u32) -> u32 {
    return (slot >> (4u / QUARTERS)) & (QUARTERS - 1u);
}

/// Returns the slot of a line that is contiguous along k. Lines 0, 4, 8, … are neighbours, because neighbouring
/// invocations read them at the same time.
fn slot_of_line(line: u32, vec4s: u32) -> u32 {
    return (line % 4u) * vec4s + line / 4u;
}

/// Returns (line, k) of the vector that an invocation loads.
fn load_position(lane: u32, vec4s: u32, along_k: u32) -> vec2<u32> {
    if along_k != 0u {
        let slot = lane / QUARTERS;
        return vec2<u32>(4u * (slot % vec4s) + slot / vec4s, 4u * (lane % QUARTERS));
    }
    return vec2<u32>(4u * (lane % vec4s), lane / vec4s);
}

/// Returns the place of that vector in a tile.
fn store_position(lane: u32, along_k: u32) -> u32 {
    if along_k != 0u {
        let slot = lane / QUARTERS;
        return slot * QUARTERS + ((lane % QUARTERS) ^ swizzle(slot));
    }
    return lane;
}

/// Returns the first place of a tile that an invocation reads for a quarter of k: `first` is a vector of lines.
fn read_place(first: u32, quarter: u32, vec4s: u32, along_k: u32) -> u32 {
    return select(4u * quarter * vec4s + first, first * QUARTERS + (quarter ^ swizzle(first)), along_k != 0u);
}

/// Returns four columns of four k from a place on: column j of the matrix is k = j.
fn columns_of_tile(at: u32) -> mat4x4<f32> {
    if B_K_CONTIGUOUS != 0u {
        let next = B_VEC4S * QUARTERS;
        return transpose(mat4x4<f32>(tile_b[at], tile_b[at + next], tile_b[at + 2u * next], tile_b[at + 3u * next]));
    }
    return mat4x4<f32>(tile_b[at], tile_b[at + B_VEC4S], tile_b[at + 2u * B_VEC4S], tile_b[at + 3u * B_VEC4S]);
}

/// Adds four products to each of four sums, in the order of k.
fn add_row(sum: vec4<f32>, a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> {
    return (((sum + a.x * b[0]) + a.y * b[1]) + a.z * b[2]) + a.w * b[3];
}

/// Sums of an invocation, 4×4 each: the upper left, then right or lower ones, in the order in which they are stored.
var<private> sums: array<mat4x4<f32>, 4>;

/// Adds the products of four k of row `j` to the sums of a block of rows.
fn add_line(block: u32, j: u32, a: vec4<f32>, b0: mat4x4<f32>, b1: mat4x4<f32>) {
    let left = block * COLUMN_VEC4S;
    sums[left][j] = add_row(sums[left][j], a, b0);
    if COLUMN_VEC4S == 2u {
        sums[left + 1u][j] = add_row(sums[left + 1u][j], a, b1);
    }
}

/// Adds the products of four rows from a place on. Rows along k are read one by one: all at once, with 64 sums and two
/// matrices of b, they would be more registers than there are.
fn add_block(block: u32, at: u32, b0: mat4x4<f32>, b1: mat4x4<f32>) {
    if A_K_CONTIGUOUS != 0u {
        let next = A_VEC4S * QUARTERS;
        add_line(block, 0u, tile_a[at], b0, b1);
        add_line(block, 1u, tile_a[at + next], b0, b1);
        add_line(block, 2u, tile_a[at + 2u * next], b0, b1);
        add_line(block, 3u, tile_a[at + 3u * next], b0, b1);
    } else {
        let rows = transpose(mat4x4<f32>(
            tile_a[at],
            tile_a[at + A_VEC4S],
            tile_a[at + 2u * A_VEC4S],
            tile_a[at + 3u * A_VEC4S],
        ));
        add_line(block, 0u, rows[0], b0, b1);
        add_line(block, 1u, rows[1], b0, b1);
        add_line(block, 2u, rows[2], b0, b1);
        add_line(block, 3u, rows[3], b0, b1);
    }
}

/// Multiplies a quarter of the tiles. The second rows and columns of an invocation are 64 lines later.
fn multiply_quarter(a_at: u32, b_at: u32) {
    let b0 = columns_of_tile(b_at);
    var b1 = mat4x4<f32>();
    if COLUMN_VEC4S == 2u {
        b1 = columns_of_tile(b_at + LANE_COLUMNS * select(1u, QUARTERS, B_K_CONTIGUOUS != 0u));
    }
    add_block(0u, a_at, b0, b1);
    if ROW_VEC4S == 2u {
        add_block(1u, a_at + LANE_COLUMNS * select(1u, QUARTERS, A_K_CONTIGUOUS != 0u), b0, b1);
    }
}

/// Returns four k of one line of a tile of 16 lines.
fn line_of_a(line: u32, quarter: u32) -> vec4<f32> {
    if A_K_CONTIGUOUS != 0u {
        let slot = slot_of_line(line, A_VEC4S);
        return tile_a[slot * QUARTERS + (quarter ^ swizzle(slot))];
    }
    let at = 4u * quarter * A_VEC4S + line / 4u;
    return vec4<f32>(
        component(tile_a[at], line),
        component(tile_a[at + A_VEC4S], line),
        component(tile_a[at + 2u * A_VEC4S], line),
        component(tile_a[at + 3u * A_VEC4S], line),
    );
}

fn line_of_b(line: u32, quarter: u32) -> vec4<f32> {
    if B_K_CONTIGUOUS != 0u {
        let slot = slot_of_line(line, B_VEC4S);
        return tile_b[slot * QUARTERS + (quarter ^ swizzle(slot))];
    }
    let at = 4u * quarter * B_VEC4S + line / 4u;
    return vec4<f32>(
        component(tile_b[at], line),
        component(tile_b[at + B_VEC4S], line),
        component(tile_b[at + 2u * B_VEC4S], line),
        component(tile_b[at + 3u * B_VEC4S], line),
    );
}

/// Returns component `i` modulo 4 of a vector.
fn component(four: vec4<f32>, i: u32) -> f32 {
    return select(select(four.x, four.y, (i & 1u) == 1u), select(four.z, four.w, (i & 1u) == 1u), (i & 2u) == 2u);
}

/// Returns `v` with zeros from component `live` on.
fn first_of_vec4(v: vec4<f32>, live: u32) -> vec4<f32> {
    return select(vec4<f32>(), v, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(live));
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
        let start = split * o.split_len;
        let end = min(o.k, start + o.split_len);
        let a_position = load_position(lane % (A_VEC4S * K_TILE), A_VEC4S, A_K_CONTIGUOUS);
        let b_position = load_position(lane % (B_VEC4S * K_TILE), B_VEC4S, B_K_CONTIGUOUS);
        let a_place = store_position(lane, A_K_CONTIGUOUS);
        let b_place = store_position(lane, B_K_CONTIGUOUS);
        // A tile of 64 lines, 8 deep, is loaded by half of the invocations.
        let loads_a = A_VEC4S * K_TILE == GROUP || lane < A_VEC4S * K_TILE;
        let loads_b = B_VEC4S * K_TILE == GROUP || lane < B_VEC4S * K_TILE;
        start_a(z, tile_m * ROWS + a_position.x, start, a_position.y);
        start_b(z, tile_n * COLUMNS + b_position.x, start, b_position.y);
        let a_reads = vec4<u32>(
            read_place(lane / LANE_COLUMNS, 0u, A_VEC4S, A_K_CONTIGUOUS),
            read_place(lane / LANE_COLUMNS, 1u, A_VEC4S, A_K_CONTIGUOUS),
            read_place(lane / LANE_COLUMNS, 2u, A_VEC4S, A_K_CONTIGUOUS),
            read_place(lane / LANE_COLUMNS, 3u, A_VEC4S, A_K_CONTIGUOUS),
        );
        let b_reads = vec4<u32>(
            read_place(lane % LANE_COLUMNS, 0u, B_VEC4S, B_K_CONTIGUOUS),
            read_place(lane % LANE_COLUMNS, 1u, B_VEC4S, B_K_CONTIGUOUS),
            read_place(lane % LANE_COLUMNS, 2u, B_VEC4S, B_K_CONTIGUOUS),
            read_place(lane % LANE_COLUMNS, 3u, B_VEC4S, B_K_CONTIGUOUS),
        );
        // Each step loads a tile while the one before is multiplied. Loads are in the text once, because every copy is
        // compiled and takes its place in the instruction cache.
        var k = start;
        loop {
            var a = vec4<f32>();
            var b = vec4<f32>();
            // Invocations without a place in the tile load, too, where all vectors are whole: a condition would take longer.
            if k < end && (ALIGNED != 0u || (loads_a && k + a_position.y < end)) {
                a = load_a(k + a_position.y, end);
            }
            if k < end && (ALIGNED != 0u || (loads_b && k + b_position.y < end)) {
                b = load_b(k + b_position.y, end);
            }
            if k != start {
                if ROW_VEC4S == 0u {
                    for (var quarter = 0u; quarter < QUARTERS; quarter += 1u) {
                        let u = line_of_a(lane / LANE_COLUMNS, quarter);
                        let v = line_of_b(lane % LANE_COLUMNS, quarter);
                        sums[0][0].x = (((sums[0][0].x + u.x * v.x) + u.y * v.y) + u.z * v.z) + u.w * v.w;
                    }
                } else {
                    multiply_quarter(a_reads.x, b_reads.x);
                    if QUARTERS > 1u {
                        multiply_quarter(a_reads.y, b_reads.y);
                    }
                    if QUARTERS == 4u {
                        multiply_quarter(a_reads.z, b_reads.z);
                        multiply_quarter(a_reads.w, b_reads.w);
                    }
                }
            }
            if k >= end {
                break;
            }
            workgroupBarrier();
            if loads_a {
                tile_a[a_place] = a;
            }
            if loads_b {
                tile_b[b_place] = b;
            }
            workgroupBarrier();
            advance_a();
            advance_b();
            k += K_TILE;
        }
        store_sums(e, lane, split, z, tile_m * ROWS, tile_n * COLUMNS);
    }
    end_store(lane, number_of_group);
}

/// Stores the sums of an invocation, one vector after the other. The epilogue is in the text once: each sum moves to the
/// place of the first, because 16 copies of the epilogue were 59 KB of code.
fn store_sums(e: Epilogue, lane: u32, split: u32, z: u32, row: u32, column: u32) {
    if ROW_VEC4S == 0u {
        let c = column + lane % LANE_COLUMNS;
        if c < p.output.n {
            store_row(e, split, z, row + lane / LANE_COLUMNS, c, sums[0][0], 1u);
        }
        return;
    }
    for (var j = 0u; j < 4u * ROW_VEC4S * COLUMN_VEC4S; j += 1u) {
        let block = j / 4u;
        // The lowest bit of the block is its column, if there are two.
        let shift = COLUMN_VEC4S / 2u;
        let r = row + 4u * (lane / LANE_COLUMNS) + 64u * (block >> shift) + j % 4u;
        let c = column + 4u * (lane % LANE_COLUMNS) + 64u * (block & ((1u << shift) - 1u));
        if c < p.output.n {
            store_row(e, split, z, r, c, sums[0][0], min(p.output.n - c, 4u));
        }
        sums[0] = mat4x4<f32>(sums[0][1], sums[0][2], sums[0][3], sums[1][0]);
        sums[1] = mat4x4<f32>(sums[1][1], sums[1][2], sums[1][3], sums[2][0]);
        sums[2] = mat4x4<f32>(sums[2][1], sums[2][2], sums[2][3], sums[3][0]);
        sums[3] = mat4x4<f32>(sums[3][1], sums[3][2], sums[3][3], sums[3][3]);
    }
}
