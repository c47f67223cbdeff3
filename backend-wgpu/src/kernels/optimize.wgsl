// An update of parameters: clip, decay, update (docs/specification.md, section 10). Reference: core's `Step::update`.

struct Params {
    /// Number of parameters that the launch updates.
    count: u32,
    decay: f32,
    /// Maximum magnitude of a gradient, or ∞.
    clip_limit: u32,
    eps: f32,
    /// Momentum of SGD, or β₁ and β₂ of Adam.
    beta: vec2<f32>,
    /// Number of workgroups of the launch.
    groups: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> master: array<vec4<f32>>;
/// Scalars of the step, as step.wgsl computes them.
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read> gradient: array<vec4<u32>>;
@group(0) @binding(6) var<storage, read_write> state0: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> state1: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read_write> half_copies: array<vec2<u32>>;

/// Update rule of the optimizer: one of the constants RULE_*.
override RULE: u32;
/// 1 for Nesterov momentum (SGD) and for decoupled weight decay (Adam).
override RULE_VARIANT: u32;
/// Number of states that the update rule keeps for each weight.
override STATES: u32;

/// Number of 4-wide vectors of weights that one invocation updates.
const VEC4S_PER_THREAD: u32 = 4u;

/// Weight with its optimizer states.
struct Weight {
    w: f32,
    state: vec2<f32>,
}

fn clip_gradient(bits: u32) -> f32 {
    let m = bits & F32_MAGNITUDE;
    let over = m > p.clip_limit && m <= F32_INFINITY;
    return bits_as_float(select(bits, (bits & ~F32_MAGNITUDE) | p.clip_limit, over)) * bits_as_float(step[2]);
}

fn update_weight(old: Weight, bits: u32) -> Weight {
    let lr = bits_as_float(step[1]);
    let rule_scalars = vec2<f32>(bits_as_float(step[3]), bits_as_float(step[4]));
    var w = old.w;
    if RULE == RULE_EMA {
        return Weight(rule_scalars.x * w + (1.0 - rule_scalars.x) * bits_as_float(bits), old.state);
    }
    var g = clip_gradient(bits);
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
    let d = divide(divide(m, rule_scalars.x), square_root(divide(v, rule_scalars.y)) + p.eps);
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
    let entry = tensors[find_tensor(number_of_group, p.count)];
    // Four elements at a time. Elements after the last stay unchanged.
    let vec4_count = (entry.len >> 2u) + u32((entry.len & 3u) != 0u);
    let start = (number_of_group - entry.first_group) * (VEC4S_PER_THREAD * GROUP);
    let end = min(start + VEC4S_PER_THREAD * GROUP, vec4_count);
    for (var o = start + lane; o < end; o += GROUP) {
        let live = min(entry.len - 4u * o, 4u);
        let g = gradient[entry.offsets[1] + o];
        var w = master[entry.offsets[0] + o];
        var first = vec4<f32>();
        var second = vec4<f32>();
        if STATES > 0u {
            first = state0[entry.offsets[2] + o];
        }
        if STATES > 1u {
            second = state1[entry.offsets[3] + o];
        }
        for (var j = 0u; j < live; j += 1u) {
            let result = update_weight(Weight(w[j], vec2<f32>(first[j], second[j])), g[j]);
            w[j] = result.w;
            first[j] = result.state.x;
            second[j] = result.state.y;
        }
        master[entry.offsets[0] + o] = w;
        if STATES > 0u {
            state0[entry.offsets[2] + o] = first;
        }
        if STATES > 1u {
            state1[entry.offsets[3] + o] = second;
        }
        if entry.offsets[4] != NO_TENSOR {
            var halves = half_copies[entry.offsets[4] + o];
            for (var j = 0u; j < live; j += 1u) {
                let shift = 16u * (j & 1u);
                let kept = halves[j >> 1u] & ~(0xffffu << shift);
                halves[j >> 1u] = kept | (float_to_half_bits(bitcast<u32>(w[j])) << shift);
            }
            half_copies[entry.offsets[4] + o] = halves;
        }
    }
}
