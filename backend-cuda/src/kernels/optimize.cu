// Optimizer step of all parameters of a group: clip, decay, update (`core::ops::Optimizer`), skipped if its guard blocks it
// (`core::backend::UpdateGuard`).

struct Parameter {
    float* master;
    const float* grad;
    float* states[2];
    u16* half;
    u32 len;
    u32 first_chunk;
};

struct OptimizeParams {
    // Statistics rows of gradients and of activations, and below their numbers: a step is skipped if one of the former has
    // counted an infinity or a NaN, or one of the latter an overflow.
    const u32 *gradient_rows, *activation_rows;
    const float* hyperparameters;
    // Norm of all gradients, or null if it is not needed.
    const float* norm;
    u32 gradient_row_count, activation_row_count;
    u32 chunks;
    u32 count;
    u32 rule;
    // Indices of hyperparameters: learning rate and bias corrections.
    u32 lr, correction[2];
    u32 nesterov, decoupled;
    float momentum, beta[2], eps;
    float decay;
    // Limits of clipping by value and by global norm; infinity without a limit.
    float max_value, max_norm;
    u32 unused;
    Parameter parameters[MAX_TENSORS_PER_LAUNCH];
};

// Scalars of one optimizer step.
struct StepScalars {
    float lr, clip_factor, bias_correction[2];
    // Reciprocals of Adam's bias corrections, and whether `div_by_reciprocal` may use them.
    float inv_bias_correction[2];
    bool has_reciprocals;
};

// Returns a / b from the nearest 1 / b, with the bits of a division. The remainder of a quotient that is wrong by one ulp at
// most is exact, and adding its share rounds to the nearest quotient (Markstein, "Computation of elementary functions on the
// IBM RISC System/6000 processor", 1990). Holds while all intermediate values are normal: b from 2^-24 to 1, and a as
// `in_fast_division_range` tests. 1.1 · 10⁹ quotients were compared.
DEVICE float div_by_reciprocal(float a, float b, float reciprocal) {
    const float first = a * reciprocal, second = fma_rn(fma_rn(-b, first, a), reciprocal, first);
    return fma_rn(fma_rn(-b, second, a), reciprocal, second);
}
// Bits of 2^-100 and 2^60, between which dividends are safe.
#define FAST_DIVISION_MIN_BITS ((127u - 100) << 23)
#define FAST_DIVISION_END_BITS ((127u + 60) << 23)

// Returns the maximum distance of magnitudes from the minimum dividend, as bits modulo 2^32. Smaller magnitudes wrap to the
// largest distances.
template <u32 N>
DEVICE u32 max_exponent_distance(const float (&x)[N]) {
    u32 max_distance = 0;
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        const u32 distance = (float_as_bits(x[j]) & 0x7FFFFFFFu) - FAST_DIVISION_MIN_BITS;
        max_distance = distance > max_distance ? distance : max_distance;
    }
    return max_distance;
}
// Returns whether `div_by_reciprocal` may divide all values.
template <u32 N>
DEVICE bool in_fast_division_range(const float (&a)[N], const float (&b)[N]) {
    const u32 a_distance = max_exponent_distance(a), b_distance = max_exponent_distance(b);
    return (a_distance > b_distance ? a_distance : b_distance) < FAST_DIVISION_END_BITS - FAST_DIVISION_MIN_BITS;
}

// Neighbouring elements of a parameter. Tests are made once for all of them.
template <u32 N>
struct Fragment {
    float w[N], g[N], states[2][N];
};

template <u32 N>
DEVICE void clip(const OptimizeParams& p, const StepScalars& n, Fragment<N>& x) {
    if (p.max_value < bits_as_float(0x7F800000u)) {
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            x.g[j] = x.g[j] < -p.max_value ? -p.max_value : x.g[j] > p.max_value ? p.max_value : x.g[j];
        }
    }
#pragma unroll
    for (u32 j = 0; j < N; j++) x.g[j] *= n.clip_factor;
}

template <u32 N>
DEVICE void update_sgd(const OptimizeParams& p, const StepScalars& n, Fragment<N>& x) {
    clip(p, n, x);
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        const float g = x.g[j] + p.decay * x.w[j];
        x.states[0][j] = p.momentum * x.states[0][j] + g;
        x.w[j] -= n.lr * (p.nesterov ? g + p.momentum * x.states[0][j] : x.states[0][j]);
    }
}

template <u32 N>
DEVICE void update_adam(const OptimizeParams& p, const StepScalars& n, Fragment<N>& x) {
    clip(p, n, x);
    if (p.decoupled) {
#pragma unroll
        for (u32 j = 0; j < N; j++) x.w[j] -= n.lr * p.decay * x.w[j];
    } else {
#pragma unroll
        for (u32 j = 0; j < N; j++) x.g[j] += p.decay * x.w[j];
    }
    float means[N], squares[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        x.states[0][j] = p.beta[0] * x.states[0][j] + (1.0f - p.beta[0]) * x.g[j];
        x.states[1][j] = p.beta[1] * x.states[1][j] + (1.0f - p.beta[1]) * x.g[j] * x.g[j];
    }
    if (n.has_reciprocals && in_fast_division_range(x.states[0], x.states[1])) {
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            means[j] = div_by_reciprocal(x.states[0][j], n.bias_correction[0], n.inv_bias_correction[0]);
            squares[j] = div_by_reciprocal(x.states[1][j], n.bias_correction[1], n.inv_bias_correction[1]);
        }
    } else {
#pragma unroll
        for (u32 j = 0; j < N; j++) means[j] = x.states[0][j] / n.bias_correction[0], squares[j] = x.states[1][j] / n.bias_correction[1];
    }
