// Hidden units of an LSTM cell. Reference: core's `Lstm`. A kernel has the operands x, h and c. Needs math.wgsl and
// cell.wgsl.

const GATES = 4u;

/// Gates i, f, g, o of a unit, its next state c′, and tanh c′.
struct LstmUnit {
    gates: vec4<f32>,
    c: f32,
    tanh: f32,
}

fn lstm_unit(unit: u32) -> LstmUnit {
    let width = p.shape.hidden;
    let i = gate_of_unit(unit);
    let j = gate_of_step(unit);
    let first = sigmoid(x_at(j) + h_at(i));
    let forget = sigmoid(x_at(j + width) + h_at(i + width));
    let candidate = hyperbolic_tangent(x_at(j + 2u * width) + h_at(i + 2u * width));
    let output = sigmoid(x_at(j + 3u * width) + h_at(i + 3u * width));
    let state = forget * c_at(unit) + first * candidate;
    return LstmUnit(vec4<f32>(first, forget, candidate, output), state, hyperbolic_tangent(state));
}
