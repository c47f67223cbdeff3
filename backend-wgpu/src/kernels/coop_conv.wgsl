// Loader of coop.wgsl for convolutions: see conv_indices.wgsl. The channels of groups are multiples of 8, so an eight is
// whole, or outside; those that a sum of the forward pass and of the data gradient has are multiples of K_TILE, so a step
// has one tap.

struct Params {
    store: Store,
    output: Output,
    conv: ConvShape,
    /// Rows and columns of subgroups in a workgroup.
    subgroups: vec2<u32>,
}

@group(0) @binding(0) var<uniform> p: Params;

/// 1 for each eight that is inside the matrix, k not considered.
var<private> a_inside: array<u32, 2>;
var<private> b_inside: array<u32, 2>;
/// Windows of the rows, position of a step, and first channel of an eight from there (forward, data).
var<private> a_windows: array<Window, 2>;
var<private> a_position: Position;
var<private> a_channel: u32;
/// Eights whose addresses are linear in k, of dy (weight) and of w (forward): indices before the first step, and the
/// distance from there. `b_index` is also that of an eight of w in the first output of a step (data).
var<private> a_index: array<u32, 2>;
var<private> a_distance: u32;
var<private> b_index: array<u32, 2>;
var<private> b_distance: u32;
/// Position of the eights of x, and tap's offset and first channel of each (weight).
var<private> b_position: Position;
var<private> b_offset: array<vec2<u32>, 2>;
var<private> b_channel: array<u32, 2>;

fn start_a(j: u32, z: u32, line: u32, start: u32, ahead: u32) {
    a_inside[j] = u32(line < p.output.m);
    if PASS == PASS_WEIGHT {
        a_index[j] = (start + ahead) * p.conv.channels.y + z * p.conv.group_channels.y + line;
        return;
    }
    a_windows[j] = window_of(line);
    a_position = position_of(start);
    a_channel = z * select(p.conv.group_channels.y, p.conv.group_channels.x, PASS == PASS_FORWARD) + ahead;
}

fn start_b(j: u32, z: u32, line: u32, start: u32, ahead: u32) {
    b_inside[j] = u32(line < p.output.n);
    let taps = p.conv.kernel.x * p.conv.kernel.y * p.conv.group_channels.x;
    if PASS == PASS_FORWARD {
        b_index[j] = (z * p.conv.group_channels.y + line) * taps + start + ahead;
    } else if PASS == PASS_DATA {
        b_index[j] = (z * p.conv.group_channels.y + ahead) * taps + line;
    } else {
        b_position = position_of(start + ahead);
        b_offset[j] = tap_offset(line);
        b_channel[j] = z * p.conv.group_channels.x + line % p.conv.group_channels.x;
    }
}

fn advance_a() {
    if PASS == PASS_WEIGHT {
        a_distance += K_TILE * p.conv.channels.y;
    } else {
        a_position = advanced(a_position, K_TILE);
    }
}

fn advance_b() {
    if PASS == PASS_FORWARD {
        b_distance += K_TILE;
    } else if PASS == PASS_WEIGHT {
        b_position = advanced(b_position, K_TILE);
    }
}

fn load_a(j: u32, k: u32, end: u32) {
    var i = a_index[j] + a_distance;
    if PASS != PASS_WEIGHT {
        i = gathered_index(a_windows[j], a_position.outer, a_position.inner + a_channel);
    }
    let is_there = a_inside[j] != 0u && k < end && i != PADDING_INDEX;
    let eight = select(0u, i / 8u, is_there);
    a_eights[j] = Eight(a[2u * eight], a[2u * eight + 1u]);
    a_fours[j] = select(0u, 2u, is_there);
}

fn load_b(j: u32, k: u32, end: u32) {
    var i = b_index[j] + b_distance;
    if PASS == PASS_DATA {
        i = b_index[j] + weight_distance(a_position);
    } else if PASS == PASS_WEIGHT {
        i = read_index(b_position, b_offset[j], b_channel[j]);
    }
    let is_there = b_inside[j] != 0u && k < end && i != PADDING_INDEX;
    let eight = select(0u, i / 8u, is_there);
    b_eights[j] = Eight(b[2u * eight], b[2u * eight + 1u]);
    b_fours[j] = select(0u, 2u, is_there);
}
