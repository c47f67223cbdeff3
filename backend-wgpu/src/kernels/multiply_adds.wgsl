// Chains of f32 multiply-adds that do not wait for each other: the speed of the arithmetic alone, as a baseline of products.

struct Params {
    rounds: u32,
    /// Factor and term of each multiply-add, as f32 bits. As parameters they cannot be computed ahead.
    factor: u32,
    term: u32,
    /// Number of elements of y.
    count: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = group_number(group, groups) * GROUP + lane;
    let factor = vec4<f32>(bitcast<f32>(p.factor));
    let term = vec4<f32>(bitcast<f32>(p.term));
    // Written out, because a dynamic index could put the chains into memory.
    var chains = array<vec4<f32>, 8>(
        vec4<f32>(0.0),
        vec4<f32>(1.0),
        vec4<f32>(2.0),
        vec4<f32>(3.0),
        vec4<f32>(4.0),
        vec4<f32>(5.0),
        vec4<f32>(6.0),
        vec4<f32>(7.0),
    );
    for (var round = 0u; round < p.rounds; round += 1u) {
        chains[0] = fma(chains[0], factor, term);
        chains[1] = fma(chains[1], factor, term);
        chains[2] = fma(chains[2], factor, term);
        chains[3] = fma(chains[3], factor, term);
        chains[4] = fma(chains[4], factor, term);
        chains[5] = fma(chains[5], factor, term);
        chains[6] = fma(chains[6], factor, term);
        chains[7] = fma(chains[7], factor, term);
    }
    let low = (chains[0] + chains[1]) + (chains[2] + chains[3]);
    let high = (chains[4] + chains[5]) + (chains[6] + chains[7]);
    if i < p.count {
        y[i] = dot(low + high, vec4<f32>(1.0));
    }
}
