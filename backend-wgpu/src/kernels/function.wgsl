// Parameters of the functions in functions/. Each file there has core's `Unary::eval` as `evaluate` and `Unary::vjp` as
// `derivative`, or core's `BinaryOp::eval` as `apply`. A pipeline's text has one of them. Needs math.wgsl.

/// Elementwise function with its parameters; `threshold` is dropout's share to keep, in units of 2^-24.
struct Function {
    a: f32,
    b: f32,
    stream: u32,
    threshold: u32,
}

/// Returns whether f32 bits are those of a positive number or of ∞, but not of a NaN. By bits, because the device may read
/// subnormals as 0.
fn is_positive(bits: u32) -> bool {
    return bits - 1u < F32_INFINITY;
}
