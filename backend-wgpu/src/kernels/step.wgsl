// What a step does to all parameters: nothing if a row of the guard counted a value that is not finite, else the numbers
// of core's `Step`.

struct Params {
    /// Rows of the guard, and the first behind it.
    first: u32,
    end: u32,
    lr: u32,
    /// Hyperparameters of the rule's two numbers.
    hyperparameters: vec2<u32>,
    /// Whether there is a greatest norm, and that.
    clips: u32,
    most: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> control: array<u32>;
@group(0) @binding(2) var<storage, read> rows: array<u32>;
@group(0) @binding(3) var<storage, read> norm: array<f32>;
/// Whether the step happens, learning rate, clipping coefficient, the rule's two numbers.
@group(0) @binding(4) var<storage, read_write> step: array<u32>;

var<workgroup> found: atomic<u32>;

/// Bits of a hyperparameter.
fn hyperparameter(index: u32) -> u32 {
    return control[CONTROL_HEADER + control[CONTROL_SLOTS] + index];
}

@compute @workgroup_size(256)
fn main(@builtin(local_invocation_index) lane: u32) {
    if lane == 0u {
        atomicStore(&found, 0u);
    }
    workgroupBarrier();
    for (var row = p.first + lane; row < p.end; row += GROUP) {
        // The counts of ∞ and of NaN, 64 bits each.
        let at = row * ROW_WORDS + ROW_INFINITE;
        atomicOr(&found, rows[at] | rows[at + 1u] | rows[at + 2u] | rows[at + 3u]);
    }
    workgroupBarrier();
    if lane == 0u {
        // No epsilon: a norm below the limit gives exactly 1.
        var coefficient = 1.0;
        if p.clips != 0u && !is_nan(norm[0]) && norm[0] > p.most {
            coefficient = divide(p.most, norm[0]);
        }
        step[0] = u32(atomicLoad(&found) == 0u);
        step[1] = hyperparameter(p.lr);
        step[2] = bitcast<u32>(coefficient);
        step[3] = hyperparameter(p.hyperparameters.x);
        step[4] = hyperparameter(p.hyperparameters.y);
    }
}
