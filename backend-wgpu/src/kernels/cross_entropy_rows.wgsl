// Log-sum-exp of each row, and each workgroup's sums of losses, weights and rows that count. Reference: core's
// `CrossEntropy`. A workgroup has 256 / threads rows, with `threads` invocations for each.

struct Params {
    label_params: LabelParams,
    threads: u32,
    /// Number of workgroups of the launch.
    groups: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> weights: array<f32>;
/// Sums of each workgroup: bits of its summed losses and of its summed weights, and the number of counted rows.
@group(0) @binding(8) var<storage, read_write> partial_totals: array<vec4<u32>>;

var<workgroup> ranks: array<u32, GROUP>;
var<workgroup> sums: array<f32, GROUP>;
var<workgroup> totals: array<vec4<u32>, GROUP>;

fn combine(a: vec4<u32>, b: vec4<u32>) -> vec4<u32> {
    let sum = bitcast<vec2<f32>>(a.xy) + bitcast<vec2<f32>>(b.xy);
    return vec4<u32>(bitcast<vec2<u32>>(sum), a.z + b.z, 0u);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    let thread = lane % p.threads;
    let row = number_of_group * (GROUP / p.threads) + lane / p.threads;
    let is_live = number_of_group < p.groups && row < p.label_params.rows;
    let classes = select(0u, p.label_params.classes, is_live);
    let start = row * p.label_params.classes;

    // The largest logit, NaN before all.
    var max_rank = 0u;
    for (var c = thread; c < classes; c += p.threads) {
        max_rank = max(max_rank, order_rank(bitcast<u32>(x_at(start + c))));
    }
    ranks[lane] = max_rank;
    workgroupBarrier();
    for (var half = p.threads / 2u; half != 0u; half /= 2u) {
        if thread < half {
            ranks[lane] = max(ranks[lane], ranks[lane + half]);
        }
        workgroupBarrier();
    }
    let max_logit = rank_to_float(ranks[lane - thread]);

    // The sum of exponentials: sums of 32, which are added up.
    var sum = 0.0;
    var c = thread;
    while c < classes {
        var partial_sum = 0.0;
        for (var k = 0u; k < 32u && c < classes; k += 1u) {
            partial_sum += exponential(x_at(start + c) - max_logit);
            c += p.threads;
        }
        sum += partial_sum;
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = p.threads / 2u; half != 0u; half /= 2u) {
        if thread < half {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }

    var total = vec4<u32>();
    if is_live && thread == 0u {
        let lse = max_logit + natural_logarithm(sums[lane]);
        out_set(2u + row, lse);
        let label = labels_raw(row);
        if !is_ignored(label) {
            var loss = bits_as_float(F32_NAN);
            var weight = 1.0;
            // A label beyond the classes is an error that shows.
            if label < classes {
                if WEIGHTED != 0u {
                    weight = weights[label];
                }
                loss = weight * (lse - x_at(start + label));
            }
            total = vec4<u32>(bitcast<u32>(loss), bitcast<u32>(weight), 1u, 0u);
        }
    }
    totals[lane] = total;
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            totals[lane] = combine(totals[lane], totals[lane + half]);
        }
        workgroupBarrier();
    }
    if lane == 0u && number_of_group < p.groups {
        partial_totals[number_of_group] = totals[0];
    }
}
