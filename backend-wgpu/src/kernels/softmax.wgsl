// Softmax of rows, or its logarithm. Reference: core's `Softmax`. The maximum of a row, the sum of its exponentials and
// its results are three passes over x, of which the last two read it from a cache.

struct Params {
    store: Store,
    shape: RowShape,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Columns that a row reads: one of the constants SOFTMAX_*.
override READS: u32;
/// 1 if results are logarithms.
override LOGARITHM: u32;

var<workgroup> ranks: array<u32, GROUP>;

fn end_of_row(row: u32) -> u32 {
    if READS == SOFTMAX_CAUSAL {
        return row % p.shape.matrix_rows + 1u;
    }
    if READS == SOFTMAX_WITHIN {
        return selection_raw(row / p.shape.matrix_rows);
    }
    return p.shape.columns;
}

/// Returns which of four elements from i on a row reads, of which it may read the first `live`.
fn read_of_vec4(i: u32, live: u32) -> vec4<bool> {
    let first = first_of_vec4(live);
    if READS == SOFTMAX_MASKED && live != 0u {
        return first & (selection_vec4(i, live) > vec4<f32>());
    }
    return first;
}

fn max_rank(i: u32, live: u32) -> u32 {
    let x = bitcast<vec4<u32>>(x_vec4(i, live));
    let all = vec4<u32>(order_rank(x.x), order_rank(x.y), order_rank(x.z), order_rank(x.w));
    let read = select(vec4<u32>(), all, read_of_vec4(i, live));
    return max(max(read.x, read.y), max(read.z, read.w));
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
    let thread = lane % p.shape.threads;
    let step = 4u * p.shape.threads;
    for (var tile = number_of_group; tile < p.shape.tiles; tile += groups.x * groups.y) {
        let row = own_row(tile, lane);

        // The largest score, NaN before all; 0 is below all ranks.
        var own_rank = 0u;
        for (var c = row.first; c < row.end; c += step) {
            own_rank = max(own_rank, max_rank(row.start + c, min(row.end - c, 4u)));
        }
        ranks[lane] = own_rank;
        workgroupBarrier();
        for (var half = p.shape.threads / 2u; half != 0u; half /= 2u) {
            if thread < half {
                ranks[lane] = max(ranks[lane], ranks[lane + half]);
            }
            workgroupBarrier();
        }
        let max_score = rank_to_float(ranks[lane - thread]);

        // Sums of 32 exponentials, which are added up.
        var own_sum = 0.0;
        var c = row.first;
        while c < row.end {
            var partial_sum = 0.0;
            for (var k = 0u; k < 8u && c < row.end; k += 1u) {
                let live = min(row.end - c, 4u);
                let all = exponential_vec4(x_vec4(row.start + c, live) - vec4<f32>(max_score));
                partial_sum += sum_of_vec4(select(vec4<f32>(), all, read_of_vec4(row.start + c, live)));
                c += step;
            }
            own_sum += partial_sum;
        }
        let sum = sum_of_row(lane, own_sum);

        // 1 / Σ, or ln Σ.
        var number = 0.0;
        if LOGARITHM != 0u {
            number = natural_logarithm(sum);
        } else {
            number = divide(1.0, sum);
        }
        for (c = row.first; c < row.columns; c += step) {
            let i = row.start + c;
            let live = min(max(row.end, c) - c, 4u);
            var v = vec4<f32>();
            if live != 0u {
                v = x_vec4(i, live) - vec4<f32>(max_score);
                if LOGARITHM != 0u {
                    v -= vec4<f32>(number);
                } else {
                    v = exponential_vec4(v) * number;
                }
            }
            store_vec4(e, i, select(vec4<f32>(), v, read_of_vec4(i, live)), min(row.columns - c, 4u));
        }
    }
    end_store(lane, number_of_group);
}
