// Hidden units of an LSTM cell. Reference: core's `Lstm`. A kernel declares `p: Params` with a member `shape: LstmShape`,
// and the operands x, h and c. Needs math.wgsl.

struct LstmShape {
    /// Number of hidden units of all rows, and of a row.
    units: u32,
    hidden: u32,
    /// Step that is read of x, and number of its steps.
    step: u32,
    steps: u32,
}

/// Gates i, f, g, o of a unit, its next state c′, and tanh c′.
struct LstmUnit {
    gates: vec4<f32>,
    c: f32,
    tanh: f32,
}

/// Returns the place of the first gate of a unit in the products with h.
fn gate_of_unit(unit: u32) -> u32 {
    let row = unit / p.shape.hidden;
    return unit + 3u * row * p.shape.hidden;
}

fn lstm_unit(unit: u32) -> LstmUnit {
    let width = p.shape.hidden;
    let row = unit / width;
    let i = gate_of_unit(unit);
    let j = i + (row * (p.shape.steps - 1u) + p.shape.step) * 4u * width;
    let first = sigmoid(x_at(j) + h_at(i));
    let forget = sigmoid(x_at(j + width) + h_at(i + width));
    let candidate = hyperbolic_tangent(x_at(j + 2u * width) + h_at(i + 2u * width));
    let output = sigmoid(x_at(j + 3u * width) + h_at(i + 3u * width));
    let state = forget * c_at(unit) + first * candidate;
    return LstmUnit(vec4<f32>(first, forget, candidate, output), state, hyperbolic_tangent(state));
}
