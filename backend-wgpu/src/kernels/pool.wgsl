// Maximum or mean of each window, and the offset of the maximum. Needs windows.wgsl.

/// 1 if `offsets` are written, four to a word. The invocation that stores 8 results owns their 8 offsets.
override OFFSETS: u32;

struct Maximum {
    value: f32,
    offset: u32,
}

/// Returns the maximum (with its position) or the mean of window i.
fn pool_window(i: u32) -> Maximum {
    let at = coordinates(i, p.y_size);
    let start = at.yz * p.strides - p.pad;
    var sum = 0.0;
    var best = Maximum(bits_as_float(F32_INFINITY | ~F32_MAGNITUDE), 255u);
    var found = false;
    for (var r = 0u; r < p.window.x; r += 1u) {
        for (var s = 0u; s < p.window.y; s += 1u) {
            let position = start + vec2<u32>(r, s);
            if all(position < p.x_size) {
                let v = x_at(element_index(vec4<u32>(at.x, position, at.w), p.x_size));
                if AVERAGE != 0u {
                    sum += v;
                } else if !found || (!is_nan(best.value)
                    && (is_nan(v) || order(bitcast<u32>(v)) > order(bitcast<u32>(best.value)))) {
                    best = Maximum(v, r * p.window.y + s);
                    found = true;
                }
            }
        }
    }
    if AVERAGE != 0u {
        best.value = divide(sum, window_area());
    }
    return best;
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
        var bytes = vec2<u32>();
        var mask = vec2<u32>();
        for (var j = 0u; j < live; j += 1u) {
            let best = pool_window(8u * o + j);
            if j < 4u {
                lo[j] = best.value;
            } else {
                hi[j - 4u] = best.value;
            }
            bytes[j >> 2u] |= best.offset << (8u * (j & 3u));
            mask[j >> 2u] |= 0xffu << (8u * (j & 3u));
        }
        store_vec8(e, o, lo, hi, live);
        if OFFSETS != 0u {
            offsets_set(o, (offsets_get(o) & ~mask) | bytes);
        }
    }
    end_store(lane, number_of_group);
}
