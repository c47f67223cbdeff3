// Maximum of each bin of boxes of images, and its position. Reference: core's `RoiPool`. Needs store.wgsl,
// elementwise.wgsl, math.wgsl, roi_boxes.wgsl, roi_bins.wgsl.

struct Maximum {
    value: f32,
    position: u32,
}

/// Returns element i of the `RoI` pooling result: the maximum of its bin, and its position.
fn pool_bin(i: u32) -> Maximum {
    let pixel = i / p.channels;
    let line = pixel / p.y_size.y;
    let box_ = line / p.y_size.x;
    let image = load_pooled_image(box_);
    var best = Maximum(0.0, NO_POSITION);
    if image.x == 0u {
        return best;
    }
    let rows = bin_range(box_, 0u, line % p.y_size.x);
    let columns = bin_range(box_, 1u, pixel % p.y_size.y);
    for (var u = rows.x; u < rows.y; u += 1u) {
        for (var w = columns.x; w < columns.y; w += 1u) {
            let position = u * p.x_size.y + w;
            let v = x_at((image.y * p.x_size.x * p.x_size.y + position) * p.channels + i % p.channels);
            if best.position == NO_POSITION || (!is_nan(best.value)
                && (is_nan(v) || order(bitcast<u32>(v)) > order(bitcast<u32>(best.value)))) {
                best = Maximum(v, position);
            }
        }
    }
    return best;
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
                let best = pool_bin(8u * o + j);
                element = best.value;
                positions_set(8u * o + j, best.position);
            }
            v = push_vec8(v, element);
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
