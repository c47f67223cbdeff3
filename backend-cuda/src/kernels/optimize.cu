// Updates of all parameters of a group: clip, decay, update (`core::descriptor::Step`), under the guard.

struct Parameter {
    float* master;
    const float* grad;
    float* states[2];
    u16* half;
    u32 len;
    u32 first;
};

struct OptimizeParams {
    // Rows of the guard.
    const u32* rows;
    const float* hyperparameters;
    // Of all gradients; null where nothing is clipped by it.
    const float* norm;
    u32 guard, pieces;
    u32 count;
    u32 rule;
    // Hyperparameters: learning rate, and the rule's.
    u32 lr, correction[2];
    u32 nesterov, decoupled;
    float momentum, beta[2], eps;
    float decay;
    // ∞ where there is no limit.
    float max_value, max_norm;
    Parameter parameters[LIST_TENSORS];
};

// The numbers of one step.
struct Numbers {
    float lr, coefficient, own[2];
    // Of Adam: 1 / own, and whether `quotient` may use it.
    float inverse[2];
    bool invertible;
};

// a / b by the nearest 1 / b, with the bits of a division: the remainder of a quotient that is an ulp off at most has no
// rounding, and what it adds leads to the nearest one (Markstein, "Computation of elementary functions on the IBM RISC
// System/6000 processor", 1990). So where nothing leaves the normal numbers: b from 2^-24 to 1, a as `all_ordinary` says.
DEVICE float quotient(float a, float b, float inverse) {
    const float first = a * inverse, second = fma_near(fma_near(-b, first, a), inverse, first);
    return fma_near(fma_near(-b, second, a), inverse, second);
}
#define ORDINARY_START ((127u - 100) << 23)
#define ORDINARY_END ((127u + 60) << 23)

// How far magnitudes are from the least ordinary one at most, modulo 2^32: those below it are farthest.
template <u32 N>
DEVICE u32 farthest(const float (&x)[N]) {
    u32 most = 0;
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        const u32 distance = (bits_of(x[j]) & 0x7FFFFFFFu) - ORDINARY_START;
        most = distance > most ? distance : most;
    }
    return most;
}
template <u32 N>
DEVICE bool all_ordinary(const float (&a)[N], const float (&b)[N]) {
    const u32 one = farthest(a), other = farthest(b);
    return (one > other ? one : other) < ORDINARY_END - ORDINARY_START;
}

// Some elements side by side. What is asked is asked once for all of them.
template <u32 N>
struct Elements {
    float w[N], g[N], states[2][N];
};

template <u32 N>
DEVICE void clip(const OptimizeParams& p, const Numbers& n, Elements<N>& x) {
    if (p.max_value < of_bits(0x7F800000u)) {
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            x.g[j] = x.g[j] < -p.max_value ? -p.max_value : x.g[j] > p.max_value ? p.max_value : x.g[j];
        }
    }
#pragma unroll
    for (u32 j = 0; j < N; j++) x.g[j] *= n.coefficient;
}

template <u32 N>
DEVICE void update_sgd(const OptimizeParams& p, const Numbers& n, Elements<N>& x) {
    clip(p, n, x);
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        const float g = x.g[j] + p.decay * x.w[j];
        x.states[0][j] = p.momentum * x.states[0][j] + g;
        x.w[j] -= n.lr * (p.nesterov ? g + p.momentum * x.states[0][j] : x.states[0][j]);
    }
}

template <u32 N>
DEVICE void update_adam(const OptimizeParams& p, const Numbers& n, Elements<N>& x) {
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
    if (n.invertible && all_ordinary(x.states[0], x.states[1])) {
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            means[j] = quotient(x.states[0][j], n.own[0], n.inverse[0]);
            squares[j] = quotient(x.states[1][j], n.own[1], n.inverse[1]);
        }
    } else {
#pragma unroll
        for (u32 j = 0; j < N; j++) means[j] = x.states[0][j] / n.own[0], squares[j] = x.states[1][j] / n.own[1];
    }
#pragma unroll
    for (u32 j = 0; j < N; j++) x.w[j] -= n.lr * (means[j] / (sqrtf(squares[j]) + p.eps));
}

