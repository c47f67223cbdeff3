// Numbers of the rows of an attention that its gradients need, for attention_vjp.wgsl: L, δ = Σ dy·y at the exponent of dP,
// and the number of columns that the row reads. Eight invocations have a row. Here x is the result y. Needs exponents.wgsl.

struct Params {
    rows: u32,
    /// Number of rows of a matrix, and of a sequence: those of all its heads.
    matrix_rows: u32,
    sequence_rows: u32,
    columns: u32,
    width: u32,
    /// Columns that a row reads: one of the constants SOFTMAX_*.
    reads: u32,
    /// Place of the first row's numbers.
    first: u32,
    /// Slots of the exponents of dy and of dP.
    dy_slot: u32,
    dp_slot: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
/// L, δ, and the upper and lower 16 bits of the number of columns.
@group(0) @binding(4) var<storage, read_write> numbers: array<vec4<f32>>;

const LANES: u32 = 8u;

var<workgroup> sums: array<f32, GROUP>;

fn end_of_row(row: u32) -> u32 {
    if p.reads == SOFTMAX_CAUSAL {
        return min(row % p.matrix_rows + 1u, p.columns);
    }
    if p.reads == SOFTMAX_WITHIN {
        return min(lengths_raw(row / p.sequence_rows), p.columns);
    }
    return p.columns;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(group, groups) * (GROUP / LANES) + lane / LANES;
    var sum = 0.0;
    if row < p.rows {
        for (var c = 4u * (lane % LANES); c < p.width; c += 4u * LANES) {
            let live = min(p.width - c, 4u);
            let terms = x_vec4(row * p.width + c, live) * dy_vec4(row * p.width + c, live);
            let own = select(vec4<f32>(), terms, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(live));
            sum += (own.x + own.y) + (own.z + own.w);
        }
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = LANES / 2u; half != 0u; half /= 2u) {
        if lane % LANES < half {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }
    if row < p.rows && lane % LANES == 0u {
        let end = end_of_row(row);
        let log_sum = bits_as_float(log_sums_get(row));
        let step = exponent_step(exponent(p.dy_slot), exponent(p.dp_slot));
        let delta = bits_as_float(scaled_bits(bitcast<u32>(sums[lane]), step));
        numbers[p.first + row] = vec4<f32>(log_sum, delta, f32(end >> 16u), f32(end & 0xffffu));
    }
}
