// Softmax and weighted cross-entropy: the logarithm of each row's sum of exponentials, and the loss.

struct CrossEntropyParams {
    // Loss, divisor, then a number for each row.
    float* out;
    const void* logits;
    const void* labels;
    // Of the classes, or null.
    const float* weights;
    // Of each block: loss, weights, rows that count.
    double* sums;
    u32 type, label_type;
    u32 rows, classes;
    u32 ignores, ignored;
    // By what the loss is divided, and by what number where it is fixed.
    u32 divide;
    float divisor;
    // Threads for one row: a power of two up to 32.
    u32 lanes;
    u32 blocks;
};

DEVICE u32 label_of(const void* labels, u32 type, u32 row) {
    return type == TYPE_U8 ? ((const u8*)labels)[row] : ((const u32*)labels)[row];
}

template <int N>
DEVICE float log_sum_exp(const CrossEntropyParams& p, u32 first, u32 lane) {
    float most = of_bits(0xFF800000u), sum = 0.0f;
    for (u32 c = N * lane; c < p.classes; c += N * p.lanes) {
        float v[N];
        load_some(p.logits, p.type, first + c, v);
#pragma unroll
        for (int j = 0; j < N; j++) most = v[j] > most ? v[j] : most;
    }
    for (u32 mask = p.lanes / 2; mask != 0; mask /= 2) {
        const float other = shuffle_xor(most, mask);
        most = other > most ? other : most;
    }
    // A NaN, which is no largest, is in the sum; so is ∞ − ∞.
    for (u32 c = N * lane; c < p.classes; c += N * p.lanes) {
        float v[N];
        load_some(p.logits, p.type, first + c, v);
#pragma unroll
        for (int j = 0; j < N; j++) sum += expf(v[j] - most);
    }
    for (u32 mask = p.lanes / 2; mask != 0; mask /= 2) sum += shuffle_xor(sum, mask);
    return most + logf(sum);
}

KERNEL(cross_entropy, CrossEntropyParams) {
    const u32 together = THREADS / p.lanes, lane = thread_index() % p.lanes;
    double sums[3] = {0, 0, 0};
    for (u64 start = (u64)block_x() * together; start < p.rows; start += (u64)blocks_x() * together) {
        const u64 number = start + thread_index() / p.lanes;
        const bool live = number < p.rows;
        // All lanes of a warp take part.
        const u32 row = live ? (u32)number : 0, first = row * p.classes;
        const float lse = p.classes % 8 == 0 ? log_sum_exp<8>(p, first, lane) : log_sum_exp<1>(p, first, lane);
        if (!live || lane != 0) continue;
        p.out[2 + number] = lse;
        const u32 label = label_of(p.labels, p.label_type, row);
        if (p.ignores && label == p.ignored) continue;
        float weight = 1.0f, error = of_bits(0x7FC00000u);
        if (label < p.classes) {
            if (p.weights != 0) weight = p.weights[label];
            error = lse - load(p.logits, p.type, first + label);
        }
        sums[0] += (double)weight * error, sums[1] += weight, sums[2] += 1;
    }
    over_block(sums);
    if (thread_index() != 0) return;
#pragma unroll
    for (u32 i = 0; i < 3; i++) p.sums[3 * block_x() + i] = sums[i];
}

// One block.
KERNEL(cross_entropy_finish, CrossEntropyParams) {
    double sums[3] = {0, 0, 0};
    for (u32 block = thread_index(); block < p.blocks; block += THREADS) {
#pragma unroll
        for (u32 i = 0; i < 3; i++) sums[i] += p.sums[3 * block + i];
    }
    over_block(sums);
    if (thread_index() != 0) return;
    const float divisor = p.divide == DIVIDE_FIXED ? p.divisor : (float)(p.divide == DIVIDE_ROWS ? sums[2] : sums[1]);
    p.out[0] = sums[2] == 0 ? 0.0f : (float)(sums[0] / divisor);
    p.out[1] = divisor;
}

struct CrossEntropyVjpParams {
    Store dx;
    const void* logits;
    const void* labels;
    const float* weights;
    const float* out;
    const float* upstream;
    u32 type, label_type;
    u32 len;
    u32 classes;
    u32 ignores, ignored;
};

struct CrossEntropyGradient {
    const CrossEntropyVjpParams& p;
    // A row as its elements see it.
    struct Row {
        u32 label;
        bool counts;
        float factor, lse;
    };
    DEVICE_MEMBER Row row(u32 number) const {
        Row r;
        r.label = label_of(p.labels, p.label_type, number);
        r.counts = !(p.ignores && r.label == p.ignored);
        r.lse = p.out[2 + number];
        // No class: NaN.
        const float weight = r.label >= p.classes ? of_bits(0x7FC00000u) : p.weights != 0 ? p.weights[r.label] : 1.0f;
        r.factor = *p.upstream * weight / p.out[1];
        return r;
    }
    DEVICE_MEMBER float gradient(const Row& r, u32 c, float v) const {
        return r.counts ? r.factor * (expf(v - r.lse) - (c == r.label ? 1.0f : 0.0f)) : 0.0f;
    }
    DEVICE_MEMBER float one(u32 i) const {
        return gradient(row(i / p.classes), i % p.classes, load(p.logits, p.type, i));
    }
    DEVICE_MEMBER void vec8(u32 i, float (&v)[8]) const {
        load8_once(p.logits, p.type, i, v);
        u32 number = i / p.classes, c = i - number * p.classes;
        Row r = row(number);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            v[j] = gradient(r, c, v[j]);
            if (++c == p.classes && j < 7) {
                c = 0;
                r = row(++number);
            }
        }
    }
};

KERNEL(cross_entropy_vjp, CrossEntropyVjpParams) { dense(p.dx, p.len, CrossEntropyGradient{p}); }
