// Gradient of a softmax, dx = y · (dy − Σ dy · y), or of its logarithm, dx = dy − e^y · Σ dy. Reference: core's `Softmax`.
// Here x is the result y of the softmax.

struct Params {
    store: Store,
    shape: RowShape,
}

@group(0) @binding(0) var<uniform> p: Params;

/// 1 if row i of a matrix reads its first i + 1 columns only. Other columns that rows do not read have the weight 0.
override CAUSAL: u32;
/// 1 if results of the softmax are logarithms.
override LOGARITHM: u32;

fn end_of_row(row: u32) -> u32 {
    return select(p.shape.columns, row % p.shape.matrix_rows + 1u, CAUSAL != 0u);
}

/// Returns which of four columns are among the first `live`, and have a weight that is not 0.
fn weighted_of_vec4(y: vec4<f32>, live: u32) -> vec4<bool> {
    if LOGARITHM != 0u {
        return first_of_vec4(live);
    }
    return first_of_vec4(live) & (y != vec4<f32>());
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
    let step = 4u * p.shape.threads;
    for (var tile = number_of_group; tile < p.shape.tiles; tile += groups.x * groups.y) {
        let row = own_row(tile, lane);
        // Sums of 32 terms, which are added up.
        var own_sum = 0.0;
        var c = row.first;
        while c < row.end {
            var partial_sum = 0.0;
            for (var k = 0u; k < 8u && c < row.end; k += 1u) {
                let live = min(row.end - c, 4u);
                let y = x_vec4(row.start + c, live);
                var term = dy_vec4(row.start + c, live);
                if LOGARITHM == 0u {
                    term *= y;
                }
                partial_sum += sum_of_vec4(select(vec4<f32>(), term, weighted_of_vec4(y, live)));
                c += step;
            }
            own_sum += partial_sum;
        }
        let sum = vec4<f32>(sum_of_row(lane, own_sum));
        for (c = row.first; c < row.columns; c += step) {
            let i = row.start + c;
            let live = min(max(row.end, c) - c, 4u);
            var v = vec4<f32>();
            if live != 0u {
                let y = x_vec4(i, live);
                let dy = dy_vec4(i, live);
                if LOGARITHM != 0u {
                    v = dy - exponential_vec4(y) * sum;
                } else {
                    v = y * (dy - sum);
                }
                v = select(vec4<f32>(), v, weighted_of_vec4(y, live));
            }
            store_vec4(e, i, v, min(row.columns - c, 4u));
        }
        // The next sums overwrite those that are read here.
        workgroupBarrier();
    }
    end_store(lane, number_of_group);
}
