// y[i] = f(x[i]). Reference: core's `Unary`.

struct Params {
    store: Store,
    function: Function,
    len: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let number_of_group = group_number(group, groups);
    begin_store(lane);
    let e = epilogue();
    let key = seed();
    for (var o = number_of_group * GROUP + lane; o < vec8_count(p.len); o += groups.x * groups.y * GROUP) {
        let y = apply_vec8(p.function, x_vec8(o), array<vec4<f32>, 2>(), key, 8u * o);
        store_vec8(e, o, y[0], y[1], elements_in_vec8(o, p.len));
    }
    end_store(lane, number_of_group);
}
