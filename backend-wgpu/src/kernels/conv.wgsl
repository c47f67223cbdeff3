// Convolutions and their gradients as products of tiles, whose operands are gathered while they are loaded: no image is
// ever unfolded. Reference: core's `Conv2d`, x [n, h, w, c], w [o, kh, kw, c/groups], y [n, oh, ow, o]; z is the group.
//
// pass    rows                 columns                k                              a          b
// forward places of y          outputs of the group   taps · inputs of the group     along k    along k
// data    places of x          inputs of the group    taps · outputs of the group    along k    across
// weight  outputs of the group taps · inputs          places of y                    across     across
//
// Addresses move with k by additions. If the channels of a group are a multiple of K_TILE, a step has one tap, which is the
// same for the whole workgroup.

struct Params {
    store: Store,
    output: Output,
    /// Height and width: of x, of y, of the kernel; strides, padding, dilation.
    x_size: vec2<u32>,
    y_size: vec2<u32>,
    kernel: vec2<u32>,
    strides: vec2<u32>,
    pad: vec2<u32>,
    dilation: vec2<u32>,
    /// Channels of x and y; those of a group.
    channels: vec2<u32>,
    group_channels: vec2<u32>,
}

@group(0) @binding(0) var<uniform> p: Params;
/// Pass of the convolution: 0 forward, 1 data gradient, 2 weight gradient.
override PASS: u32;
/// 1 if all k of a step have the same tap, and the channels of groups are multiples of 8 (forward, data).
override SAME_TAP: u32;
/// 1 if a stride is not 1.
override STRIDED: u32;

/// Position in the sum of a pass: tap and channel, or with the weight gradient (image, row) and column of a place of y.
struct Position {
    outer: vec2<u32>,
    inner: u32,
}

/// Number of inner positions, and of outer positions in a row of them.
fn position_limits() -> vec2<u32> {
    if PASS == PASS_WEIGHT {
        return vec2<u32>(p.y_size.y, p.y_size.x);
    }
    return vec2<u32>(select(p.group_channels.y, p.group_channels.x, PASS == PASS_FORWARD), p.kernel.y);
}

fn position_of(k: u32) -> Position {
    let limits = position_limits();
    let outer = k / limits.x;
    return Position(vec2<u32>(outer / limits.y, outer % limits.y), k % limits.x);
}

/// Returns the position with its inner part one row earlier, and the outer part one later.
fn wrapped(at: Position, limits: vec2<u32>) -> Position {
    let is_last = at.outer.y + 1u == limits.y;
    let outer = select(vec2<u32>(at.outer.x, at.outer.y + 1u), vec2<u32>(at.outer.x + 1u, 0u), is_last);
    return Position(outer, at.inner - limits.x);
}

/// Returns the position `by` terms later.
fn advanced(at: Position, by: u32) -> Position {
    let limits = position_limits();
    var next = Position(at.outer, at.inner + by);
    if SAME_TAP != 0u {
        // Steps end with the taps.
        if next.inner >= limits.x {
            next = wrapped(next, limits);
        }
        return next;
    }
    while next.inner >= limits.x {
        next = wrapped(next, limits);
    }
    return next;
}

/// Place of the row that an invocation loads: first row of its image, and the row and column at which its window starts
/// (forward) or ends (data). Position in the sum, first channel of the group, and channels ahead of the
/// position: 0 unless all k of a step have the same tap.
var<private> a_image: u32;
var<private> a_origin: vec2<u32>;
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
        a_index = (start + ahead) * p.channels.y + z * p.group_channels.y + first;
        a_live = min(p.output.m - first, 4u);
        return;
    }
    let size = select(p.x_size, p.y_size, PASS == PASS_FORWARD);
    let place = row / size.y;
    let at = vec2<u32>(place % size.x, row % size.y);
    a_image = (place / size.x) * select(p.y_size.x, p.x_size.x, PASS == PASS_FORWARD);
    a_origin = select(at + p.pad, at * p.strides - p.pad, PASS == PASS_FORWARD);
    a_position = position_of(select(start + ahead, start, SAME_TAP != 0u));
    a_group = z * select(p.group_channels.y, p.group_channels.x, PASS == PASS_FORWARD);
    a_ahead = select(0u, ahead, SAME_TAP != 0u);
}

fn advance_a() {
    if PASS == PASS_WEIGHT {
        a_distance += K_TILE * p.channels.y;
    } else {
        a_position = advanced(a_position, K_TILE);
    }
}

