// Boxes of images, as roi_align.wgsl, roi_pool.wgsl and roi_unpool.wgsl see them. Needs math.wgsl.

/// Returns a value of a box: image, left, top, right, bottom.
fn load_box_value(box_: u32, i: u32) -> f32 {
    return bits_as_float(boxes_get(5u * box_ + i));
}

/// Returns whether the box is in an image, and which.
fn load_image(box_: u32) -> vec2<u32> {
    let image = load_box_value(box_, 0u);
    let there = !is_nan(image) && image >= 0.0 && image < f32(p.images);
    return vec2<u32>(u32(there), u32(select(0.0, image, there)));
}
