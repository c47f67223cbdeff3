// Tiles of the scores of an attention, and products with them. A workgroup has ROWS rows of a matrix of scores and walks
// over tiles of COLUMNS columns. Rows are queries and columns are keys, or the other way round.
//
// A tile of scores is a product of two tiles of operands, K_TILE deep, in which an invocation has four neighbouring columns
// of two rows. What becomes of the scores is then multiplied by an operand that has a row for each column of the tile: an
// invocation has four neighbouring results of four rows, and as many again 64 columns later if heads are wider.
//
// Needs store.wgsl; a kernel declares `p.shape: TileShape` and
//   fn load_row(second: bool, i: u32, k: u32) -> vec4<f32>      four elements from k on of row i of an operand's matrix,
//   fn load_column(second: bool, i: u32, k: u32) -> vec4<f32>   of the first product or the second; 0 beyond the row's end
//   fn load_output(i: u32, c: u32) -> vec4<f32>                 likewise of the operand of the results
//   fn factor(quarter: u32, row: u32) -> vec4<f32>              what the results are sums of, for four columns of the tile

const ROWS: u32 = 64u;
const COLUMNS: u32 = 32u;
const K_TILE: u32 = 16u;

struct TileShape {
    /// Size of a matrix of scores.
    rows: u32,
    columns: u32,
    /// Number of elements of a query and of a key, and of a value.
    depth: u32,
    width: u32,
    /// Number of elements of a row of results.
    results: u32,
    matrices: u32,
    /// Number of tiles of ROWS rows of a matrix.
    row_tiles: u32,
    /// Columns that a row of scores reads: one of the constants SOFTMAX_*.
    reads: u32,
}

/// 1 if every row of every operand begins at a multiple of four elements.
override ALIGNED: u32;
/// 1 if rows of results have more than 64 elements.
override WIDE_RESULTS: u32;

/// 4-wide vectors of a row of the tile of results' operand, which is in `group_sums`.
override OUTPUT_VEC4S: u32 = 16u + 16u * WIDE_RESULTS;

// The tile of the rows' operand is in `group_sums`, which a store needs at its end only.
var<workgroup> column_tile: array<vec4<f32>, 128>;

/// Results of an invocation: a row of a matrix is four neighbours.
var<private> outputs: array<mat4x4<f32>, 2>;

/// Scores of an invocation, or what becomes of them: four columns of two rows.
struct TwoRows {
    upper: vec4<f32>,
    lower: vec4<f32>,
}

/// Returns the place of a vector in a tile of `lines` lines. The bits of the slot that are flipped spread the vectors of a
/// line over groups of banks.
fn place_in_tile(slot: u32, lines: u32, quarter: u32) -> u32 {
    return quarter * lines + (slot ^ (2u * quarter));
}

/// Returns `v` with zeros from component `live` on.
fn first_of_vec4(v: vec4<f32>, live: u32) -> vec4<f32> {
    return select(vec4<f32>(), v, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(live));
}

/// Adds four products to each of four sums, in order.
fn add_row(sum: vec4<f32>, a: vec4<f32>, b: mat4x4<f32>) -> vec4<f32> {
    return (((sum + a.x * b[0]) + a.y * b[1]) + a.z * b[2]) + a.w * b[3];
}

/// Returns the rows and columns of scores that an invocation has: the first of each.
fn own_rows(lane: u32) -> u32 {
    return 2u * (lane / 8u);
}

fn own_columns(lane: u32) -> u32 {
    return 4u * (lane % 8u);
}

/// Returns products of rows from `row` on with columns from `column` on, for k below `depth`. Rows and columns beyond the
/// matrix have any value. Call in uniform control flow.
fn multiply_tiles(second: bool, lane: u32, row: u32, column: u32, depth: u32) -> TwoRows {
    let line = lane / 4u;
    let row_place = place_in_tile((line % 2u) * (ROWS / 2u) + line / 2u, ROWS, lane % 4u);
    let column_place = place_in_tile((line % 4u) * (COLUMNS / 4u) + line / 4u, COLUMNS, lane % 4u);
    let row_slot = lane / 8u;
    let column_slot = lane % 8u;
    let is_needed = row + own_rows(lane) < p.shape.rows && column + own_columns(lane) < p.shape.columns;
    var sums = TwoRows();
    for (var k = 0u; k < depth; k += K_TILE) {
        let part = k + 4u * (lane % 4u);
        let of_row = load_row(second, row + line, part);
        var of_column = vec4<f32>();
        if line < COLUMNS {
            of_column = load_column(second, column + line, part);
        }
        workgroupBarrier();
        group_sums[row_place] = of_row;
        if line < COLUMNS {
            column_tile[column_place] = of_column;
        }
        workgroupBarrier();
        if is_needed {
            for (var quarter = 0u; quarter < K_TILE / 4u; quarter += 1u) {
                let columns = transpose(mat4x4<f32>(
                    column_tile[place_in_tile(column_slot, COLUMNS, quarter)],
                    column_tile[place_in_tile(column_slot + COLUMNS / 4u, COLUMNS, quarter)],
                    column_tile[place_in_tile(column_slot + COLUMNS / 2u, COLUMNS, quarter)],
                    column_tile[place_in_tile(column_slot + 3u * COLUMNS / 4u, COLUMNS, quarter)],
                ));
                let upper = group_sums[place_in_tile(row_slot, ROWS, quarter)];
                let lower = group_sums[place_in_tile(row_slot + ROWS / 2u, ROWS, quarter)];
                sums.upper = add_row(sums.upper, upper, columns);
                sums.lower = add_row(sums.lower, lower, columns);
            }
        }
    }
    return sums;
}

