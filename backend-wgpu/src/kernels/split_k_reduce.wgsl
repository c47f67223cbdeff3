// Reduction of split-K: adds the partial sums of all splits in order, then the bias, and stores.

struct Params {
    store: Store,
    output: Output,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(8) var<storage, read> split_k_partials: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    let o = p.output;
    let count = o.batch * o.m * o.n;
    for (var i = number_of_group * GROUP + lane; i < count; i += groups.x * groups.y * GROUP) {
        var sum = 0.0;
        for (var split = 0u; split < o.splits; split += 1u) {
            sum += split_k_partials[split * count + i];
        }
        let c = i % o.n;
        let r = (i / o.n) % o.m;
        let z = i / (o.n * o.m);
        if o.bias != NO_BIAS {
            sum += bias_at(z * o.bias_stride + c);
        }
        store_scalar(e, z * o.stride + r * o.ldy + c, sum);
    }
    end_store(lane, number_of_group);
}
