// y = P·v with P = softmax(S) and S = q·kᵀ, and the logarithm of each row's sum; S and P are not stored. Reference: core's
// `Attention`.
//
// Weights are e^(S − m) with the largest score m so far of the row, and become smaller when a larger one comes: so do the
// sums (Milakov and Gimelshein 2018, Dao and others 2022). Operands: a is q, b is k. Needs attention_tile.wgsl.

struct Params {
    store: Store,
    shape: TileShape,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Rank of −∞: a row whose largest score has no higher one has no weights yet.
const NO_WEIGHTS: u32 = 0x00800000u;

var<workgroup> factors: array<vec4<f32>, COLUMNS / 4u * ROWS>;
/// Ranks of the largest scores so far.
var<workgroup> ranks: array<atomic<u32>, ROWS>;
/// By which the results of rows are multiplied.
var<workgroup> row_factors: array<f32, ROWS>;
var<workgroup> matrix_end: u32;

/// Matrix of the workgroup.
var<private> matrix: u32;

fn load_row(second: bool, i: u32, k: u32) -> vec4<f32> {
    if i >= p.shape.rows || k >= p.shape.depth {
        return vec4<f32>();
    }
    let at = (matrix * p.shape.rows + i) * p.shape.depth + k;
    if ALIGNED != 0u {
        return a_aligned_vec4(at, 0u);
    }
    let live = min(p.shape.depth - k, 4u);
    return first_of_vec4(a_vec4(at, live), live);
}

fn load_column(second: bool, i: u32, k: u32) -> vec4<f32> {
    if i >= p.shape.columns || k >= p.shape.depth {
        return vec4<f32>();
    }
    let at = (matrix * p.shape.columns + i) * p.shape.depth + k;
    if ALIGNED != 0u {
        return b_aligned_vec4(at, 0u);
    }
    let live = min(p.shape.depth - k, 4u);
    return first_of_vec4(b_vec4(at, live), live);
}

fn load_output(i: u32, c: u32) -> vec4<f32> {
    if i >= p.shape.columns || c >= p.shape.results {
        return vec4<f32>();
    }
    let at = (matrix * p.shape.columns + i) * p.shape.results + c;
    if ALIGNED != 0u {
        return v_aligned_vec4(at, 0u);
    }
    let live = min(p.shape.results - c, 4u);
    return first_of_vec4(v_vec4(at, live), live);
}

fn factor(quarter: u32, row: u32) -> vec4<f32> {
    return factors[place_of_factor(quarter, row)];
}

/// Returns the number of columns that a row reads.
fn end_of_row(row: u32, matrix_end: u32) -> u32 {
    if row >= p.shape.rows {
        return 0u;
    }
    return select(matrix_end, min(row + 1u, p.shape.columns), p.shape.reads == SOFTMAX_CAUSAL);
}

/// Returns the largest rank of the first `live` of four scores, 0 without any.
fn max_rank(scores: vec4<f32>, live: u32) -> u32 {
    let x = bitcast<vec4<u32>>(scores);
    let all = vec4<u32>(order_rank(x.x), order_rank(x.y), order_rank(x.z), order_rank(x.w));
    let read = select(vec4<u32>(), all, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(live));
    return max(max(read.x, read.y), max(read.z, read.w));
}

/// Returns the number that is subtracted from scores before their exponentials.
fn score_of_rank(rank: u32) -> f32 {
    return select(rank_to_float(rank), 0.0, rank <= NO_WEIGHTS);
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
    // The last row of a grid may contain workgroups without a tile.
    if number_of_group < p.shape.row_tiles * p.shape.matrices {
        matrix = number_of_group / p.shape.row_tiles;
        let row = number_of_group % p.shape.row_tiles * ROWS;
        var end = p.shape.columns;
        // The logarithms' places contain the number of columns.
        if p.shape.reads == SOFTMAX_WITHIN {
            if lane == 0u {
                matrix_end = log_sums_get(matrix * p.shape.rows + row);
            }
            end = workgroupUniformLoad(&matrix_end);
        }
        if lane < ROWS {
            atomicStore(&ranks[lane], 0u);
        }
        let tiles_end = select(end, min(row + ROWS, end), p.shape.reads == SOFTMAX_CAUSAL);
        let own_row = own_rows(lane);
        let ends = vec2<u32>(end_of_row(row + own_row, end), end_of_row(row + own_row + 1u, end));
        var own_ranks = vec2<u32>();
        var sums = vec2<f32>();
        for (var column = 0u; column < tiles_end; column += COLUMNS) {
            var scores = multiply_tiles(false, lane, row, column, p.shape.depth);
            let own_column = column + own_columns(lane);
            let live = max(ends, vec2<u32>(own_column)) - vec2<u32>(own_column);
            atomicMax(&ranks[own_row], max_rank(scores.upper, live.x));
            atomicMax(&ranks[own_row + 1u], max_rank(scores.lower, live.y));
            workgroupBarrier();
            let new_ranks = vec2<u32>(atomicLoad(&ranks[own_row]), atomicLoad(&ranks[own_row + 1u]));
            // Upper row, then lower row, which takes its place.
            for (var i = 0u; i < 2u; i += 1u) {
                let most = score_of_rank(select(new_ranks.x, new_ranks.y, i == 1u));
                var scale = 0.0;
                if own_ranks.x > NO_WEIGHTS {
                    scale = exponential(score_of_rank(own_ranks.x) - most);
                }
                let own_live = min(select(live.x, live.y, i == 1u), 4u);
                let weights = first_of_vec4(exponential_vec4(scores.upper - vec4<f32>(most), own_live), own_live);
                factors[place_of_factor(lane % 8u, own_row + i)] = weights;
                if lane % 8u == 0u {
                    row_factors[own_row + i] = scale;
                }
                sums = vec2<f32>(sums.y, sums.x * scale + ((weights.x + weights.y) + (weights.z + weights.w)));
                own_ranks = own_ranks.yx;
                scores = TwoRows(scores.lower, scores.upper);
            }
            own_ranks = new_ranks;
            workgroupBarrier();
            scale_outputs(lane);
            add_outputs(lane, row, column);
        }

        // Sums of rows, each over eight invocations.
        workgroupBarrier();
        group_sums[lane] = vec4<f32>(sums, 0.0, 0.0);
        workgroupBarrier();
        if lane < ROWS {
            var sum = 0.0;
            for (var i = 0u; i < 8u; i += 1u) {
                let both = group_sums[8u * (lane / 2u) + i];
                sum += select(both.x, both.y, lane % 2u == 1u);
            }
            // A row that reads no column is 0; nothing but −∞ has no sum.
            var scale = 0.0;
            var log_sum = bits_as_float(F32_INFINITY | ~F32_MAGNITUDE);
            if end_of_row(row + lane, end) != 0u {
                scale = divide(1.0, sum);
                log_sum = bits_as_float(F32_NAN);
                if sum != 0.0 {
                    log_sum = score_of_rank(atomicLoad(&ranks[lane])) + natural_logarithm(sum);
                }
            }
            row_factors[lane] = scale;
            if row + lane < p.shape.rows {
                log_sums_set(matrix * p.shape.rows + row + lane, bitcast<u32>(log_sum));
            }
        }
        workgroupBarrier();
        scale_outputs(lane);
        store_outputs(e, lane, matrix, row);
    }
    workgroupBarrier();
    end_store(lane, number_of_group);
}

fn scale_outputs(lane: u32) {
    let own_row = 4u * (lane / 16u);
    let scale = vec4<f32>(
        row_factors[own_row],
        row_factors[own_row + 1u],
        row_factors[own_row + 2u],
        row_factors[own_row + 3u],
    );
    outputs[0] = mat4x4<f32>(
        outputs[0][0] * scale.x,
        outputs[0][1] * scale.y,
        outputs[0][2] * scale.z,
        outputs[0][3] * scale.w,
    );
    if WIDE_RESULTS != 0u {
        outputs[1] = mat4x4<f32>(
            outputs[1][0] * scale.x,
            outputs[1][1] * scale.y,
            outputs[1][2] * scale.z,
            outputs[1][3] * scale.w,
        );
    }
}
