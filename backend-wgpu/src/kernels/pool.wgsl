// Maximum or mean of each window, and the offset of the maximum. Needs windows.wgsl.

/// 1 if `offsets` are written, four to a word. The invocation that stores 8 results owns their 8 offsets.
override OFFSETS: u32;
/// 1 if the window is 2×2 and channels come in eights: then its four loads do not wait for each other.
override TWO_BY_TWO: u32;

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

/// Maxima or sums of the windows of eight channels.
struct Vec8Window {
    values: array<vec4<f32>, 2>,
    /// Order of the maxima: 0 before the first value, NaN above all others.
    ranks: array<vec4<u32>, 2>,
    offsets: array<vec4<u32>, 2>,
}

fn order_rank_vec4(x: vec4<u32>) -> vec4<u32> {
    let m = x & vec4<u32>(F32_MAGNITUDE);
    let middle = vec4<u32>(0x80000000u);
    let order = select(middle + m, middle - m, x > vec4<u32>(F32_MAGNITUDE));
    return select(order, vec4<u32>(0xffffffffu), m > vec4<u32>(F32_INFINITY));
}

/// Returns the windows with the values at one position, if that is inside the image.
fn add_position(windows: Vec8Window, v: array<vec4<f32>, 2>, offset: u32, is_inside: bool) -> Vec8Window {
    var next = windows;
    if AVERAGE != 0u {
        next.values[0] += select(vec4<f32>(), v[0], is_inside);
        next.values[1] += select(vec4<f32>(), v[1], is_inside);
        return next;
    }
    let ranks = array<vec4<u32>, 2>(
        select(vec4<u32>(), order_rank_vec4(bitcast<vec4<u32>>(v[0])), is_inside),
        select(vec4<u32>(), order_rank_vec4(bitcast<vec4<u32>>(v[1])), is_inside),
    );
    let is_larger = array<vec4<bool>, 2>(ranks[0] > windows.ranks[0], ranks[1] > windows.ranks[1]);
    next.values[0] = select(windows.values[0], v[0], is_larger[0]);
    next.values[1] = select(windows.values[1], v[1], is_larger[1]);
    next.ranks[0] = select(windows.ranks[0], ranks[0], is_larger[0]);
    next.ranks[1] = select(windows.ranks[1], ranks[1], is_larger[1]);
    next.offsets[0] = select(windows.offsets[0], vec4<u32>(offset), is_larger[0]);
    next.offsets[1] = select(windows.offsets[1], vec4<u32>(offset), is_larger[1]);
    return next;
}

/// Returns maxima or sums of the windows of eight channels from element 8o on.
fn pool_vec8(o: u32) -> Vec8Window {
    let at = coordinates(8u * o, p.y_size);
    let start = at.yz * p.strides - p.pad;
    var windows = Vec8Window();
    if AVERAGE == 0u {
        let least = vec4<f32>(bits_as_float(F32_INFINITY | ~F32_MAGNITUDE));
        windows.values = array<vec4<f32>, 2>(least, least);
        windows.offsets = array<vec4<u32>, 2>(vec4<u32>(255u), vec4<u32>(255u));
    }
    if TWO_BY_TWO != 0u {
        let is_row = vec2<u32>(start.x, start.x + 1u) < vec2<u32>(p.x_size.x);
        let is_column = vec2<u32>(start.y, start.y + 1u) < vec2<u32>(p.x_size.y);
        let is_inside = vec4<bool>(
            is_row.x && is_column.x,
            is_row.x && is_column.y,
            is_row.y && is_column.x,
            is_row.y && is_column.y,
        );
        let first = element_index(vec4<u32>(at.x, start, at.w), p.x_size) / 8u;
        let right = p.channels / 8u;
        let below = p.x_size.y * right;
        // Outside of the image, the first elements of x are loaded in place of nothing.
        let index = select(
            vec4<u32>(),
            vec4<u32>(first, first + right, first + below, first + below + right),
            is_inside,
        );
        let a = x_vec8(index.x);
        let b = x_vec8(index.y);
        let c = x_vec8(index.z);
        let d = x_vec8(index.w);
        windows = add_position(windows, a, 0u, is_inside.x);
        windows = add_position(windows, b, 1u, is_inside.y);
        windows = add_position(windows, c, 2u, is_inside.z);
        windows = add_position(windows, d, 3u, is_inside.w);
    } else {
        for (var r = 0u; r < p.window.x; r += 1u) {
            for (var s = 0u; s < p.window.y; s += 1u) {
                let position = start + vec2<u32>(r, s);
                if all(position < p.x_size) {
                    let i = element_index(vec4<u32>(at.x, position, at.w), p.x_size);
                    windows = add_position(windows, x_vec8(i / 8u), r * p.window.y + s, true);
                }
            }
        }
    }
    if AVERAGE != 0u {
        for (var j = 0u; j < 8u; j += 1u) {
            windows.values = push_vec8(windows.values, divide(windows.values[0].x, window_area()));
        }
    }
    return windows;
}

fn bytes_of_vec4(v: vec4<u32>) -> u32 {
    return v.x | (v.y << 8u) | (v.z << 16u) | (v.w << 24u);
}

/// Returns eight bytes without the first one, and with another behind them.
fn push_byte(bytes: vec2<u32>, byte: u32) -> vec2<u32> {
    return vec2<u32>((bytes.x >> 8u) | (bytes.y << 24u), (bytes.y >> 8u) | (byte << 24u));
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
        if EIGHTS != 0u {
            let windows = pool_vec8(o);
            store_vec8(e, o, windows.values[0], windows.values[1], 8u);
            if OFFSETS != 0u {
                offsets_set(o, vec2<u32>(bytes_of_vec4(windows.offsets[0]), bytes_of_vec4(windows.offsets[1])));
            }
            continue;
        }
        let live = elements_in_vec8(o, p.len);
        var v = array<vec4<f32>, 2>();
        var bytes = vec2<u32>();
        var mask = vec2<u32>();
        for (var j = 0u; j < 8u; j += 1u) {
            let is_live = j < live;
            var best = Maximum();
            if is_live {
                best = pool_window(8u * o + j);
            }
            v = push_vec8(v, best.value);
            bytes = push_byte(bytes, best.offset);
            mask = push_byte(mask, select(0u, 0xffu, is_live));
        }
        store_vec8(e, o, v[0], v[1], live);
        if OFFSETS != 0u {
            offsets_set(o, (offsets_get(o) & ~mask) | bytes);
        }
    }
    end_store(lane, number_of_group);
}
