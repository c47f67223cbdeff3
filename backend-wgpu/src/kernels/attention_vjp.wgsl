// One of the gradients of an attention: dq = dS·k, dk = dSᵀ·q, dv = Pᵀ·dy, with P = e^(S − L), dP = dy·vᵀ and
// dS = P·(dP − δ), which are not stored. dP and dS are cast to halves, and the kernel of dq observes them. The other two
// compute the same sums again, in the same order. Reference: core's `Attention`.
//
// Operands: S = a·bᵀ and dP = u·vᵀ, with tiles' rows first. For dq, whose rows are queries, these are q, k, dy, v, and for dk
// and dv they are k, q, v, dy. Needs attention_tile.wgsl and cast.wgsl.

struct Params {
    store: Store,
    /// Casts of dP and dS.
    casts: array<Cast, CASTS>,
    shape: TileShape,
    /// Distance in `partials` between sums of the store and of casts; place of the numbers of rows, which attention_rows.wgsl
    /// has written.
    sums_stride: u32,
    numbers_place: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// 1 if rows of tiles are queries: dq. Otherwise they are keys.
override ROWS_ARE_QUERIES: u32;
/// 1 for dv, which needs P alone.
override OF_VALUES: u32;

/// dS or P, as packed halves.
var<workgroup> factors: array<vec2<u32>, COLUMNS / 4u * ROWS>;
var<workgroup> matrix_end: u32;

/// Matrix of the workgroup.
var<private> matrix: u32;

fn load_row(second: bool, i: u32, k: u32) -> vec4<f32> {
    let len = select(p.shape.depth, p.shape.width, second);
    if i >= p.shape.rows || k >= len {
        return vec4<f32>();
    }
    let at = (matrix * p.shape.rows + i) * len + k;
    let live = min(len - k, 4u);
    if second {
        if ALIGNED != 0u {
            return u_aligned_vec4(at, 0u);
        }
        return first_of_vec4(u_vec4(at, live), live);
    }
    if ALIGNED != 0u {
        return a_aligned_vec4(at, 0u);
    }
    return first_of_vec4(a_vec4(at, live), live);
}

fn load_column(second: bool, i: u32, k: u32) -> vec4<f32> {
    let len = select(p.shape.depth, p.shape.width, second);
    if i >= p.shape.columns || k >= len {
        return vec4<f32>();
    }
    let at = (matrix * p.shape.columns + i) * len + k;
    let live = min(len - k, 4u);
    if second {
        if ALIGNED != 0u {
            return v_aligned_vec4(at, 0u);
        }
        return first_of_vec4(v_vec4(at, live), live);
    }
    if ALIGNED != 0u {
        return b_aligned_vec4(at, 0u);
    }
    return first_of_vec4(b_vec4(at, live), live);
}

fn load_output(i: u32, c: u32) -> vec4<f32> {
    return load_column(OF_VALUES != 0u, i, c);
}

fn factor(quarter: u32, row: u32) -> vec4<f32> {
    let words = factors[place_of_factor(quarter, row)];
    return vec4<f32>(unpack_halves(words.x), unpack_halves(words.y));
}

/// Numbers of the queries of four scores: L, δ at the exponent of dP, and the number of columns that they read.
struct Queries {
    log_sums: vec4<f32>,
    deltas: vec4<f32>,
    ends: vec4<u32>,
}

fn numbers_of_query(query: u32, queries: u32) -> vec4<f32> {
    if query >= queries {
        return vec4<f32>();
    }
    return partials[p.numbers_place + matrix * queries + query];
}

/// Returns the numbers of a row of a tile, or of four columns.
fn numbers_of_scores(row: u32, column: u32) -> Queries {
    var numbers = mat4x4<f32>();
    if ROWS_ARE_QUERIES != 0u {
        let one = numbers_of_query(row, p.shape.rows);
        numbers = mat4x4<f32>(vec4<f32>(one.x), vec4<f32>(one.y), vec4<f32>(one.z), vec4<f32>(one.w));
    } else {
        numbers = transpose(mat4x4<f32>(
            numbers_of_query(column, p.shape.columns),
            numbers_of_query(column + 1u, p.shape.columns),
            numbers_of_query(column + 2u, p.shape.columns),
            numbers_of_query(column + 3u, p.shape.columns),
        ));
    }
    return Queries(numbers[0], numbers[1], vec4<u32>(numbers[2]) * 65536u + vec4<u32>(numbers[3]));
}

/// Returns the first column of tiles whose scores a tile of rows has, and the end of these columns.
fn columns_of_rows(row: u32, end: u32) -> vec2<u32> {
    if ROWS_ARE_QUERIES != 0u {
        return vec2<u32>(0u, select(end, min(row + ROWS, p.shape.columns), p.shape.reads == SOFTMAX_CAUSAL));
    }
    if p.shape.reads == SOFTMAX_CAUSAL {
        return vec2<u32>(row / COLUMNS * COLUMNS, p.shape.columns);
    }
    return vec2<u32>(0u, select(0u, p.shape.columns, row < end));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    let steps = vec2<i32>(cast_step(0u), cast_step(1u));
    let details = vec2<u32>(cast_detail(0u), cast_detail(1u));
    // The last row of a grid may contain workgroups without a tile.
    if number_of_group < p.shape.row_tiles * p.shape.matrices {
        let row = number_of_group % p.shape.row_tiles * ROWS;
        matrix = number_of_group / p.shape.row_tiles;
        // All keys.
        var end = select(p.shape.rows, p.shape.columns, ROWS_ARE_QUERIES != 0u);
        if p.shape.reads == SOFTMAX_WITHIN {
            if lane == 0u {
                let queries = select(p.shape.columns, p.shape.rows, ROWS_ARE_QUERIES != 0u);
                let numbers = numbers_of_query(0u, queries);
                matrix_end = u32(numbers.z) * 65536u + u32(numbers.w);
            }
            end = workgroupUniformLoad(&matrix_end);
        }
        let own_row = own_rows(lane);
        let columns = columns_of_rows(row, end);
        for (var column = columns.x; column < columns.y; column += COLUMNS) {
            let own_column = column + own_columns(lane);
            let live = min(max(p.shape.columns, own_column) - own_column, 4u);
            // S, then dP: in one loop, so that their text is compiled once.
            var weights = TwoRows();
            var gradients = TwoRows();
            for (var i = 0u; i < 2u - OF_VALUES; i += 1u) {
                weights = gradients;
                gradients = multiply_tiles(i == 1u, lane, row, column, select(p.shape.depth, p.shape.width, i == 1u));
            }
            if OF_VALUES != 0u {
                weights = gradients;
            }
            // Upper row, then lower row, which takes its place.
            for (var i = 0u; i < 2u; i += 1u) {
                let r = row + own_row + i;
                let numbers = numbers_of_scores(r, own_column);
                let c = vec4<u32>(own_column) + vec4<u32>(0u, 1u, 2u, 3u);
                var is_read = c < numbers.ends;
                if ROWS_ARE_QUERIES == 0u {
                    is_read = vec4<u32>(r) < numbers.ends;
                }
                let exact = select(vec4<f32>(), exponential_vec4(weights.upper - numbers.log_sums, live), is_read);
                let bits = bitcast<vec4<u32>>(exact);
                var halves = vec2<u32>(pack_halves(bits.x, bits.y), pack_halves(bits.z, bits.w));
                if OF_VALUES == 0u {
                    var observed = 0u;
                    if ROWS_ARE_QUERIES != 0u {
                        observed = min(max(numbers.ends.x, own_column) - own_column, 4u);
                    }
                    // dP, then dS.
                    var v = gradients.upper;
                    for (var j = 0u; j < CASTS; j += 1u) {
                        observed_site = j + 1u;
                        let step = select(steps.x, steps.y, j == 1u);
                        halves = cast_vec4(v, step, select(details.x, details.y, j == 1u), live, observed);
                        let rounded = vec4<f32>(unpack_halves(halves.x), unpack_halves(halves.y));
                        // A weight of 0 has the gradient 0, whatever dP is.
                        v = select(exact * (rounded - numbers.deltas), vec4<f32>(), exact == vec4<f32>());
                        swap_stats();
                    }
                }
                factors[place_of_factor(lane % 8u, own_row + i)] = halves;
                weights = TwoRows(weights.lower, weights.upper);
                gradients = TwoRows(gradients.lower, gradients.upper);
            }
            add_outputs(lane, row, column);
        }
        begin_store_after_casts();
        store_outputs(e, lane, matrix, row);
    }
    workgroupBarrier();
    end_sites(lane, number_of_group, select(1u, OBSERVED_SITES, ROWS_ARE_QUERIES != 0u), p.sums_stride);
}
