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
DEVICE float sum_of_exp(const u16* row, u32 classes, float most) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    u32 c = 0;
#pragma unroll 1
    for (; c + 4 <= classes; c += 4) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) sums[j] += expf(of_half(row[c + j]) - most);
    }
#pragma unroll
    for (u32 j = 0; j < 3; j++) {
        if (c + j < classes) sums[j] += expf(of_half(row[c + j]) - most);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Where a sum of exponentials as they are has room, which few rows lack, none needs the largest: a term that vanishes is
// below the sum's last bit.
DEVICE float log_sum_exp(const u16* row, u32 classes) {
    const float sum = sum_of_exp(row, classes, 0.0f);
    if (sum > 1e-20f && sum < 1e20f) return logf(sum);
    float most = of_bits(0xFF800000u);
#pragma unroll 1
    for (u32 c = 0; c < classes; c++) {
        const float v = of_half(row[c]);
        most = v > most ? v : most;
    }
    // A NaN, which is no largest, is in the sum; so is ∞ − ∞.
    return most + logf(sum_of_exp(row, classes, most));
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

// From the last rows on, which who wrote the logits left in the second cache: the first are in it for the gradient.
KERNEL(cross_entropy, CrossEntropyParams) {
    SHARED Words4 rows[THREADS * FEW_CLASSES / 8];
    const u32 together = THREADS / p.lanes, t = thread_index(), lane = t % p.lanes;
    double sums[3] = {0, 0, 0};
    const u32 tiles = (u32)(((u64)p.rows + together - 1) / together);
    for (u32 tile = block_x(); tile < tiles; tile += blocks_x()) {
        const u64 start = (u64)(tiles - 1 - tile) * together;
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
    // The factor of rows whose weight is one.
    const float plain;
    DEVICE_MEMBER CrossEntropyGradient(const CrossEntropyVjpParams& p) : p(p), plain(*p.upstream / p.out[1]) {}
    DEVICE_MEMBER bool counts(u32 label) const { return !(p.ignores && label == p.ignored); }
    // No class: NaN.
    DEVICE_MEMBER float factor(u32 label) const {
        if (label >= p.classes) return of_bits(0x7FC00000u);
        return p.weights != 0 ? *p.upstream * p.weights[label] / p.out[1] : plain;
    }
    DEVICE_MEMBER float one(u32 i) const {
        const u32 number = i / p.classes, label = label_of(p.labels, p.label_type, number);
        if (!counts(label)) return 0.0f;
        const float score = expf(load(p.logits, p.type, i) - p.out[2 + number]);
        return factor(label) * (score - (i % p.classes == label ? 1.0f : 0.0f));
    }
};

// Halves of eight classes or more: eight neighbours are of two rows at most.
struct CrossEntropyGradientOfTwo : CrossEntropyGradient {
    static const u32 AHEAD = 2;
    struct Operands {
        Read<8, true> logits;
        // Of the first row: its elements, and where its label lies among them.
        u32 split, here;
        u32 label, next_label;
        float lse, next_lse;
    };
    struct Kept {
        DEVICE_MEMBER Kept(const CrossEntropyVjpParams&, u32) {}
    };
    DEVICE_MEMBER CrossEntropyGradientOfTwo(const CrossEntropyVjpParams& p) : CrossEntropyGradient(p) {}
    DEVICE_MEMBER Operands read(u32 i) const {
        const u32 number = i / p.classes, c = i - number * p.classes, split = p.classes - c;
        const u32 next = split < 8 ? number + 1 : number, label = label_of(p.labels, p.label_type, number);
        return Operands{Read<8, true>::of(p.logits, p.type, i), split, label - c, label,
                        label_of(p.labels, p.label_type, next), p.out[2 + number], p.out[2 + next]};
    }
    DEVICE_MEMBER void results(const Operands& read, const Kept&, float (&v)[8]) const {
        const u32 split = read.split, there = read.next_label + split;
        const float first = factor(read.label), second = factor(read.next_label);
        // A bit for each element that is its row's label.
        const u32 hits = (read.here < 8 && read.here < split ? 1u << read.here : 0) | (there < 8 ? 1u << there : 0);
        read.logits.to(v);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            const float score = expf(v[j] - (j < split ? read.lse : read.next_lse));
            v[j] = (j < split ? first : second) * (score - (hits & 1u << j ? 1.0f : 0.0f));
        }
        const bool live = counts(read.label), next_live = counts(read.next_label);
        if (live && next_live) return;
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = (j < split ? live : next_live) ? v[j] : 0.0f;
    }
};

KERNEL(cross_entropy_vjp, CrossEntropyVjpParams) {
    dense(p.dx, p.len, Each<CrossEntropyGradient>{CrossEntropyGradient(p)});
}

KERNEL(cross_entropy_vjp_of_two, CrossEntropyVjpParams) {
    const CrossEntropyGradientOfTwo f(p);
    Epilogue e = begin(p.dx);
    Seen seen = {};
    eights_ahead(p.dx, e, seen, p.len, f);
    const u32 left = p.len / 8 * 8 + thread_index();
    if (block_x() == 0 && left < p.len) put(p.dx, e, seen, left, f.one(left));
    end(p.dx, e, seen);
}
