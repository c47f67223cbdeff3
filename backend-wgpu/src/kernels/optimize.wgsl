// An update of parameters: clip, decay, update (docs/specification.md, section 10). Reference: core's `Step::update`.

struct Params {
    /// Parameters.
    count: u32,
    decay: f32,
    /// Greatest magnitude of a gradient, or ∞.
    most: u32,
    eps: f32,
    /// Momentum, or β₁ and β₂.
    beta: vec2<f32>,
    /// Workgroups.
    groups: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> master: array<vec4<f32>>;
/// As step.wgsl left it.
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read> gradient: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> state0: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> state1: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> copies: array<vec2<u32>>;

/// One of RULE_*.
override RULE: u32;
/// Whether momentum is Nesterov's, and whether Adam's decay is of the weight.
override RULE_VARIANT: u32;
/// States that the rule keeps.
override STATES: u32;

/// Fours of elements that an invocation takes.
const VEC4S_PER_THREAD: u32 = 4u;

/// A weight and its states.
struct Weight {
    w: f32,
    state: vec2<f32>,
}

fn clipped(bits: u32) -> f32 {
    let m = bits & F32_MAGNITUDE;
    let over = m > p.most && m <= F32_INFINITY;
    return bits_as_float(select(bits, (bits & ~F32_MAGNITUDE) | p.most, over)) * bits_as_float(step[2]);
}

fn updated(old: Weight, bits: u32) -> Weight {
    let lr = bits_as_float(step[1]);
    let numbers = vec2<f32>(bits_as_float(step[3]), bits_as_float(step[4]));
    var w = old.w;
    if RULE == RULE_EMA {
        return Weight(numbers.x * w + (1.0 - numbers.x) * bits_as_float(bits), old.state);
    }
    var g = clipped(bits);
    if RULE == RULE_ADAM && RULE_VARIANT != 0u {
        w -= lr * p.decay * w;
    } else {
        g += p.decay * w;
    }
    if RULE == RULE_SGD {
        let v = p.beta.x * old.state.x + g;
        return Weight(w - lr * select(v, g + p.beta.x * v, RULE_VARIANT != 0u), vec2<f32>(v, 0.0));
    }
    let m = p.beta.x * old.state.x + (1.0 - p.beta.x) * g;
    let v = p.beta.y * old.state.y + (1.0 - p.beta.y) * g * g;
    let d = divide(divide(m, numbers.x), square_root(divide(v, numbers.y)) + p.eps);
    return Weight(w - lr * d, vec2<f32>(m, v));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    if step[0] == 0u || number_of_group >= p.groups {
        return;
    }
    let one = tensors[find_tensor(number_of_group, p.count)];
    // Four elements at a time; what lies behind the last stays.
    let fours = (one.len >> 2u) + u32((one.len & 3u) != 0u);
    let start = (number_of_group - one.first_group) * (VEC4S_PER_THREAD * GROUP);
    let end = min(start + VEC4S_PER_THREAD * GROUP, fours);
    for (var o = start + lane; o < end; o += GROUP) {
        let live = min(one.len - 4u * o, 4u);
        let g = gradient[one.offsets[1] + o];
        var w = master[one.offsets[0] + o];
        var first = vec4<f32>();
        var second = vec4<f32>();
        if STATES > 0u {
            first = state0[one.offsets[2] + o];
        }
        if STATES > 1u {
            second = state1[one.offsets[3] + o];
        }
        for (var j = 0u; j < live; j += 1u) {
            let fresh = updated(Weight(w[j], vec2<f32>(first[j], second[j])), g[j]);
            w[j] = fresh.w;
            first[j] = fresh.state.x;
            second[j] = fresh.state.y;
        }
        master[one.offsets[0] + o] = w;
        if STATES > 0u {
            state0[one.offsets[2] + o] = first;
        }
        if STATES > 1u {
            state1[one.offsets[3] + o] = second;
        }
        if one.offsets[4] != ABSENT {
            var halves = copies[one.offsets[4] + o];
            for (var j = 0u; j < live; j += 1u) {
                let shift = 16u * (j & 1u);
                let kept = halves[j >> 1u] & ~(0xffffu << shift);
                halves[j >> 1u] = kept | (float_to_half_bits(bitcast<u32>(w[j])) << shift);
            }
            copies[one.offsets[4] + o] = halves;
        }
    }
}