/// Returns the place of four columns of a row in a tile of factors: neighbouring columns are in different groups of banks.
fn place_of_factor(quarter: u32, row: u32) -> u32 {
    return quarter * ROWS + (row ^ quarter);
}

/// Adds the products of a tile's factors to the results of an invocation. Call in uniform control flow, after the factors
/// of all invocations are written: the first barrier here is before the first factor is read.
fn add_outputs(lane: u32, row: u32, column: u32) {
    let lines = GROUP / OUTPUT_VEC4S;
    let line = lane / OUTPUT_VEC4S;
    let part = 4u * (lane % OUTPUT_VEC4S);
    let own_row = 4u * (lane / 16u);
    let own = lane % 16u;
    let is_needed = row + own_row < p.shape.rows && 4u * own < p.shape.results;
    for (var first = 0u; first < COLUMNS && column + first < p.shape.columns; first += lines) {
        let of_column = load_output(column + first + line, part);
        workgroupBarrier();
        group_sums[lane] = of_column;
        workgroupBarrier();
        if is_needed {
            for (var quarter = 0u; quarter < lines / 4u; quarter += 1u) {
                let at = 4u * quarter * OUTPUT_VEC4S + own;
                let factors = mat4x4<f32>(
                    factor(first / 4u + quarter, own_row),
                    factor(first / 4u + quarter, own_row + 1u),
                    factor(first / 4u + quarter, own_row + 2u),
                    factor(first / 4u + quarter, own_row + 3u),
                );
                add_block(0u, factors, at);
                if WIDE_RESULTS != 0u {
                    add_block(1u, factors, at + 16u);
                }
            }
        }
    }
}

/// Adds the products of four columns' factors with four elements of their rows, which are in `group_sums` from `at` on.
fn add_block(block: u32, factors: mat4x4<f32>, at: u32) {
    let rows = mat4x4<f32>(
        group_sums[at],
        group_sums[at + OUTPUT_VEC4S],
        group_sums[at + 2u * OUTPUT_VEC4S],
        group_sums[at + 3u * OUTPUT_VEC4S],
    );
    outputs[block][0] = add_row(outputs[block][0], factors[0], rows);
    outputs[block][1] = add_row(outputs[block][1], factors[1], rows);
    outputs[block][2] = add_row(outputs[block][2], factors[2], rows);
    outputs[block][3] = add_row(outputs[block][3], factors[3], rows);
}

/// Stores the results of an invocation, one vector after the other. The epilogue is in the text once: each result moves to
/// the place of the first.
fn store_outputs(e: Epilogue, lane: u32, matrix: u32, row: u32) {
    let own_row = row + 4u * (lane / 16u);
    for (var j = 0u; j < 4u + 4u * WIDE_RESULTS; j += 1u) {
        let r = own_row + j % 4u;
        let c = 4u * (lane % 16u) + 64u * (j / 4u);
        if r < p.shape.rows && c < p.shape.results {
            let i = (matrix * p.shape.rows + r) * p.shape.results + c;
            store_vec4(e, i, outputs[0][0], min(p.shape.results - c, 4u));
        }
        outputs[0] = mat4x4<f32>(outputs[0][1], outputs[0][2], outputs[0][3], outputs[1][0]);
        outputs[1] = mat4x4<f32>(outputs[1][1], outputs[1][2], outputs[1][3], outputs[1][3]);
    }
}

/// Returns e^x for four numbers, of which `live` are needed, as `exponential` does for one. Their common case has no branch
/// for each number.
fn exponential_vec4(x: vec4<f32>, live: u32) -> vec4<f32> {
    let within = clamp(x, vec4<f32>(-110.0), vec4<f32>(90.0));
    let n = floor(within * 1.44269504 + vec4<f32>(0.5));
    let r = (within - n * LN2_LARGE) - n * LN2_SMALL;
    var q = vec4<f32>(0.000198995872);
    q = q * r + vec4<f32>(0.00139338835);
    q = q * r + vec4<f32>(0.00833329811);
    q = q * r + vec4<f32>(0.0416664628);
    q = q * r + vec4<f32>(0.166666667);
    q = q * r + vec4<f32>(0.500000001);
    let digits = bitcast<vec4<u32>>(vec4<f32>(1.0) + (r + r * r * q));
    let k = bitcast<vec4<u32>>(vec4<i32>(n));
    var power = digits + (k << vec4<u32>(23u));
    let field = bitcast<vec4<i32>>((digits >> vec4<u32>(23u)) + k);
    let is_special = (field < vec4<i32>(1)) | (field > vec4<i32>(254));
    if any(is_special) {
        for (var j = 0u; j < live; j += 1u) {
            let is_place = vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(j);
            let one = scaled_special_bits(place_of_vec4(digits, j), bitcast<i32>(place_of_vec4(k, j)));
            power = select(power, vec4<u32>(one), is_place & is_special);
        }
    }
    let bits = bitcast<vec4<u32>>(x);
    return bitcast<vec4<f32>>(select(power, bits, (bits & vec4<u32>(F32_MAGNITUDE)) > vec4<u32>(F32_INFINITY)));
}
