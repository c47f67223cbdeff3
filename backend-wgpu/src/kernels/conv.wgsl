// Convolutions and their gradients as products of tiles, whose operands are gathered while they are loaded: no image is
// ever unfolded. Reference: core's `Conv2d`, x [n, h, w, c], w [o, kh, kw, c/groups], y [n, oh, ow, o]; z is the group.
//
// pass    rows                 columns                k
// forward places of y          outputs of the group   taps · inputs of the group
// data    places of x          inputs of the group    taps · outputs of the group
// weight  outputs of the group taps · inputs          places of y

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

/// Image and place of the four rows (forward, data), or tap and channel of the four columns (weight).
var<private> first: vec4<u32>;
var<private> second: vec4<u32>;
var<private> third: vec4<u32>;

fn prepare(z: u32, row: u32, col: u32) {
    for (var j = 0u; j < 4u; j += 1u) {
        if PASS == PASS_WEIGHT {
            // Column = (tap row, tap column, input).
            let tap = (col + j) / p.group_channels.x;
            first[j] = (tap / p.kernel.y) * p.dilation.x;
            second[j] = (tap % p.kernel.y) * p.dilation.y;
            third[j] = z * p.group_channels.x + (col + j) % p.group_channels.x;
        } else {
            let size = select(p.x_size, p.y_size, PASS == PASS_FORWARD);
            let place = (row + j) / size.y;
            first[j] = (place / size.x) * select(p.y_size.x, p.x_size.x, PASS == PASS_FORWARD);
            second[j] = place % size.x;
            third[j] = (row + j) % size.y;
        }
    }
}

/// Returns the index of the element of x at row u of an image, given by its first row in all images, and column v.
fn x_index(image: u32, u: u32, v: u32, channel: u32) -> u32 {
    return ((image + u) * p.x_size.y + v) * p.channels.x + channel;
}

fn load_a_vec4(z: u32, row: u32, k: u32) -> vec4<f32> {
    var four = vec4<f32>();
    if PASS == PASS_FORWARD {
        // k = (tap row, tap column, input).
        let tap = k / p.group_channels.x;
        let channel = z * p.group_channels.x + k % p.group_channels.x;
        let reach = vec2<u32>(tap / p.kernel.y, tap % p.kernel.y) * p.dilation - p.pad;
        for (var j = 0u; j < 4u; j += 1u) {
            let u = second[j] * p.strides.x + reach.x;
            let v = third[j] * p.strides.y + reach.y;
            if row + j < p.output.m && u < p.x_size.x && v < p.x_size.y {
                four[j] = a_at(x_index(first[j], u, v, channel));
            }
        }
    } else if PASS == PASS_DATA {
        // k = (tap row, tap column, output): which window reads this place with this tap?
        let tap = k / p.group_channels.y;
        let channel = z * p.group_channels.y + k % p.group_channels.y;
        let reach = vec2<u32>(tap / p.kernel.y, tap % p.kernel.y) * p.dilation;
        for (var j = 0u; j < 4u; j += 1u) {
            let end = vec2<u32>(second[j], third[j]) + p.pad;
            let start = end - reach;
            let window = start / p.strides;
            let read = all(end >= reach) && all(window * p.strides == start) && all(window < p.y_size);
            if row + j < p.output.m && read {
                four[j] = a_at(((first[j] + window.x) * p.y_size.y + window.y) * p.channels.y + channel);
            }
        }
    } else if row < p.output.m {
        four = a_vec4(k * p.channels.y + z * p.group_channels.y + row, p.output.m - row);
    }
    return four;
}

fn load_b_vec4(z: u32, k: u32, col: u32) -> vec4<f32> {
    var four = vec4<f32>();
    let taps = p.kernel.x * p.kernel.y * p.group_channels.x;
    if PASS == PASS_FORWARD {
        let i = (z * p.group_channels.y + col) * taps + k;
        if col < p.output.n { four.x = b_at(i); }
        if col + 1u < p.output.n { four.y = b_at(i + taps); }
        if col + 2u < p.output.n { four.z = b_at(i + 2u * taps); }
        if col + 3u < p.output.n { four.w = b_at(i + 3u * taps); }
    } else if PASS == PASS_DATA {
        let tap = k / p.group_channels.y;
        if col < p.output.n {
            four = b_vec4((z * p.group_channels.y + k % p.group_channels.y) * taps + tap * p.group_channels.x + col, p.output.n - col);
        }
    } else {
        // k = (image, row, column) of y.
        let place = k / p.y_size.y;
        let image = (place / p.y_size.x) * p.x_size.x;
        let start = vec2<u32>(place % p.y_size.x, k % p.y_size.y) * p.strides - p.pad;
        for (var j = 0u; j < 4u; j += 1u) {
            let u = start.x + first[j];
            let v = start.y + second[j];
            if col + j < p.output.n && u < p.x_size.x && v < p.x_size.y {
                four[j] = b_at(x_index(image, u, v, third[j]));
            }
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
