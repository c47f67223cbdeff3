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

/// Returns the offsets of the windows of eight channels.
fn raw_offset_vec8(o: u32) -> array<vec4<u32>, 2> {
    let words = offset_get(o / 2u);
    let two = select(words.xy, words.zw, (o & 1u) == 1u);
    let shifts = vec4<u32>(0u, 8u, 16u, 24u);
    let mask = vec4<u32>(0xffu);
    return array<vec4<u32>, 2>((vec4<u32>(two.x) >> shifts) & mask, (vec4<u32>(two.y) >> shifts) & mask);
}

/// Returns elements 8o to 8o + 7 of the unpooled tensor, which are channels of one pixel.
fn scatter_vec8(o: u32) -> array<vec4<f32>, 2> {
    let at = coordinates(8u * o, p.x_size);
    let end = at.yz + p.pad;
    let reach = max(end + 1u, p.window) - p.window;
    let first = (reach + p.strides - 1u) / p.strides;
    let last = min(end / p.strides + 1u, p.y_size);
    var sums = array<vec4<f32>, 2>();
    for (var r = first.x; r < last.x; r += 1u) {
        for (var s = first.y; s < last.y; s += 1u) {
            let from_x = element_index(vec4<u32>(at.x, r, s, at.w), p.y_size) / 8u;
            let inside = end - vec2<u32>(r, s) * p.strides;
            let place = vec4<u32>(inside.x * p.window.y + inside.y);
            let offsets = raw_offset_vec8(from_x);
            let v = x_vec8(from_x);
            sums[0] = select(sums[0], sums[0] + v[0], offsets[0] == place);
            sums[1] = select(sums[1], sums[1] + v[1], offsets[1] == place);
        }
    }
    return sums;
}

/// Returns elements 8o to 8o + 7 of the pooled tensor, which are channels of one pixel.
fn gather_vec8(o: u32) -> array<vec4<f32>, 2> {
    let at = coordinates(8u * o, p.y_size);
    let start = at.yz * p.strides - p.pad;
    let words = offset_get(o / 2u);
    var offsets = select(words.xy, words.zw, (o & 1u) == 1u);
    var v = array<vec4<f32>, 2>();
    for (var j = 0u; j < 8u; j += 1u) {
        let offset = offsets.x & 0xffu;
        offsets = vec2<u32>((offsets.x >> 8u) | (offsets.y << 24u), offsets.y >> 8u);
        let row = offset / p.window.y;
        let position = start + vec2<u32>(row, offset - row * p.window.y);
        v = push_vec8(v, x_at(element_index(vec4<u32>(at.x, position, at.w + j), p.x_size)));
    }
    return v;
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
        var v = array<vec4<f32>, 2>();
        if EIGHTS != 0u && SCATTER != 0u {
            v = scatter_vec8(o);
        } else if EIGHTS != 0u {
            v = gather_vec8(o);
        } else {
            for (var j = 0u; j < 8u; j += 1u) {
                var element = 0.0;
                if j < live {
                    if SCATTER != 0u {
                        element = scatter(8u * o + j);
                    } else {
                        element = gather(8u * o + j);
                    }
                }
                v = push_vec8(v, element);
            }
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
