// Gradient of a step of an LSTM cell, in f32: of the sums before the functions of the gates, and of c. The sums are stored
// by another kernel. Needs lstm_unit.wgsl and exponents.wgsl.

struct Params {
    /// Types of x, h, c and dh.
    types: vec4<u32>,
    shape: CellShape,
    /// Slots of the exponents of dc and of dh, and 1 if there is dc.
    state_slot: u32,
    slot: u32,
    has_state: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let step = exponent_step(exponent(p.state_slot), exponent(p.slot));
    let first = group_number(group, groups) * GROUP + lane;
    for (var unit = first; unit < p.shape.units; unit += groups.x * groups.y * GROUP) {
        let u = lstm_unit(unit);
        let dh = dh_at(unit);
        var of_state = dh * u.gates.w * (1.0 - u.tanh * u.tanh);
        if p.has_state != 0u {
            of_state += bits_as_float(scaled_bits(bitcast<u32>(dc_at(unit)), step));
        }
        let slopes = u.gates * (vec4<f32>(1.0) - u.gates);
        let width = p.shape.hidden;
        let i = gate_of_unit(unit);
        sums_set(i, of_state * u.gates.z * slopes.x);
        sums_set(i + width, of_state * c_at(unit) * slopes.y);
        sums_set(i + 2u * width, of_state * u.gates.x * (1.0 - u.gates.z * u.gates.z));
        sums_set(i + 3u * width, dh * u.tanh * slopes.w);
        state_set(unit, of_state * u.gates.y);
    }
}
