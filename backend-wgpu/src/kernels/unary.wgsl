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
        let x = x_vec8(o);
        let i = 8u * o;
        let f = p.function;
        let lo = vec4<f32>(
            evaluate(f, x[0].x, key, i),
            evaluate(f, x[0].y, key, i + 1u),
            evaluate(f, x[0].z, key, i + 2u),
            evaluate(f, x[0].w, key, i + 3u),
        );
        let hi = vec4<f32>(
            evaluate(f, x[1].x, key, i + 4u),
            evaluate(f, x[1].y, key, i + 5u),
            evaluate(f, x[1].z, key, i + 6u),
            evaluate(f, x[1].w, key, i + 7u),
        );
        store_vec8(e, o, lo, hi, elements_in_vec8(o, p.len));
    }
    end_store(lane, number_of_group);
}
