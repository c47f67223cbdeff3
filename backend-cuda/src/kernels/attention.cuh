// Operands of attention, and the columns that its rows read (`core::ops::Attention`).

#define LOG2_E 1.44269504f

struct Attention {
    const void* q;
    const void* k;
    const void* v;
    // Lengths of the sequences, or null.
    const void* lengths;
    u32 q_type, k_type, v_type, lengths_type;
    // Number of matrices, and of those of a sequence, which are its heads.
    u32 batch, heads;
    u32 queries, keys, depth, width;
    // Columns that a row reads: one of SOFTMAX_*.
    u32 reads;
    u32 unused;
};

struct AttentionParams {
    Store y;
    Attention x;
    // Output: logarithm of the sum of exponentials of each row.
    float* log_sums;
};

struct AttentionVjpParams {
    Store dq;
    // Sites of the gradients of weights and of scores, without a destination.
    Store dp, ds;
    Store dk, dv;
    Attention x;
    // Result of the attention, and its gradient.
    const void* y;
    const void* dy;
    const float* log_sums;
    // Σ dy · y of each row, at the exponent of dp. One kernel writes them for the other.
    float* deltas;
    u32 y_type, dy_type;
};

// Returns the number of columns that the last row of a matrix can read.
DEVICE u32 columns_of_matrix(const Attention& p, u32 z) {
    if (p.reads != SOFTMAX_WITHIN) return p.keys;
    const u32 sequence = z / p.heads;
    const u32 length = p.lengths_type == TYPE_U8 ? ((const u8*)p.lengths)[sequence] : ((const u32*)p.lengths)[sequence];
    return length < p.keys ? length : p.keys;
}

// Returns the number of columns that a row of a matrix reads, of the columns of its matrix.
DEVICE u32 columns_of_row(const Attention& p, u32 columns, u32 row) {
    return p.reads == SOFTMAX_CAUSAL && row < columns ? row + 1 : columns;
}

// Returns e^(score − from).
DEVICE float weight_of(float score, float from) { return exp2_approx((score - from) * LOG2_E); }

// A running maximum of scores, and the sum of weights relative to it.
struct RowSum {
    float max, sum;
    // Returns the number from which weights are computed: the maximum, if there is one.
    DEVICE_MEMBER float base() const { return max == bits_as_float(0xFF800000u) ? 0.0f : max; }
    // Raises the maximum, except to NaN, and returns the factor for sums of weights that are relative to the former one.
    DEVICE_MEMBER float raise(float score) {
        const float former = max;
        max = fmaxf(max, score);
        const float factor = weight_of(former, base());
        sum *= factor;
        return factor;
    }
    // Returns the factor of the weighted sum of a row that reads `columns` columns: 0 without columns, and NaN if all scores
    // are −∞.
    DEVICE_MEMBER float inverse(u32 columns) const {
        if (columns == 0) return 0.0f;
        return max == bits_as_float(0xFF800000u) ? bits_as_float(0x7FC00000u) : 1.0f / sum;
    }
    DEVICE_MEMBER float log_sum(u32 columns) const {
        if (columns == 0) return bits_as_float(0xFF800000u);
        return max == bits_as_float(0xFF800000u) ? bits_as_float(0x7FC00000u) : max + logf(sum);
    }
};

// Rounds to halves.
template <int N>
DEVICE void round_to_halves(float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = half_to_float(float_to_half(v[i]));
}

// Replaces gradients of N weights by those of their scores, at the exponents of both sites. Those of weights are rounded to
// halves, those of scores are to be rounded by the caller. Of a pair that is not visible, the gradient and the weight are 0.
template <int N, class ObserveDp, class ObserveDs>
DEVICE void differentiate_scores(const Factor& dp, const Factor& ds, const float (&weights)[N], const float (&deltas)[N], float (&v)[N],
                                 const ObserveDp& observe_dp, const ObserveDs& observe_ds) {
    apply_factor(dp, v);
    observe_dp(v);
    round_to_halves(v);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = weights[i] == 0.0f ? 0.0f : weights[i] * (v[i] - deltas[i]);
    apply_factor(ds, v);
    observe_ds(v);
}

// Starts to observe values that stay on the chip, in a row of their own, as `begin_epilogue` does. All threads of a block call it.
DEVICE Epilogue begin_observation(const Store& s, Row& row) {
    Epilogue e;
    e.factor = scale_factor(s.exponents[s.from], s.exponents[s.to]);
    const u32 step = s.control[CONTROL_DETAIL];
    e.detail = s.detail < step ? s.detail : step;
    e.row = &row;
    for (u32 i = thread_index(); i < ROW_BINS; i += THREADS) row.bins[i] = 0;
    if (thread_index() < 8) row.counts[thread_index()] = 0;
    barrier();
    return e;
}
