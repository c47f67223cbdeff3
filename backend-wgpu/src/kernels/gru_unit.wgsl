// Hidden units of a GRU cell. Reference: core's `Gru`. A kernel has the operands x, h and old, the hidden state. Needs
// math.wgsl and cell.wgsl.

const GATES = 3u;

/// Gates r, z, n of a unit, the third product with the hidden state, and that state.
struct GruUnit {
    gates: vec3<f32>,
    product: f32,
    old: f32,
}

fn gru_unit(unit: u32) -> GruUnit {
    let width = p.shape.hidden;
    let i = gate_of_unit(unit);
    let j = gate_of_step(unit);
    let reset = sigmoid(x_at(j) + h_at(i));
    let update = sigmoid(x_at(j + width) + h_at(i + width));
    let product = h_at(i + 2u * width);
    let candidate = hyperbolic_tangent(x_at(j + 2u * width) + reset * product);
    return GruUnit(vec3<f32>(reset, update, candidate), product, old_at(unit));
}
