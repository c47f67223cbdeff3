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

/// Output of the kernel: 0 for the values of the boxes, 1 for the gradient of the images.
override SCATTER: u32;

/// Returns start and end of a box along an axis (0 rows, 1 columns), in pixels.
fn box_range(box_: u32, axis: u32) -> vec2<f32> {
    return vec2<f32>(load_box_value(box_, 2u - axis), load_box_value(box_, 4u - axis)) * p.scale - 0.5;
}

/// Two pixels around a sampling point, and the interpolation weight of the second.
struct SamplePoint {
    is_inside: bool,
    low: u32,
    high: u32,
    high_weight: f32,
}

fn sample_point(axis: u32, range: vec2<f32>, bin: u32, sample: u32) -> SamplePoint {
    let size = p.x_size[axis];
    let width = divide(range.y - range.x, f32(p.y_size[axis]));
    let at = range.x + f32(bin) * width + divide((f32(sample) + 0.5) * width, f32(p.samples));
    if size == 0u || is_nan(at) || at < -1.0 || at > f32(size) {
        return SamplePoint(false, 0u, 0u, 0.0);
    }
    let inside = max(at, 0.0);
    let low = u32(inside);
    if low >= size - 1u {
        return SamplePoint(true, size - 1u, size - 1u, 0.0);
    }
    return SamplePoint(true, low, low + 1u, inside - f32(low));
}

/// Returns the sum over the sampling points of a bin of the interpolation weights of a pixel along an axis.
fn bin_weight(axis: u32, range: vec2<f32>, bin: u32, place: u32) -> f32 {
    var weight = 0.0;
    for (var sample = 0u; sample < p.samples; sample += 1u) {
        let point = sample_point(axis, range, bin, sample);
        if point.is_inside && point.low == place {
            weight += 1.0 - point.high_weight;
        }
        if point.is_inside && point.high == place && point.high != point.low {
            weight += point.high_weight;
        }
    }
    return weight;
}

fn samples_per_bin() -> f32 {
    return f32(p.samples * p.samples);
}

/// Interpolates between two columns of a row of an image.
fn interpolate_columns(line: u32, columns: SamplePoint, channel: u32) -> f32 {
    let low = x_at((line * p.x_size.y + columns.low) * p.channels + channel);
    let high = x_at((line * p.x_size.y + columns.high) * p.channels + channel);
    return (1.0 - columns.high_weight) * low + columns.high_weight * high;
}

/// Returns element i of the `RoIAlign` result: the mean of the samples in its bin.
fn pool_bin(i: u32) -> f32 {
    let pixel = i / p.channels;
    let line = pixel / p.y_size.y;
    let box_ = line / p.y_size.x;
    let image = load_image(box_);
    if image.x == 0u {
        return 0.0;
    }
    let first = image.y * p.x_size.x;
    let y_range = box_range(box_, 0u);
    let x_range = box_range(box_, 1u);
    var sum = 0.0;
    for (var r = 0u; r < p.samples; r += 1u) {
        let rows = sample_point(0u, y_range, line % p.y_size.x, r);
        if !rows.is_inside {
            continue;
        }
        for (var s = 0u; s < p.samples; s += 1u) {
            let columns = sample_point(1u, x_range, pixel % p.y_size.y, s);
            if columns.is_inside {
                let low = interpolate_columns(first + rows.low, columns, i % p.channels);
                let high = interpolate_columns(first + rows.high, columns, i % p.channels);
                sum += (1.0 - rows.high_weight) * low + rows.high_weight * high;
            }
        }
    }
    return divide(sum, samples_per_bin());
}

/// Returns whether sampling points of a box may be less than one pixel from `place`.
fn may_touch(range: vec2<f32>, place: u32) -> bool {
    return min(range.x, range.y) <= f32(place) + 1.0 && max(range.x, range.y) >= f32(place) - 1.0;
}

/// Returns element i of the gradient of the images, added box by box.
fn collect_gradient(i: u32) -> f32 {
    let pixel = i / p.channels;
    let line = pixel / p.x_size.y;
    let row = line % p.x_size.x;
    let column = pixel % p.x_size.y;
    var sum = 0.0;
    for (var box_ = 0u; box_ < p.count; box_ += 1u) {
        let image = load_image(box_);
        let y_range = box_range(box_, 0u);
        let x_range = box_range(box_, 1u);
        if image.x == 0u || image.y != line / p.x_size.x || !may_touch(y_range, row) || !may_touch(x_range, column) {
            continue;
        }
        for (var r = 0u; r < p.y_size.x; r += 1u) {
            let row_weight = bin_weight(0u, y_range, r, row);
            if row_weight == 0.0 {
                continue;
            }
            for (var s = 0u; s < p.y_size.y; s += 1u) {
                let column_weight = bin_weight(1u, x_range, s, column);
                if column_weight != 0.0 {
                    sum += row_weight * column_weight * x_at(((box_ * p.y_size.x + r) * p.y_size.y + s) * p.channels + i % p.channels);
                }
            }
        }
    }
    return divide(sum, samples_per_bin());
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
        for (var j = 0u; j < 8u; j += 1u) {
            var element = 0.0;
            if j < live {
                if SCATTER != 0u {
                    element = collect_gradient(8u * o + j);
                } else {
                    element = pool_bin(8u * o + j);
                }
            }
            v = push_vec8(v, element);
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
