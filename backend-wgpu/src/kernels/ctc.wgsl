// What the kernels of connectionist temporal classification share (`core::ops::Ctc`; the recursion of Graves et al. 2006,
// equations 6 to 8, in logarithms). Needs half.wgsl, scale.wgsl, logarithm.wgsl, math.wgsl.

struct Params {
    /// Sequences of this launch begin at `first` of the batch.
    first: u32,
    batch: u32,
    frames: u32,
    classes: u32,
    /// Room for letters of a target, and for states of an alignment.
    letters: u32,
    states: u32,
    blank: u32,
    /// 1: an impossible target has loss 0 and gradient 0; 0: loss ∞ and gradient NaN at its frames.
    zero_infinity: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// The logarithm of what never happens, and what is below this was never: finite, as a device may not know ∞.
const NEVER: f32 = -1e30;
const HARDLY: f32 = -1e29;

/// At least NEVER; NaN stays.
fn not_below(log: f32) -> f32 {
    if is_nan(log) {
        return log;
    }
    return max(log, NEVER);
}

var<workgroup> ranks: array<u32, GROUP>;
var<workgroup> parts: array<f32, GROUP>;

/// The largest of all invocations' numbers, NaN before all. In uniform control flow.
fn group_most(lane: u32, v: f32) -> f32 {
    ranks[lane] = order_rank(bitcast<u32>(v));
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            ranks[lane] = max(ranks[lane], ranks[lane + half]);
        }
        workgroupBarrier();
    }
    let most = rank_to_float(ranks[0]);
    workgroupBarrier();
    return most;
}

/// The sum of all invocations' numbers. In uniform control flow.
fn group_sum(lane: u32, v: f32) -> f32 {
    parts[lane] = v;
    workgroupBarrier();
    for (var half = GROUP / 2u; half != 0u; half /= 2u) {
        if lane < half {
            parts[lane] += parts[lane + half];
        }
        workgroupBarrier();
    }
    let sum = parts[0];
    workgroupBarrier();
    return sum;
}
