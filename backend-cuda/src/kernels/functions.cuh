// Element-wise unary functions, their derivatives, and counter-based random numbers (`core::ops::Unary`).

struct Function {
    u32 code;
    float a, b;
    // Dropout: number of its random stream, and the kept share in units of 2^-24.
    u32 stream, threshold;
    u32 unused;
};

DEVICE u32 mix_bits(u32 x) {
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

DEVICE bool dropout_keeps(const Function& f, const u32* control, u32 i) {
    u32 x = mix_bits(mix_bits(control[CONTROL_SEED] ^ 0x9E3779B9u) ^ control[CONTROL_SEED + 1]);
    return mix_bits(mix_bits(x ^ f.stream) ^ i) >> 8 < f.threshold;
}

// Computes the sigmoid with the exponential that does not overflow.
DEVICE float sigmoid(float x) {
    float e = expf(x < 0.0f ? x : -x);
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// Computes the normal distribution function by erfc, so that the lower tail keeps its precision.
DEVICE float normal_cdf(float x) { return 0.5f * erfcf(-x * 0.707106781186548f); }

DEVICE float evaluate(const Function& f, float x, const u32* control, u32 i) {
    switch (f.code) {
        case UNARY_NEG: return -x;
        case UNARY_ABS: return fabsf(x);
        case UNARY_RELU: return x <= 0.0f ? 0.0f : x;
        case UNARY_LEAKY_RELU: return x > 0.0f ? x : f.a * x;
        case UNARY_TANH: return tanhf(x);
        case UNARY_SIGMOID: return sigmoid(x);
        case UNARY_GELU: return x * normal_cdf(x);
        case UNARY_SILU: return x * sigmoid(x);
        case UNARY_ERF: return erff(x);
        case UNARY_EXP: return expf(x);
        case UNARY_LN: return logf(x);
        case UNARY_SQRT: return sqrtf(x);
        case UNARY_RECIP: return 1.0f / x;
        case UNARY_POW: return powf(x, f.a);
        case UNARY_AFFINE: return f.a * x + f.b;
        case UNARY_SIGN: return x == 0.0f || x != x ? x : copysignf(1.0f, x);
        case UNARY_HARDSWISH: return x <= -3.0f ? 0.0f : x >= 3.0f ? x : x * ((x + 3.0f) * 0.166666667f);
        case UNARY_DROPOUT: return dropout_keeps(f, control, i) ? x / f.a : 0.0f;
        default: return x;
    }
}

// Returns the derivative times dy. Masks select instead of multiplying, so that 0 · ∞ does not occur.
DEVICE float derive(const Function& f, float saved, float dy, const u32* control, u32 i) {
    switch (f.code) {
        case UNARY_NEG: return -dy;
        case UNARY_ABS: return saved > 0.0f ? dy : saved < 0.0f ? -dy : 0.0f;
        case UNARY_RELU: return saved > 0.0f ? dy : 0.0f;
        case UNARY_LEAKY_RELU: return saved > 0.0f ? dy : f.a * dy;
        case UNARY_TANH: return dy * (1.0f - saved * saved);
        case UNARY_SIGMOID: return dy * (saved * (1.0f - saved));
        case UNARY_GELU: return dy * (normal_cdf(saved) + saved * (0.398942280401433f * expf(-0.5f * saved * saved)));
        case UNARY_SILU: {
            float s = sigmoid(saved);
            return dy * (s * (1.0f + saved * (1.0f - s)));
        }
        case UNARY_ERF: return dy * (1.12837916709551f * expf(-saved * saved));
        case UNARY_EXP: return dy * saved;
        case UNARY_LN: return dy / saved;
        case UNARY_SQRT: return dy * (0.5f / saved);
        case UNARY_RECIP: return -dy * saved * saved;
        case UNARY_POW: return dy * (f.a * powf(saved, f.a - 1.0f));
        case UNARY_AFFINE: return dy * f.a;
        case UNARY_SIGN: return 0.0f;
        case UNARY_HARDSWISH: return saved < -3.0f ? 0.0f : saved > 3.0f ? dy : dy * (saved * 0.333333333f + 0.5f);
        case UNARY_DROPOUT: return evaluate(f, dy, control, i);
        default: return dy;
    }
}
