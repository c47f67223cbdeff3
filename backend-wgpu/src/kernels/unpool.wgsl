// Scatter: x, shaped as the pooled tensor, is added at the position of the maximum of each window; other positions are 0.
// Gather: each window reads x at that position. A mean is scattered to all positions, divided by the area. Needs
// windows.wgsl; `offset` is the offset of each window.

/// Direction of the kernel: 0 gathers the chosen element of each window, 1 scatters window values to pixels.
override SCATTER: u32;

/// Returns element i of the unpooled tensor: the sum over its windows, in order.
fn scatter(i: u32) -> f32 {
    let at = coordinates(i, p.x_size);
    let end = at.yz + p.pad;
    // Returns the first window that contains the element, and the one after the last.
    let reach = max(end + 1u, p.window) - p.window;
    let first = (reach + p.strides - 1u) / p.strides;
    let last = min(end / p.strides + 1u, p.y_size);
    var sum = 0.0;
    for (var r = first.x; r < last.x; r += 1u) {
        for (var s = first.y; s < last.y; s += 1u) {
            let from_x = element_index(vec4<u32>(at.x, r, s, at.w), p.y_size);
            let inside = end - vec2<u32>(r, s) * p.strides;
            if AVERAGE != 0u {
                sum += divide(x_at(from_x), window_area());
            } else if offset_raw(from_x) == inside.x * p.window.y + inside.y {
                sum += x_at(from_x);
            }
        }
    }
    return sum;
}

/// Returns element i of the pooled tensor: x at the position of the maximum.
fn gather(i: u32) -> f32 {
    let at = coordinates(i, p.y_size);
    let offset = offset_raw(i);
    let position = at.yz * p.strides - p.pad + vec2<u32>(offset / p.window.y, offset % p.window.y);
    return x_at(element_index(vec4<u32>(at.x, position, at.w), p.x_size));
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
                v = scatter(8u * o + j);
            } else {
                v = gather(8u * o + j);
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