#pragma unroll
    for (u32 j = 0; j < N; j++) x.w[j] -= n.lr * (means[j] / (sqrtf(squares[j]) + p.eps));
}

template <u32 RULE, u32 N>
DEVICE void update(const OptimizeParams& p, const StepScalars& n, Fragment<N>& x) {
    if (RULE == RULE_SGD) {
        update_sgd(p, n, x);
    } else if (RULE == RULE_ADAM) {
        update_adam(p, n, x);
    } else {
#pragma unroll
        for (u32 j = 0; j < N; j++) x.w[j] = n.bias_correction[0] * x.w[j] + (1.0f - n.bias_correction[0]) * x.g[j];
    }
}

DEVICE void load_vec4(const float* x, u32 i, float (&v)[4]) {
    const Words4 words = *(const Words4*)(x + i);
    v[0] = bits_as_float(words.x), v[1] = bits_as_float(words.y), v[2] = bits_as_float(words.z), v[3] = bits_as_float(words.w);
}

DEVICE void store_vec4(float* x, u32 i, const float (&v)[4]) {
    *(Words4*)(x + i) = Words4{float_as_bits(v[0]), float_as_bits(v[1]), float_as_bits(v[2]), float_as_bits(v[3])};
}

template <u32 RULE>
DEVICE void update_vec4(const OptimizeParams& p, const StepScalars& n, const Parameter& param, u32 i) {
    Fragment<4> x = {};
    load_vec4(param.master, i, x.w);
    load_vec4(param.grad, i, x.g);
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (param.states[s] != 0) load_vec4(param.states[s], i, x.states[s]);
    }
    update<RULE>(p, n, x);
    store_vec4(param.master, i, x.w);
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (param.states[s] != 0) store_vec4(param.states[s], i, x.states[s]);
    }
    if (param.half != 0) *(Words2*)(param.half + i) = Words2{floats_to_half2(x.w[0], x.w[1]), floats_to_half2(x.w[2], x.w[3])};
}

template <u32 RULE>
DEVICE void update_scalar(const OptimizeParams& p, const StepScalars& n, const Parameter& param, u32 i) {
    Fragment<1> x = {};
    x.w[0] = param.master[i], x.g[0] = param.grad[i];
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (param.states[s] != 0) x.states[s][0] = param.states[s][i];
    }
    update<RULE>(p, n, x);
    param.master[i] = x.w[0];
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (param.states[s] != 0) param.states[s][i] = x.states[s][0];
    }
    if (param.half != 0) param.half[i] = float_to_half(x.w[0]);
}

template <u32 RULE>
DEVICE void update_tensors(const OptimizeParams& p, const StepScalars& n) {
    const u32 t = thread_index();
    for (u32 chunk = block_x(); chunk < p.chunks; chunk += blocks_x()) {
        const Parameter& param = p.parameters[find_tensor(p.parameters, p.count, chunk)];
        const u32 start = (chunk - param.first_chunk) * CHUNK_ELEMENTS;
        const u32 end = param.len - start < CHUNK_ELEMENTS ? param.len : start + CHUNK_ELEMENTS, vec4_end = end / 4 * 4;
        for (u32 i = start + 4 * t; i < vec4_end; i += 4 * THREADS) update_vec4<RULE>(p, n, param, i);
        if (vec4_end + t < end) update_scalar<RULE>(p, n, param, vec4_end + t);
    }
}

KERNEL(optimize, OptimizeParams) {
    SHARED u32 is_blocked;
    if (thread_index() == 0) is_blocked = 0;
    barrier();
    for (u32 row = thread_index(); row < p.gradient_row_count; row += THREADS) {
        // Counters of infinities and NaNs, two words each.
        const u32* counts = p.gradient_rows + (u64)row * ROW_WORDS + ROW_INFINITE;
        if ((counts[0] | counts[1] | counts[2] | counts[3]) != 0) atomic_max(&is_blocked, 1u);
    }
    for (u32 row = thread_index(); row < p.activation_row_count; row += THREADS) {
        const u32* count = p.activation_rows + (u64)row * ROW_WORDS + ROW_OVERFLOWED;
        if ((count[0] | count[1]) != 0) atomic_max(&is_blocked, 1u);
    }
    barrier();
    if (is_blocked != 0) return;
    const float norm = p.norm == 0 ? 0.0f : *p.norm;
    StepScalars n = {p.hyperparameters[p.lr], norm > p.max_norm ? p.max_norm / norm : 1.0f, {}, {}, true};
    for (u32 i = 0; i < 2; i++) {
        n.bias_correction[i] = p.hyperparameters[p.correction[i]];
        n.inv_bias_correction[i] = 1.0f / n.bias_correction[i];
        n.has_reciprocals = n.has_reciprocals && n.bias_correction[i] >= 0x1p-24f && n.bias_correction[i] <= 1.0f;
    }
    if (p.rule == RULE_SGD) {
        update_tensors<RULE_SGD>(p, n);
    } else if (p.rule == RULE_ADAM) {
        update_tensors<RULE_ADAM>(p, n);
    } else {
        update_tensors<RULE_EMA>(p, n);
    }
}
