// Rows, columns and sum of the three passes of a convolution as a product, and the places in memory of its operands, which
// are gathered while they are loaded: no image is ever unfolded. Reference: core's `Conv2d`, x [n, h, w, c],
// w [o, kh, kw, c/groups], y [n, oh, ow, o]; z is the group.
//
// pass    rows                 columns                k                              a          b
// forward places of y          outputs of the group   taps · inputs of the group     along k    along k
// data    places of x          inputs of the group    taps · outputs of the group    along k    across
// weight  outputs of the group taps · inputs          places of y                    across     across
//
// Positions move with k by additions. If the channels of a group are a multiple of K_TILE, a step has one tap, which is the
// same for the whole workgroup. Needs K_TILE, and `p.conv: ConvShape`.

struct ConvShape {
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
        return vec2<u32>(p.conv.y_size.y, p.conv.y_size.x);
    }
    return vec2<u32>(select(p.conv.group_channels.y, p.conv.group_channels.x, PASS == PASS_FORWARD), p.conv.kernel.y);
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

/// Window of a row of the product: first row of its image in a, and the row and column at which it starts (forward) or
/// ends (data).
struct Window {
    image: u32,
    origin: vec2<u32>,
}

/// Returns the window of a row (forward, data).
fn window_of(row: u32) -> Window {
    let size = select(p.conv.x_size, p.conv.y_size, PASS == PASS_FORWARD);
    let place = row / size.y;
    let at = vec2<u32>(place % size.x, row % size.y);
    return Window(
        (place / size.x) * select(p.conv.y_size.x, p.conv.x_size.x, PASS == PASS_FORWARD),
        select(at + p.conv.pad, at * p.conv.strides - p.conv.pad, PASS == PASS_FORWARD),
    );
}

const PADDING_INDEX: u32 = 0xffffffffu;

/// Returns the index in a of a channel that a window reads with a tap, or PADDING_INDEX if it reads padding there
/// (forward, data).
fn gathered_index(window: Window, tap: vec2<u32>, channel: u32) -> u32 {
    let reach = tap * p.conv.dilation;
    if PASS == PASS_FORWARD {
        let read = window.origin + reach;
        let index = ((window.image + read.x) * p.conv.x_size.y + read.y) * p.conv.channels.x + channel;
        return select(PADDING_INDEX, index, all(read < p.conv.x_size));
    }
    // Which window reads this place with this tap? Before the first one, the difference wraps to a huge number.
    let start = window.origin - reach;
    var reader = start;
    var is_start = true;
    if STRIDED != 0u {
        reader = start / p.conv.strides;
        is_start = all(reader * p.conv.strides == start);
    }
    let index = ((window.image + reader.x) * p.conv.y_size.y + reader.y) * p.conv.channels.y + channel;
    return select(PADDING_INDEX, index, is_start && all(reader < p.conv.y_size));
}

/// Returns the distance of the place that a tap of a column reads from the first place of its window (weight).
fn tap_offset(column: u32) -> vec2<u32> {
    let tap = column / p.conv.group_channels.x;
    return vec2<u32>(tap / p.conv.kernel.y, tap % p.conv.kernel.y) * p.conv.dilation - p.conv.pad;
}

/// Returns the index in x of a channel at the place that a tap reads, or PADDING_INDEX if that is padding (weight):
/// `outer` is image and row of y.
fn read_index(at: Position, offset: vec2<u32>, channel: u32) -> u32 {
    let read = vec2<u32>(at.outer.y, at.inner) * p.conv.strides + offset;
    let index = ((at.outer.x * p.conv.x_size.x + read.x) * p.conv.x_size.y + read.y) * p.conv.channels.x + channel;
    return select(PADDING_INDEX, index, all(read < p.conv.x_size));
}

/// Returns the distance in w of a position from the first element of its column (data).
fn weight_distance(at: Position) -> u32 {
    let tap = at.outer.x * p.conv.kernel.y + at.outer.y;
    return (at.inner * (p.conv.kernel.x * p.conv.kernel.y) + tap) * p.conv.group_channels.x;
}
