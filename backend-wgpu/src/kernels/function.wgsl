// core's `Unary::eval` and `Unary::vjp`. Needs math.wgsl.

/// Elementwise function with its parameters; `threshold` is dropout's share to keep, in units of 2^-24.
struct Function {
    a: f32,
    b: f32,
    stream: u32,
    threshold: u32,
}

/// Number of the elementwise function that the kernel applies.
override OP: u32;

fn evaluate(f: Function, x: f32, seed: vec2<u32>, index: u32) -> f32 {
    let bits = bitcast<u32>(x);
    switch OP {
        case UNARY_NEG: { return bits_as_float(bits ^ ~F32_MAGNITUDE); }
        case UNARY_ABS: { return bits_as_float(bits & F32_MAGNITUDE); }
        // Negative values become 0, −0 too; a NaN stays.
        case UNARY_RELU: { return bits_as_float(select(bits, 0u, bits > F32_MAGNITUDE && !is_nan(x))); }
        case UNARY_LEAKY_RELU: { return select(f.a * x, x, bits - 1u < F32_INFINITY); }
        case UNARY_TANH: { return hyperbolic_tangent(x); }
        case UNARY_SIGMOID: { return sigmoid(x); }
        case UNARY_GELU: { return x * normal_cdf(x); }
        case UNARY_SILU: { return x * sigmoid(x); }
        case UNARY_ERF: { return error_function(x); }
        case UNARY_SIN: { return sine(x, 0u); }
        case UNARY_COS: { return sine(x, 1u); }
        case UNARY_EXP: { return exponential(x); }
        case UNARY_LN: { return natural_logarithm(x); }
        case UNARY_SQRT: { return square_root(x); }
        case UNARY_RECIP: { return divide(1.0, x); }
        case UNARY_POW: { return power(x, f.a); }
        case UNARY_AFFINE: { return f.a * x + f.b; }
        // Computed by bits, because the device may read subnormals as 0.
        case UNARY_SIGN: {
            let magnitude = bits & F32_MAGNITUDE;
            return bits_as_float(select(bits, 0x3f800000u | (bits & ~F32_MAGNITUDE), magnitude - 1u < F32_INFINITY));
        }
        case UNARY_HARDSWISH: {
            // Clamped, so that no compiler multiplies the sum out: x / 6 + 1/2 would lose all digits near −3. A NaN is
            // detected by bits, because compilers may assume that comparisons have no NaN.
            let gate = clamp(x + 3.0, 0.0, 6.0) * 0.166666667;
            return select(select(select(x * gate, x, x >= 3.0), 0.0, x <= -3.0), x, is_nan(x));
        }
        case UNARY_DROPOUT: {
            if (hash(seed, f.stream, index) >> 8u) < f.threshold {
                return divide(x, f.a);
            }
            return 0.0;
        }
        default: { return x; }
    }
}

/// Computes the function's derivative times `dy`. Masks select by bits, also where the device reads subnormals as 0.
fn derivative(f: Function, saved: f32, dy: f32, seed: vec2<u32>, index: u32) -> f32 {
    let sign = ~F32_MAGNITUDE;
    let bits = bitcast<u32>(saved);
    let gradient = bitcast<u32>(dy);
    let positive = bits - 1u < F32_INFINITY;
    let negative = (bits & sign) != 0u && (bits ^ sign) - 1u < F32_INFINITY;
    switch OP {
        case UNARY_NEG: { return bits_as_float(gradient ^ sign); }
        case UNARY_ABS: { return bits_as_float(select(0u, gradient ^ select(0u, sign, negative), positive || negative)); }
        case UNARY_RELU: { return bits_as_float(select(0u, gradient, positive)); }
        case UNARY_LEAKY_RELU: { return select(f.a * dy, dy, positive); }
        case UNARY_TANH: { return dy * (1.0 - saved * saved); }
        case UNARY_SIGMOID: { return dy * (saved * (1.0 - saved)); }
        case UNARY_GELU: { return dy * (normal_cdf(saved) + saved * (0.398942280 * exponential(-0.5 * saved * saved))); }
        case UNARY_SILU: {
            let s = sigmoid(saved);
            return dy * (s * (1.0 + saved * (1.0 - s)));
        }
        case UNARY_ERF: { return dy * (1.12837917 * exponential(-saved * saved)); }
        case UNARY_SIN: { return dy * sine(saved, 1u); }
        case UNARY_COS: { return -dy * sine(saved, 0u); }
        case UNARY_EXP: { return dy * saved; }
        case UNARY_LN: { return divide(dy, saved); }
        case UNARY_SQRT: { return dy * divide(0.5, saved); }
        case UNARY_RECIP: { return -dy * saved * saved; }
        case UNARY_POW: { return dy * (f.a * power(saved, f.a - 1.0)); }
        case UNARY_AFFINE: { return dy * f.a; }
        case UNARY_SIGN: { return 0.0; }
        case UNARY_HARDSWISH: {
            let inside = select(select(dy * (saved * 0.333333333 + 0.5), dy, saved > 3.0), 0.0, saved < -3.0);
            return select(inside, saved, is_nan(saved));
        }
        case UNARY_DROPOUT: { return evaluate(f, dy, seed, index); }
        default: { return dy; }
    }
}
