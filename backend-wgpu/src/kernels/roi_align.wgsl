// Boxes of images, resampled to one size, or the vjp of that. Reference: core's `RoiAlign`. Needs store.wgsl, elementwise.wgsl,
// math.wgsl, roi_boxes.wgsl.

struct Params {
    store: Store,
    /// Height and width of the images; rows and columns of bins.
    x_size: vec2<u32>,
    y_size: vec2<u32>,
    images: u32,
    count: u32,
    channels: u32,
    samples: u32,
    scale: f32,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// 0 the boxes' values, 1 the gradient of the images.
override SCATTER: u32;

/// The ends of a box along an axis (0 rows, 1 columns), in places.
fn ends(box_: u32, axis: u32) -> vec2<f32> {
    return vec2<f32>(load_box_value(box_, 2u - axis), load_box_value(box_, 4u - axis)) * p.scale - 0.5;
}

/// The two places that a point lies between, and the share of the second.
struct Point {
    there: bool,
    low: u32,
    high: u32,
    assign_work: f32,
}

fn point(axis: u32, between: vec2<f32>, bin: u32, sample: u32) -> Point {
    let size = p.x_size[axis];
    let width = divide(between.y - between.x, f32(p.y_size[axis]));
    let at = between.x + f32(bin) * width + divide((f32(sample) + 0.5) * width, f32(p.samples));
    if size == 0u || is_nan(at) || at < -1.0 || at > f32(size) {
        return Point(false, 0u, 0u, 0.0);
    }
    let inside = max(at, 0.0);
    let low = u32(inside);
    if low >= size - 1u {
        return Point(true, size - 1u, size - 1u, 0.0);
    }
    return Point(true, low, low + 1u, inside - f32(low));
}

/// The share of a place in a bin, times the points along the axis.
fn share_of(axis: u32, between: vec2<f32>, bin: u32, place: u32) -> f32 {
    var assign_work = 0.0;
    for (var sample = 0u; sample < p.samples; sample += 1u) {
        let one = point(axis, between, bin, sample);
        if one.there && one.low == place {
            assign_work += 1.0 - one.assign_work;
        }
        if one.there && one.high == place && one.high != one.low {
            assign_work += one.assign_work;
        }
    }
    return assign_work;
}

fn points() -> f32 {
    return f32(p.samples * p.samples);
}

/// x between two columns of a line of an image.
fn along(line: u32, columns: Point, channel: u32) -> f32 {
    let low = x_at((line * p.x_size.y + columns.low) * p.channels + channel);
    let high = x_at((line * p.x_size.y + columns.high) * p.channels + channel);
    return (1.0 - columns.assign_work) * low + columns.assign_work * high;
}

/// Element i of the bins.
fn gathered(i: u32) -> f32 {
    let pixel = i / p.channels;
    let line = pixel / p.y_size.y;
    let box_ = line / p.y_size.x;
    let image = load_image(box_);
    if image.x == 0u {
        return 0.0;
    }
    let first = image.y * p.x_size.x;
    let high = ends(box_, 0u);
    let wide = ends(box_, 1u);
    var sum = 0.0;
    for (var r = 0u; r < p.samples; r += 1u) {
        let rows = point(0u, high, line % p.y_size.x, r);
        if !rows.there {
            continue;
        }
        for (var s = 0u; s < p.samples; s += 1u) {
            let columns = point(1u, wide, pixel % p.y_size.y, s);
            if columns.there {
                let low = along(first + rows.low, columns, i % p.channels);
                let high = along(first + rows.high, columns, i % p.channels);
                sum += (1.0 - rows.assign_work) * low + rows.assign_work * high;
            }
        }
    }
    return divide(sum, points());
}

/// Whether points of a box may lie less than one place from this one.
fn reaches(between: vec2<f32>, place: u32) -> bool {
    return min(between.x, between.y) <= f32(place) + 1.0 && max(between.x, between.y) >= f32(place) - 1.0;
}

/// Element i of the images' gradient: what the bins send there, box by box.
fn scattered(i: u32) -> f32 {
    let pixel = i / p.channels;
    let line = pixel / p.x_size.y;
    let row = line % p.x_size.x;
    let column = pixel % p.x_size.y;
    var sum = 0.0;
    for (var box_ = 0u; box_ < p.count; box_ += 1u) {
        let image = load_image(box_);
        let high = ends(box_, 0u);
        let wide = ends(box_, 1u);
        if image.x == 0u || image.y != line / p.x_size.x || !reaches(high, row) || !reaches(wide, column) {
            continue;
        }
        for (var r = 0u; r < p.y_size.x; r += 1u) {
            let down = share_of(0u, high, r, row);
            if down == 0.0 {
                continue;
            }
            for (var s = 0u; s < p.y_size.y; s += 1u) {
                let right = share_of(1u, wide, s, column);
                if right != 0.0 {
                    sum += down * right * x_at(((box_ * p.y_size.x + r) * p.y_size.y + s) * p.channels + i % p.channels);
                }
            }
        }
    }
    return divide(sum, points());
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
        for (var j = 0u; j < live; j += 1u) {
            if SCATTER != 0u {
                v[j >> 2u][j & 3u] = scattered(8u * o + j);
            } else {
                v[j >> 2u][j & 3u] = gathered(8u * o + j);
            }
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
