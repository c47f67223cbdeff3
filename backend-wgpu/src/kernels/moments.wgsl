// Adds the sums of all workgroups of a launch to those of a row, in order: each invocation adds every 256th, then a tree.
// Numbers are pairs of f32, a large part and its rounding error. A driver that simplifies (a + b) − a to b loses the error,
// and is still far within the bound. Needs half.wgsl.

struct Params {
    groups: u32,
    site: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read_write> rows: array<u32>;
@group(0) @binding(4) var<storage, read> partials: array<vec4<f32>>;

struct Pair {
    large: vec4<f32>,
    small: vec4<f32>,
}

var<workgroup> sums: array<Pair, GROUP>;

/// Returns a + b as the rounded sum and its error (Knuth 1969, Møller 1965); no error where the sum is not finite.
fn two_sum(a: vec4<f32>, b: vec4<f32>) -> Pair {
    let sum = a + b;
    let other = sum - a;
    let error = (a - (sum - other)) + (b - other);
    let finite = (bitcast<vec4<u32>>(sum) & vec4<u32>(F32_MAGNITUDE)) < vec4<u32>(F32_INFINITY);
    return Pair(sum, select(vec4<f32>(), error, finite));
}

fn add_pairs(a: Pair, b: Pair) -> Pair {
    let sum = two_sum(a.large, b.large);
    return two_sum(sum.large, sum.small + (a.small + b.small));
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    var sum = Pair();
    for (var i = lane; i < p.groups; i += GROUP) {
        sum = add_pairs(sum, Pair(partials[i], vec4<f32>()));
    }
    sums[lane] = sum;
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            sums[lane] = add_pairs(sums[lane], sums[lane + half]);
        }
        workgroupBarrier();
    }
    if lane == 0u {
        let at = p.site * ROW_WORDS + ROW_SUMS;
        var row = Pair();
        for (var i = 0u; i < 4u; i += 1u) {
            row.large[i] = bits_as_float(rows[at + 2u * i]);
            row.small[i] = bits_as_float(rows[at + 2u * i + 1u]);
        }
        row = add_pairs(row, sums[0]);
        for (var i = 0u; i < 4u; i += 1u) {
            rows[at + 2u * i] = bitcast<u32>(row.large[i]);
            rows[at + 2u * i + 1u] = bitcast<u32>(row.small[i]);
        }
    }
}