template <u32 rule, u32 N>
DEVICE void update(const OptimizeParams& p, const Numbers& n, Elements<N>& x) {
    if (rule == RULE_SGD) {
        update_sgd(p, n, x);
    } else if (rule == RULE_ADAM) {
        update_adam(p, n, x);
    } else {
#pragma unroll
        for (u32 j = 0; j < N; j++) x.w[j] = n.own[0] * x.w[j] + (1.0f - n.own[0]) * x.g[j];
    }
}

DEVICE void load4(const float* x, u32 i, float (&v)[4]) {
    const Words4 words = *(const Words4*)(x + i);
    v[0] = of_bits(words.x), v[1] = of_bits(words.y), v[2] = of_bits(words.z), v[3] = of_bits(words.w);
}

DEVICE void store4(float* x, u32 i, const float (&v)[4]) {
    *(Words4*)(x + i) = Words4{bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3])};
}

template <u32 rule>
DEVICE void update_four(const OptimizeParams& p, const Numbers& n, const Parameter& to, u32 i) {
    Elements<4> x = {};
    load4(to.master, i, x.w);
    load4(to.grad, i, x.g);
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (to.states[s] != 0) load4(to.states[s], i, x.states[s]);
    }
    update<rule>(p, n, x);
    store4(to.master, i, x.w);
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (to.states[s] != 0) store4(to.states[s], i, x.states[s]);
    }
    if (to.half != 0) *(Words2*)(to.half + i) = Words2{halves_of(x.w[0], x.w[1]), halves_of(x.w[2], x.w[3])};
}

template <u32 rule>
DEVICE void update_one(const OptimizeParams& p, const Numbers& n, const Parameter& to, u32 i) {
    Elements<1> x = {};
    x.w[0] = to.master[i], x.g[0] = to.grad[i];
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (to.states[s] != 0) x.states[s][0] = to.states[s][i];
    }
    update<rule>(p, n, x);
    to.master[i] = x.w[0];
#pragma unroll
    for (u32 s = 0; s < 2; s++) {
        if (to.states[s] != 0) to.states[s][i] = x.states[s][0];
    }
    if (to.half != 0) to.half[i] = half_of(x.w[0]);
}

template <u32 rule>
DEVICE void update_all(const OptimizeParams& p, const Numbers& n) {
    const u32 t = thread_index();
    for (u32 piece = block_x(); piece < p.pieces; piece += blocks_x()) {
        const Parameter& to = p.parameters[tensor_of(p.parameters, p.count, piece)];
        const u32 start = (piece - to.first) * LIST_PIECE;
        const u32 end = to.len - start < LIST_PIECE ? to.len : start + LIST_PIECE, whole = end / 4 * 4;
        for (u32 i = start + 4 * t; i < whole; i += 4 * THREADS) update_four<rule>(p, n, to, i);
        if (whole + t < end) update_one<rule>(p, n, to, whole + t);
    }
}

KERNEL(optimize, OptimizeParams) {
    SHARED u32 bad;
    if (thread_index() == 0) bad = 0;
    barrier();
    for (u32 row = thread_index(); row < p.guard; row += THREADS) {
        // Infinite and NaN, two words each.
        const u32* counts = p.rows + (u64)row * ROW_WORDS + 4;
        if ((counts[0] | counts[1] | counts[2] | counts[3]) != 0) atomic_max(&bad, 1u);
    }
    barrier();
    if (bad != 0) return;
    const float norm = p.norm == 0 ? 0.0f : *p.norm;
    Numbers n = {p.hyperparameters[p.lr], norm > p.max_norm ? p.max_norm / norm : 1.0f, {}, {}, true};
    for (u32 i = 0; i < 2; i++) {
        n.own[i] = p.hyperparameters[p.correction[i]];
        n.inverse[i] = 1.0f / n.own[i];
        n.invertible = n.invertible && n.own[i] >= 0x1p-24f && n.own[i] <= 1.0f;
    }
    if (p.rule == RULE_SGD) {
        update_all<RULE_SGD>(p, n);
    } else if (p.rule == RULE_ADAM) {
        update_all<RULE_ADAM>(p, n);
    } else {
        update_all<RULE_EMA>(p, n);
    }
}
