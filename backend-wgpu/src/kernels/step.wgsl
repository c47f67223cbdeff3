// Scalars of a step for all parameters (core's `Step`). The step is skipped if its guard blocks it (core's `UpdateGuard`).

struct Params {
    /// First statistics row of a gradient that guards the step, and the row after the last.
    first_gradient: u32,
    gradients_end: u32,
    /// Likewise the rows of activations.
    first_activation: u32,
    activations_end: u32,
    lr: u32,
    /// Indices of the hyperparameters that are the two scalars of the update rule.
    hyperparameters: vec2<u32>,
    /// 1 if gradients are clipped to a maximum norm, and that norm.
    has_max_norm: u32,
    max_norm: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> control: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read> norm: array<f32>;
/// Output: 1 if the step happens, learning rate, clipping coefficient, the two scalars of the rule.
@group(0) @binding(4) var<storage, read_write> step: array<u32>;

/// Bits of all counters that block the step if they are not zero.
var<workgroup> blocking_counts: atomic<u32>;

/// Returns the bits of a hyperparameter.
fn hyperparameter(index: u32) -> u32 {
    return control[CONTROL_HEADER + control[CONTROL_SLOTS] + index];
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        atomicStore(&blocking_counts, 0u);
    }
    workgroupBarrier();
    for (var row = p.first_gradient + lane; row < p.gradients_end; row += GROUP) {
        // The counts of ∞ and of NaN, 64 bits each.
        let at = row * ROW_WORDS + ROW_INFINITE;
        atomicOr(&blocking_counts, rows[at] | rows[at + 1u] | rows[at + 2u] | rows[at + 3u]);
    }
    for (var row = p.first_activation + lane; row < p.activations_end; row += GROUP) {
        let at = row * ROW_WORDS + ROW_OVERFLOWED;
        atomicOr(&blocking_counts, rows[at] | rows[at + 1u]);
    }
    workgroupBarrier();
    if lane == 0u {
        // No epsilon: a norm below the limit gives exactly 1.
        var coefficient = 1.0;
        if p.has_max_norm != 0u && !is_nan(norm[0]) && norm[0] > p.max_norm {
            coefficient = divide(p.max_norm, norm[0]);
        }
        step[0] = u32(atomicLoad(&blocking_counts) == 0u);
        step[1] = hyperparameter(p.lr);
        step[2] = bitcast<u32>(coefficient);
        step[3] = hyperparameter(p.hyperparameters.x);
        step[4] = hyperparameter(p.hyperparameters.y);
    }
}
