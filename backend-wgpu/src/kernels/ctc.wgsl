// Parameters and reductions of connectionist temporal classification (`core::ops::Ctc`; the recursion of Graves et al.
// 2006, equations 6 to 8, in logarithms). Needs half.wgsl, scale.wgsl, logarithm.wgsl, math.wgsl.

struct Params {
    /// Index in the batch of the first sequence of this launch.
    first: u32,
    batch: u32,
    frames: u32,
    classes: u32,
    /// Capacity of a target in letters, and of an alignment in states.
    letters: u32,
    states: u32,
    blank: u32,
    /// 1: an impossible target has loss 0 and gradient 0; 0: loss ∞ and gradient NaN at its frames.
    zero_infinity: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Logarithm of a probability of zero, and the limit below which one counts as zero: `Ctc::LOG_ZERO`, `LOG_ZERO_LIMIT`.
/// Finite, because a device may not know ∞.
const LOG_ZERO: f32 = -1e30;
const LOG_ZERO_LIMIT: f32 = -1e29;

/// Limits a logarithm to LOG_ZERO from below. Keeps NaN.
fn clamp_log(log: f32) -> f32 {
    if is_nan(log) {
        return log;
    }
    return max(log, LOG_ZERO);
}

var<workgroup> ranks: array<u32, GROUP>;
var<workgroup> partial_sums: array<f32, GROUP>;

/// Returns the maximum over the workgroup, or NaN if there is one. Call in uniform control flow.
fn workgroup_max(lane: u32, v: f32) -> f32 {
    ranks[lane] = order_rank(bitcast<u32>(v));
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            ranks[lane] = max(ranks[lane], ranks[lane + half]);
        }
        workgroupBarrier();
    }
    let max_log = rank_to_float(ranks[0]);
    workgroupBarrier();
    return max_log;
}

/// Returns the sum over the workgroup. Call in uniform control flow.
fn workgroup_sum(lane: u32, v: f32) -> f32 {
    partial_sums[lane] = v;
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            partial_sums[lane] += partial_sums[lane + half];
        }
        workgroupBarrier();
    }
    let sum = partial_sums[0];
    workgroupBarrier();
    return sum;
}
