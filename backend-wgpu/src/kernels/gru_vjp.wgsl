// Gradient of a step of a GRU cell, in f32: of the products with the hidden state, with the inputs, and of the hidden state
// that the update gate keeps. The first are stored by another kernel. Needs gru_unit.wgsl and exponents.wgsl.

struct Params {
    /// Types of x, h, old and dh.
    types: vec4<u32>,
    shape: CellShape,
    /// Slots of the exponents of dh and of dx.
    slot: u32,
    inputs_slot: u32,
}

@group(0) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let step = exponent_step(exponent(p.slot), exponent(p.inputs_slot));
    let first = group_number(group, groups) * GROUP + lane;
    for (var unit = first; unit < p.shape.units; unit += groups.x * groups.y * GROUP) {
        let u = gru_unit(unit);
        let dh = dh_at(unit);
        let of_candidate = dh * (1.0 - u.gates.y) * (1.0 - u.gates.z * u.gates.z);
        let of_reset = of_candidate * u.product * (u.gates.x * (1.0 - u.gates.x));
        let of_update = dh * (u.old - u.gates.z) * (u.gates.y * (1.0 - u.gates.y));
        let width = p.shape.hidden;
        let i = gate_of_unit(unit);
        sums_set(i, of_reset);
        sums_set(i + width, of_update);
        sums_set(i + 2u * width, of_candidate * u.gates.x);
        let j = gate_of_step(unit);
        dx_set(j, at_exponent_of_inputs(of_reset, step));
        dx_set(j + width, at_exponent_of_inputs(of_update, step));
        dx_set(j + 2u * width, at_exponent_of_inputs(of_candidate, step));
        state_set(unit, dh * u.gates.y);
    }
}

fn at_exponent_of_inputs(value: f32, step: i32) -> f32 {
    return bits_as_float(scaled_bits(bitcast<u32>(value), step));
}
