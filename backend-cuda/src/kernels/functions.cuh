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

// Words of 2/π behind the point, after one word of zeros.
DEVICE u32 two_over_pi(u32 i) {
    switch (i) {
        case 1: return 0xA2F9836Eu;
        case 2: return 0x4E441529u;
        case 3: return 0xFC2757D1u;
        case 4: return 0xF534DDC0u;
        case 5: return 0xDB629599u;
        case 6: return 0x3C439041u;
        case 7: return 0xFE5163ABu;
        default: return 0;
    }
}

// Computes sin(x + quarters·π/2). From π/4 on, x·2/π modulo 4 is computed in integers with 62 bits behind the point
// (Payne and Hanek 1983), so that any x has a result with full precision. Bits of 2/π whose product with x is a multiple of
// 4 are left out. expf and its like inline as much; sinf of the library needs local memory.
DEVICE float sine(float x, u32 quarters) {
    u32 bits = float_as_bits(x), magnitude = bits & 0x7FFFFFFFu;
    if (magnitude >= 0x7F800000u) return x - x;
    float r = bits_as_float(magnitude);
    u32 quadrant = quarters;
    if (magnitude >= 0x3F490FDBu) {
        u64 digits = (magnitude & 0x7FFFFFu) | 0x800000u;
        u32 place = (magnitude >> 23) - 120, word = place >> 5, shift = place & 31;
        u32 turns[3];
#pragma unroll
        for (u32 i = 0; i < 3; i++) {
            turns[i] = (u32)(((u64)two_over_pi(word + i) << 32 | two_over_pi(word + i + 1)) << shift >> 32);
        }
        u64 product = ((digits * turns[0]) << 32) + digits * turns[1] + (digits * turns[2] >> 32);
        quadrant += (u32)((product + (1ull << 61)) >> 62);
        // The rest is at most half a quarter turn in either direction, in units of 2^-64 of it.
        r = (float)(i64)(product << 2) * (5.42101086e-20f * 1.57079633f);
    }
    float z = r * r, y;
    if (quadrant & 1) {
        y = 1.0f - 0.5f * z + z * z * ((2.44957837e-5f * z - 0.00138879009f) * z + 0.0416666585f);
    } else {
        y = r + r * (z * (((2.72499018e-6f * z - 0.000198400866f) * z + 0.00833333187f) * z - 0.166666667f));
    }
    // A sine has the sign of x, a cosine does not depend on it.
    return bits_as_float(float_as_bits(y) ^ (quadrant & 2) << 30 ^ (quarters == 0 ? bits & 0x80000000u : 0));
}

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
        case UNARY_SIN: return sine(x, 0);
        case UNARY_COS: return sine(x, 1);
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
        case UNARY_SIN: return dy * sine(saved, 1);
        case UNARY_COS: return -dy * sine(saved, 0);
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
