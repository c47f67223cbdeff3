// Pixels of the bins of a box, for RoI max pooling. Reference: core's `RoiPool`. Needs math.wgsl, roi_boxes.wgsl.

struct Params {
    store: Store,
    /// Height and width of the images; rows and columns of bins.
    x_size: vec2<u32>,
    y_size: vec2<u32>,
    images: u32,
    count: u32,
    channels: u32,
    scale: f32,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Position of the maximum of an empty bin: core's `RoiPool::NO_POSITION`.
const NO_POSITION: u32 = 0xffffffffu;

/// Returns whether a box has a valid image and corners that are no NaN, and the image.
fn load_pooled_image(box_: u32) -> vec2<u32> {
    var image = load_image(box_);
    for (var i = 1u; i < 5u; i += 1u) {
        if is_nan(load_box_value(box_, i)) {
            image.x = 0u;
        }
    }
    return image;
}

/// Returns the nearest integer, ties away from 0, limited to ±2^20.
fn round_half_away(at: f32) -> i32 {
    let near = clamp(at, -1048576.0, 1048576.0);
    let below = trunc(near);
    return i32(below) + select(0, select(-1, 1, near > 0.0), abs(near - below) >= 0.5);
}

/// Returns the first row (axis 0) or column (1) of a bin, and the one after its last.
fn bin_range(box_: u32, axis: u32, bin: u32) -> vec2<u32> {
    let first = round_half_away(load_box_value(box_, 2u - axis) * p.scale);
    let last = round_half_away(load_box_value(box_, 4u - axis) * p.scale);
    let len = u32(max(last - first, 0) + 1);
    let bins = p.y_size[axis];
    let ends = vec2<i32>(vec2<u32>(bin * len / bins, ((bin + 1u) * len + bins - 1u) / bins)) + first;
    return vec2<u32>(clamp(ends, vec2<i32>(0), vec2<i32>(i32(p.x_size[axis]))));
}
