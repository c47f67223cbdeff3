// dx = factor · (softmax − one-hot); 0 in rows that do not count, NaN for a label beyond the classes. Reference: core's
// `CrossEntropy`.

struct Params {
    store: Store,
    label_params: LabelParams,
    /// First row of this launch, a multiple of 8, and its number of elements.
    start: u32,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
/// Log-sum-exp and factor of each row of this launch.
@group(0) @binding(8) var<storage, read> row_factors: array<vec2<f32>>;

/// Returns the gradient of an element of a row of this launch, whose logit is v.
fn gradient(row: u32, column: u32, v: f32) -> f32 {
    let label = labels_raw(p.start + row);
    if is_ignored(label) {
        return 0.0;
    }
    if label >= p.label_params.classes {
        return bits_as_float(F32_NAN);
    }
    let n = row_factors[row];
    return n.y * (exponential(v - n.x) - select(0.0, 1.0, label == column));
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
    let first = p.start / 8u * p.label_params.classes;
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += groups.x * groups.y * GROUP) {
        let live = elements_in_vec8(o, p.len);
        var v = x_vec8(first + o);
        var row = 8u * o / p.label_params.classes;
        var column = 8u * o - row * p.label_params.classes;
        for (var j = 0u; j < 8u; j += 1u) {
            var element = 0.0;
            if j < live {
                element = gradient(row, column, v[0].x);
            }
            v = push_vec8(v, element);
            column += 1u;
            if column == p.label_params.classes {
                column = 0u;
                row += 1u;
            }
        }
        store_vec8(e, first + o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