/// Returns the index in a of the channel at a position, or PADDING_INDEX if the window reads padding there.
fn gathered_index(at: Position) -> u32 {
    let channel = at.inner + a_group;
    let reach = at.outer * p.dilation;
    if PASS == PASS_FORWARD {
        let read = a_origin + reach;
        let index = ((a_image + read.x) * p.x_size.y + read.y) * p.channels.x + channel;
        return select(PADDING_INDEX, index, all(read < p.x_size));
    }
    // Which window reads this place with this tap? Before the first one, the difference wraps to a huge number.
    let start = a_origin - reach;
    var window = start;
    var is_start = true;
    if STRIDED != 0u {
        window = start / p.strides;
        is_start = all(window * p.strides == start);
    }
    let index = ((a_image + window.x) * p.y_size.y + window.y) * p.channels.y + channel;
    return select(PADDING_INDEX, index, is_start && all(window < p.y_size));
}

const PADDING_INDEX: u32 = 0xffffffffu;

fn load_a(k: u32, end: u32) -> vec4<f32> {
    if PASS == PASS_WEIGHT {
        if ALIGNED != 0u {
            return a_aligned_vec4(a_index, a_distance);
        }
        return a_vec4(a_index + a_distance, a_live);
    }
    if ALIGNED != 0u {
        // With padding, the first element is loaded in place of nothing.
        let i = gathered_index(a_position);
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
        let i = gathered_index(at);
        if i != PADDING_INDEX {
            four[j] = a_at(i + a_ahead);
        }
        at = advanced(at, 1u);
    }
    return four;
}

fn start_b(z: u32, line: u32, start: u32, ahead: u32) {
    let taps = p.kernel.x * p.kernel.y * p.group_channels.x;
    let column = min(line, p.output.n - 1u);
    if PASS == PASS_FORWARD {
        b_index = (z * p.group_channels.y + column) * taps + start + ahead;
        return;
    }
    b_column = column / 4u * 4u;
    b_live = min(p.output.n - b_column, 4u);
    b_position = position_of(select(start + ahead, start, SAME_TAP != 0u));
    if PASS == PASS_DATA {
        b_index = (z * p.group_channels.y + select(0u, ahead, SAME_TAP != 0u)) * taps + b_column;
    } else {
        b_index = z * p.group_channels.x;
        let tap = b_column / p.group_channels.x;
        b_tap = vec2<u32>(tap / p.kernel.y, tap % p.kernel.y) * p.dilation - p.pad;
        b_channel = b_column % p.group_channels.x;
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

/// Returns the index in x of a channel at the place that a tap reads, or PADDING_INDEX if that is padding (weight):
/// `outer` is image and row of y.
fn read_index(tap: vec2<u32>, channel: u32) -> u32 {
    let read = vec2<u32>(b_position.outer.y, b_position.inner) * p.strides + tap;
    let index = ((b_position.outer.x * p.x_size.x + read.x) * p.x_size.y + read.y) * p.channels.x + b_index + channel;
    return select(PADDING_INDEX, index, all(read < p.x_size));
}

fn load_b(k: u32, end: u32) -> vec4<f32> {
    if PASS == PASS_FORWARD {
        if ALIGNED != 0u {
            return b_aligned_vec4(b_index, b_distance);
        }
        return first_of_vec4(b_vec4(b_index + b_distance, end - k), end - k);
    }
    if PASS == PASS_DATA {
        let taps = p.kernel.x * p.kernel.y;
        let tap = b_position.outer.x * p.kernel.y + b_position.outer.y;
        let distance = (b_position.inner * taps + tap) * p.group_channels.x;
        if ALIGNED != 0u && SAME_TAP != 0u {
            return b_aligned_vec4(b_index, distance);
        }
        if ALIGNED != 0u {
            return b_aligned_vec4(b_index + distance, 0u);
        }
        return b_vec4(b_index + distance, b_live);
    }
    if ALIGNED != 0u {
        let i = read_index(b_tap, b_channel);
        let is_read = i != PADDING_INDEX;
        return select(vec4<f32>(), b_aligned_vec4(select(0u, i, is_read), 0u), is_read);
    }
    var four = vec4<f32>();
    for (var j = 0u; j < b_live; j += 1u) {
        let tap = (b_column + j) / p.group_channels.x;
        let offset = vec2<u32>(tap / p.kernel.y, tap % p.kernel.y) * p.dilation - p.pad;
        let i = read_index(offset, (b_column + j) % p.group_channels.x);
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
