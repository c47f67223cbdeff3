// The logarithm of each frame's sum of exponentials: a workgroup for a frame. Needs ctc.wgsl.

@group(0) @binding(8) var<storage, read_write> numbers: array<f32>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_number(group, groups);
    let live = row < p.batch * p.frames;
    let classes = select(0u, p.classes, live);
    let start = (p.first * p.frames + row) * p.classes;
    var most = bits_as_float(F32_INFINITY | ~F32_MAGNITUDE);
    for (var c = lane; c < classes; c += GROUP) {
        most = rank_to_float(max(order_rank(bitcast<u32>(most)), order_rank(bitcast<u32>(x_at(start + c)))));
    }
    most = group_most(lane, most);
    var sum = 0.0;
    for (var c = lane; c < classes; c += GROUP) {
        sum += exponential(x_at(start + c) - most);
    }
    sum = group_sum(lane, sum);
    if live && lane == 0u {
        numbers[row] = most + natural_logarithm(sum);
    }
}
