// Windows of pooling, for pool.wgsl and unpool.wgsl. Reference: core's `Pool`, x [n, h, w, c],
// y [n, oh, ow, c]. Needs store.wgsl, elementwise.wgsl, math.wgsl.

struct Params {
    store: Store,
    /// Height and width of the input images.
    x_size: vec2<u32>,
    y_size: vec2<u32>,
    window: vec2<u32>,
    strides: vec2<u32>,
    pad: vec2<u32>,
    channels: u32,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

/// Kind of pooling: 0 for the maximum, 1 for the mean.
override AVERAGE: u32;
/// 1 if channels come in eights, which share their windows.
override EIGHTS: u32;

/// Returns (image, row, column, channel) of element i of a tensor of this height and width.
fn coordinates(i: u32, size: vec2<u32>) -> vec4<u32> {
    let pixel = i / p.channels;
    let line = pixel / size.y;
    return vec4<u32>(line / size.x, line % size.x, pixel % size.y, i % p.channels);
}

/// Returns the index of the element at coordinates.
fn element_index(at: vec4<u32>, size: vec2<u32>) -> u32 {
    return ((at.x * size.x + at.y) * size.y + at.z) * p.channels + at.w;
}

fn window_area() -> f32 {
    return f32(p.window.x * p.window.y);
}
