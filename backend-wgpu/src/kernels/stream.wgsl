// y[i] = x[i], 16 bytes at a time: the time of the memory alone, as a baseline of kernels that read and write once.

struct Params {
    /// Number of elements to copy, 16 bytes each.
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read> x: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let stride = groups.x * groups.y * GROUP;
    for (var i = group_number(group, groups) * GROUP + lane; i < p.count; i += stride) {
        y[i] = x[i];
    }
}
