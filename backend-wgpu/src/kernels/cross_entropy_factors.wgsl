// Log-sum-exp of each row, and g · weight / divisor, the common factor of the gradients of its elements.

struct Params {
    label_params: LabelParams,
    /// Index of the first row of this launch, and its number of rows.
    start: u32,
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(6) var<storage, read> g: array<f32>;
@group(0) @binding(7) var<storage, read> weights: array<f32>;
@group(0) @binding(8) var<storage, read_write> row_factors: array<vec2<f32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var i = group_number(group, groups) * GROUP + lane; i < p.count; i += groups.x * groups.y * GROUP) {
        let label = labels_raw(p.start + i);
        var weight = 1.0;
        if WEIGHTED != 0u && label < p.label_params.classes {
            weight = weights[label];
        }
        row_factors[i] = vec2<f32>(out_get(2u + p.start + i), divide(g[0] * weight, out_get(1u)));
    }
}
