// Gradient of RoI max pooling: each bin adds to the position of its maximum. Reference: core's `RoiPool`. Needs store.wgsl,
// elementwise.wgsl, math.wgsl, roi_boxes.wgsl, roi_bins.wgsl.

/// Returns element i of the gradient of the images, added box by box.
fn collect_gradient(i: u32) -> f32 {
    let pixel = i / p.channels;
    let line = pixel / p.x_size.y;
    let row = line % p.x_size.x;
    let column = pixel % p.x_size.y;
    var sum = 0.0;
    for (var box_ = 0u; box_ < p.count; box_ += 1u) {
        let image = load_pooled_image(box_);
        if image.x == 0u || image.y != line / p.x_size.x {
            continue;
        }
        for (var r = 0u; r < p.y_size.x; r += 1u) {
            let rows = bin_range(box_, 0u, r);
            if row < rows.x || row >= rows.y {
                continue;
            }
            for (var s = 0u; s < p.y_size.y; s += 1u) {
                let columns = bin_range(box_, 1u, s);
                if column < columns.x || column >= columns.y {
                    continue;
                }
                let bin = ((box_ * p.y_size.x + r) * p.y_size.y + s) * p.channels + i % p.channels;
                if positions_get(bin) == row * p.x_size.y + column {
                    sum += x_at(bin);
                }
            }
        }
    }
    return sum;
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
                element = collect_gradient(8u * o + j);
            }
            v = push_vec8(v, element);
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
