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
};

struct Element {
    float w, g, states[2];
};

template <u32 rule>
DEVICE void update(const OptimizeParams& p, const Numbers& n, Element& x) {
    if (rule == RULE_EMA) {
        x.w = n.own[0] * x.w + (1.0f - n.own[0]) * x.g;
        return;
    }
    float g = x.g < -p.max_value ? -p.max_value : x.g > p.max_value ? p.max_value : x.g;
    g *= n.coefficient;
    if (rule == RULE_SGD) {
        g += p.decay * x.w;
        x.states[0] = p.momentum * x.states[0] + g;
        x.w -= n.lr * (p.nesterov ? g + p.momentum * x.states[0] : x.states[0]);
    } else {
        if (p.decoupled) {
            x.w -= n.lr * p.decay * x.w;
        } else {
            g += p.decay * x.w;
        }
        x.states[0] = p.beta[0] * x.states[0] + (1.0f - p.beta[0]) * g;
        x.states[1] = p.beta[1] * x.states[1] + (1.0f - p.beta[1]) * g * g;
        x.w -= n.lr * ((x.states[0] / n.own[0]) / (sqrtf(x.states[1] / n.own[1]) + p.eps));
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
    float w[4], g[4], a[4] = {}, b[4] = {};
    load4(to.master, i, w);
    load4(to.grad, i, g);
    if (to.states[0] != 0) load4(to.states[0], i, a);
    if (to.states[1] != 0) load4(to.states[1], i, b);
#pragma unroll
    for (u32 j = 0; j < 4; j++) {
        Element x = {w[j], g[j], {a[j], b[j]}};
        update<rule>(p, n, x);
        w[j] = x.w, a[j] = x.states[0], b[j] = x.states[1];
    }
    store4(to.master, i, w);
    if (to.states[0] != 0) store4(to.states[0], i, a);
    if (to.states[1] != 0) store4(to.states[1], i, b);
    if (to.half != 0) *(Words2*)(to.half + i) = Words2{halves_of(w[0], w[1]), halves_of(w[2], w[3])};
}

template <u32 rule>
DEVICE void update_one(const OptimizeParams& p, const Numbers& n, const Parameter& to, u32 i) {
    Element x = {to.master[i], to.grad[i], {0.0f, 0.0f}};
    if (to.states[0] != 0) x.states[0] = to.states[0][i];
    if (to.states[1] != 0) x.states[1] = to.states[1][i];
    update<rule>(p, n, x);
    to.master[i] = x.w;
    if (to.states[0] != 0) to.states[0][i] = x.states[0];
    if (to.states[1] != 0) to.states[1][i] = x.states[1];
    if (to.half != 0) to.half[i] = half_of(x.w);
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
    Numbers n = {p.hyperparameters[p.lr], norm > p.max_norm ? p.max_norm / norm : 1.0f, {0.0f, 0.0f}};
    for (u32 i = 0; i < 2; i++) n.own[i] = p.hyperparameters[p.correction[i]];
    if (p.rule == RULE_SGD) {
        update_all<RULE_SGD>(p, n);
    } else if (p.rule == RULE_ADAM) {
        update_all<RULE_ADAM>(p, n);
    } else {
        update_all<RULE_EMA>(p, n);
    }
}
