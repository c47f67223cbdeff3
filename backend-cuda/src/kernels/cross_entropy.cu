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
    // Threads for one row: one with few classes (`bring_rows`), else a power of two up to 32.
    u32 lanes;
    u32 blocks;
};

DEVICE u32 label_of(const void* labels, u32 type, u32 row) {
    return type == TYPE_U8 ? ((const u8*)labels)[row] : ((const u32*)labels)[row];
}

// Rows of a few classes, a thread for each: a block's rows of halves lie in shared memory, where they come in whole vectors,
// as they follow each other. Classes of a multiple of eight have no such rows: 32 threads would meet in a few banks.
DEVICE void bring_rows(const CrossEntropyParams& p, u64 first, u32 len, u16* rows) {
    const u16* const from = (const u16*)p.logits + first;
#pragma unroll 1
    for (u32 i = 8 * thread_index(); i < len; i += 8 * THREADS) {
        if (len - i >= 8) {
            *(Words4*)(rows + i) = load_once(from + i);
        } else {
#pragma unroll 1
            for (u32 j = i; j < len; j++) rows[j] = from[j];
        }
    }
}

// Four at a time: sums of a few terms each lose less, and do not wait for each other.
DEVICE float log_sum_exp(const u16* row, u32 classes) {
    float most = of_bits(0xFF800000u), sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
    for (u32 c = 0; c < classes; c++) {
        const float v = of_half(row[c]);
        most = v > most ? v : most;
    }
    // A NaN, which is no largest, is in the sum; so is ∞ − ∞.
#pragma unroll 1
    for (u32 c = 0; c < classes; c += 4) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            if (c + j < classes) sums[j] += expf(of_half(row[c + j]) - most);
        }
    }
    return most + logf((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// The same by `lanes` threads, of a row in memory.
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

// A row's share of the loss; `score` is the logit of a class.
template <class Score>
DEVICE void add_row(const CrossEntropyParams& p, u64 number, float lse, const Score& score, double (&sums)[3]) {
    p.out[2 + number] = lse;
    const u32 label = label_of(p.labels, p.label_type, (u32)number);
    if (p.ignores && label == p.ignored) return;
    float weight = 1.0f, error = of_bits(0x7FC00000u);
    if (label < p.classes) {
        if (p.weights != 0) weight = p.weights[label];
        error = lse - score(label);
    }
    sums[0] += (double)weight * error, sums[1] += weight, sums[2] += 1;
}

KERNEL(cross_entropy, CrossEntropyParams) {
    SHARED Words4 rows[THREADS * FEW_CLASSES / 8];
    const u32 together = THREADS / p.lanes, t = thread_index(), lane = t % p.lanes;
    double sums[3] = {0, 0, 0};
    for (u64 start = (u64)block_x() * together; start < p.rows; start += (u64)blocks_x() * together) {
        const u64 number = start + t / p.lanes;
        const bool live = number < p.rows;
        if (p.lanes == 1) {
            const u64 rest = p.rows - start;
            bring_rows(p, start * p.classes, (u32)(rest < THREADS ? rest : THREADS) * p.classes, (u16*)rows);
            barrier();
            const u16* const row = (u16*)rows + t * p.classes;
            if (live) add_row(p, number, log_sum_exp(row, p.classes), [&](u32 c) { return of_half(row[c]); }, sums);
            barrier();
            continue;
        }
        // All lanes of a warp take part.
        const u32 first = (live ? (u32)number : 0) * p.classes;
        const float lse = p.classes % 8 == 0 ? log_sum_exp<8>(p, first, lane) : log_sum_exp<1>(p, first, lane);
        if (live && lane == 0) add_row(p, number, lse, [&](u32 c) { return load(p.logits, p.type, first + c); }, sums);
    }
    over_block(sums);
    if (t != 0) return;
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
        if (p.classes >= 8) {
            // Elements of two rows at most, both of which are asked for before any is used.
            const Row after = row(c + 7 < p.classes ? number : number + 1);
#pragma unroll
            for (u32 j = 0; j < 8; j++, c++) {
                if (c == p.classes) r = after, c = 0;
                v[j] = gradient(r, c, v[j]);
            }
            return;
        }
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
