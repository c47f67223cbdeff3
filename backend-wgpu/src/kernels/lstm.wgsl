// One step of an LSTM cell: stores h′ = o · tanh c′, and writes c′ = f · c + i · g. Needs lstm_unit.wgsl.

struct Params {
    store: Store,
    /// Types of x, h and c.
    types: vec4<u32>,
    shape: CellShape,
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
    let len = p.shape.units;
    for (var o = number_of_group * GROUP + lane; o < vec8_count(len); o += groups.x * groups.y * GROUP) {
        let live = elements_in_vec8(o, len);
        var v = array<vec4<f32>, 2>();
        for (var j = 0u; j < 8u; j += 1u) {
            var result = 0.0;
            if j < live {
                let unit = lstm_unit(8u * o + j);
                state_set(8u * o + j, unit.c);
                result = unit.gates.w * unit.tanh;
            }
            v = push_vec8(v, result);
        }
        store_vec8(e, o, v[0], v[1], live);
    }
    end_store(lane, number_of_group);
}
