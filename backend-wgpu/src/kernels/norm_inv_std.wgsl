// Mean and 1/√(variance + eps) of each group from given statistics, so that elements do not compute them again.

struct Params {
    groups: u32,
    eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(7) var<storage, read> saved: array<f32>;
/// Mean, 1 / σ, and for the gradient the means of u and of u · x̂, where u is dy times the scale.
@group(0) @binding(9) var<storage, read_write> group_stats: array<vec4<f32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    for (var g = group_number(group, groups) * GROUP + lane; g < p.groups; g += groups.x * groups.y * GROUP) {
        group_stats[g] = vec4<f32>(saved[g], inverse_std(saved[p.groups + g], p.eps), 0.0, 0.0);
    }
}
