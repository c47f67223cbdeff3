// Log-sum-exp of the logits of each frame. One workgroup per frame. Needs ctc.wgsl.

@group(0) @binding(8) var<storage, read_write> log_sums: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(group, groups);
    let is_live = row < p.batch * p.frames;
    let classes = select(0u, p.classes, is_live);
    let start = (p.first * p.frames + row) * p.classes;
    var max_log = bits_as_float(F32_INFINITY | ~F32_MAGNITUDE);
    for (var c = lane; c < classes; c += GROUP) {
        max_log = rank_to_float(max(order_rank(bitcast<u32>(max_log)), order_rank(bitcast<u32>(x_at(start + c)))));
    }
    max_log = workgroup_max(lane, max_log);
    var sum = 0.0;
    for (var c = lane; c < classes; c += GROUP) {
        sum += exponential(x_at(start + c) - max_log);
    }
    sum = workgroup_sum(lane, sum);
    if is_live && lane == 0u {
        log_sums[row] = max_log + natural_logarithm(sum);
    }
}
