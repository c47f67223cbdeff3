// Convolutions and their gradients as products of tiles, whose operands are gathered while they are loaded: see
// conv_indices.wgsl.

struct Params {
    store: Store,
    output: Output,
    conv: ConvShape,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Window of the row that an invocation loads, position in the sum, first channel of the group, and channels ahead of the
/// position: 0 unless all k of a step have the same tap.
var<private> a_window: Window;
var<private> a_position: Position;
var<private> a_group: u32;
var<private> a_ahead: u32;
/// Vectors whose addresses are linear in k, of dy (weight) and of w (forward): index of the first, its live elements, and
/// the distance to the next one, a multiple of 8.
var<private> a_index: u32;
var<private> a_live: u32;
var<private> a_distance: u32;
var<private> b_index: u32;
var<private> b_live: u32;
var<private> b_distance: u32;
/// First column, position in the sum (data, weight), and the tap's offset and channel of that column (weight). `b_index` is
/// that of the column in the group's first output (data), or the group's first channel (weight).
var<private> b_column: u32;
var<private> b_position: Position;
var<private> b_tap: vec2<u32>;
var<private> b_channel: u32;

fn start_a(z: u32, line: u32, start: u32, ahead: u32) {
    let row = min(line, p.output.m - 1u);
    if PASS == PASS_WEIGHT {
        let first = row / 4u * 4u;
        a_index = (start + ahead) * p.conv.channels.y + z * p.conv.group_channels.y + first;
        a_live = min(p.output.m - first, 4u);
        return;
    }
    a_window = window_of(row);
    a_position = position_of(select(start + ahead, start, SAME_TAP != 0u));
    a_group = z * select(p.conv.group_channels.y, p.conv.group_channels.x, PASS == PASS_FORWARD);
    a_ahead = select(0u, ahead, SAME_TAP != 0u);
}

fn advance_a() {
    if PASS == PASS_WEIGHT {
        a_distance += K_TILE * p.conv.channels.y;
    } else {
        a_position = advanced(a_position, K_TILE);
    }
}

/// Returns the index in a of the channel at a position, or PADDING_INDEX if the window reads padding there.
fn index_at(at: Position) -> u32 {
    return gathered_index(a_window, at.outer, at.inner + a_group);
}

fn load_a(k: u32, end: u32) -> vec4<f32> {
    if PASS == PASS_WEIGHT {
        if ALIGNED != 0u {
            return a_aligned_vec4(a_index, a_distance);
        }
        return a_vec4(a_index + a_distance, a_live);
    }
    if ALIGNED != 0u {
        // With padding, the first element is loaded in place of nothing.
        let i = index_at(a_position);
        let is_read = i != PADDING_INDEX;
        let first = select(0u, i, is_read);
        if SAME_TAP != 0u {
            return select(vec4<f32>(), a_aligned_vec4(a_ahead, first), is_read);
        }
        return select(vec4<f32>(), a_aligned_vec4(first, 0u), is_read);
    }
    var four = vec4<f32>();
    var at = a_position;
    for (var j = 0u; j < min(end - k, 4u); j += 1u) {
        let i = index_at(at);
        if i != PADDING_INDEX {
            four[j] = a_at(i + a_ahead);
        }
        at = advanced(at, 1u);
    }
    return four;
}

fn start_b(z: u32, line: u32, start: u32, ahead: u32) {
    let taps = p.conv.kernel.x * p.conv.kernel.y * p.conv.group_channels.x;
    let column = min(line, p.output.n - 1u);
    if PASS == PASS_FORWARD {
        b_index = (z * p.conv.group_channels.y + column) * taps + start + ahead;
        return;
    }
    b_column = column / 4u * 4u;
    b_live = min(p.output.n - b_column, 4u);
    b_position = position_of(select(start + ahead, start, SAME_TAP != 0u));
    if PASS == PASS_DATA {
        b_index = (z * p.conv.group_channels.y + select(0u, ahead, SAME_TAP != 0u)) * taps + b_column;
    } else {
        b_index = z * p.conv.group_channels.x;
        b_tap = tap_offset(b_column);
        b_channel = b_column % p.conv.group_channels.x;
    }
}

fn advance_b() {
    if PASS == PASS_FORWARD {
        b_distance += K_TILE;
    } else if SAME_TAP != 0u {
        b_position = a_position;
    } else {
        b_position = advanced(b_position, K_TILE);
    }
}

fn load_b(k: u32, end: u32) -> vec4<f32> {
    if PASS == PASS_FORWARD {
        if ALIGNED != 0u {
            return b_aligned_vec4(b_index, b_distance);
        }
        return first_of_vec4(b_vec4(b_index + b_distance, end - k), end - k);
    }
    if PASS == PASS_DATA {
        let distance = weight_distance(b_position);
        if ALIGNED != 0u && SAME_TAP != 0u {
            return b_aligned_vec4(b_index, distance);
        }
        if ALIGNED != 0u {
            return b_aligned_vec4(b_index + distance, 0u);
        }
        return b_vec4(b_index + distance, b_live);
    }
    if ALIGNED != 0u {
        let i = read_index(b_position, b_tap, b_index + b_channel);
        let is_read = i != PADDING_INDEX;
        return select(vec4<f32>(), b_aligned_vec4(select(0u, i, is_read), 0u), is_read);
    }
    var four = vec4<f32>();
    for (var j = 0u; j < b_live; j += 1u) {
        let column = b_column + j;
        let i = read_index(b_position, tap_offset(column), b_index + column % p.conv.group_channels.x);
        if i != PADDING_INDEX {
            four[j] = b_at(i);
        }
    }
    return four;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    multiply_tiles(lane, group_number(group, groups));
}
