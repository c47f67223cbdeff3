// Scatter: x, shaped as the pooled tensor, goes to the places of its windows, 0 elsewhere. Gather: each window takes
// what lies in its place. The mean goes to all places, divided. Needs windows.wgsl; `offset` is the offset of each
// window.

/// 0 gather, 1 scatter.
override SCATTER: u32;

/// Element i of the unpooled tensor: what the windows over it send there, in their order.
fn scattered(i: u32) -> f32 {
    let at = coordinates(i, p.x_size);
    let end = at.yz + p.pad;
    // The first window that reaches so far, and one behind the last that begins before.
    let reach = max(end + 1u, p.window) - p.window;
    let first = (reach + p.steps - 1u) / p.steps;
    let last = min(end / p.steps + 1u, p.y_size);
    var sum = 0.0;
    for (var r = first.x; r < last.x; r += 1u) {
        for (var s = first.y; s < last.y; s += 1u) {
            let from_x = index_of(vec4<u32>(at.x, r, s, at.w), p.y_size);
            let inside = end - vec2<u32>(r, s) * p.steps;
            if AVERAGE != 0u {
                sum += divide(x_at(from_x), area());
            } else if offset_raw(from_x) == inside.x * p.window.y + inside.y {
                sum += x_at(from_x);
            }
        }
    }
    return sum;
}

/// Element i of the pooled tensor: what lies in the place that was chosen.
fn gathered(i: u32) -> f32 {
    let at = coordinates(i, p.y_size);
    let chosen = offset_raw(i);
    let place = at.yz * p.steps - p.pad + vec2<u32>(chosen / p.window.y, chosen % p.window.y);
    return x_at(index_of(vec4<u32>(at.x, place, at.w), p.x_size));
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += groups.x * groups.y * GROUP) {
        let live = elements_in_vec8(o, p.len);
        var lo = vec4<f32>();
        var hi = vec4<f32>();
        for (var j = 0u; j < live; j += 1u) {
            var v = 0.0;
            if SCATTER != 0u {
                v = scattered(8u * o + j);
            } else {
                v = gathered(8u * o + j);
            }
            if j < 4u {
                lo[j] = v;
            } else {
                hi[j - 4u] = v;
            }
        }
        store_vec8(e, o, lo, hi, live);
    }
    end_store(lane, number_of_group);
}
