// Softmax and weighted cross-entropy: log-sum-exp of each row, the loss, and the gradient of the logits.

struct CrossEntropyParams {
    // Loss, divisor, then the log-sum-exp of each row.
    float* out;
    const void* logits;
    const void* labels;
    // Weights of the classes, or null without weights.
    const float* weights;
    // Partial sums of each block: loss, sum of weights, number of counted rows.
    double* sums;
    u32 type, label_type;
    u32 rows, classes;
    u32 has_ignored_label, ignored_label;
    // Kind of the loss divisor, and its value if it is fixed.
    u32 divisor_kind;
    float divisor;
    // Threads for one row: one with few classes (`stage_rows`), otherwise a power of two up to 32.
    u32 lanes;
    u32 blocks;
};

DEVICE u32 load_label(const void* labels, u32 type, u32 row) {
    return type == TYPE_U8 ? ((const u8*)labels)[row] : ((const u32*)labels)[row];
}

// Copies the f16 rows of a block to shared memory in whole vectors. Used for few classes, with a thread for each row. Not for
// a multiple of eight classes, because 32 threads would then access few banks.
DEVICE void stage_rows(const CrossEntropyParams& p, u64 first, u32 len, u16* rows) {
    const u16* const from = (const u16*)p.logits + first;
#pragma unroll 1
    for (u32 i = 8 * thread_index(); i < len; i += 8 * THREADS) {
        if (len - i >= 8) {
            *(Words4*)(rows + i) = load_streaming(from + i);
        } else {
#pragma unroll 1
            for (u32 j = i; j < len; j++) rows[j] = from[j];
        }
    }
}

// Returns Σ exp(x − max_logit) by four partial sums, which lose less and do not wait for each other.
DEVICE float sum_of_exp(const u16* row, u32 classes, float max_logit) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    u32 c = 0;
#pragma unroll 1
    for (; c + 4 <= classes; c += 4) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) sums[j] += expf(half_to_float(row[c + j]) - max_logit);
    }
#pragma unroll
    for (u32 j = 0; j < 3; j++) {
        if (c + j < classes) sums[j] += expf(half_to_float(row[c + j]) - max_logit);
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Returns log Σ exp(x). Nearly all rows have sums of plain exponentials within the range of f32, so the maximum is not
// needed: a term that underflows is below the last bit of the sum.
DEVICE float log_sum_exp(const u16* row, u32 classes) {
    const float sum = sum_of_exp(row, classes, 0.0f);
    if (sum > 1e-20f && sum < 1e20f) return logf(sum);
    float max_logit = bits_as_float(0xFF800000u);
#pragma unroll 1
    for (u32 c = 0; c < classes; c++) {
        const float v = half_to_float(row[c]);
        max_logit = v > max_logit ? v : max_logit;
    }
    // A NaN is never the maximum, but it is in the sum; so is ∞ − ∞.
    return max_logit + logf(sum_of_exp(row, classes, max_logit));
}

// Returns log Σ exp(x) of a row in global memory, by `lanes` threads.
template <int N>
DEVICE float log_sum_exp(const CrossEntropyParams& p, u32 first, u32 lane) {
    float max_logit = bits_as_float(0xFF800000u), sum = 0.0f;
    for (u32 c = N * lane; c < p.classes; c += N * p.lanes) {
        float v[N];
        load_vec(p.logits, p.type, first + c, v);
#pragma unroll
        for (int j = 0; j < N; j++) max_logit = v[j] > max_logit ? v[j] : max_logit;
    }
    for (u32 mask = p.lanes / 2; mask != 0; mask /= 2) {
        const float other = shuffle_xor(max_logit, mask);
        max_logit = other > max_logit ? other : max_logit;
    }
    // A NaN is never the maximum, but it is in the sum; so is ∞ − ∞.
    for (u32 c = N * lane; c < p.classes; c += N * p.lanes) {
        float v[N];
        load_vec(p.logits, p.type, first + c, v);
#pragma unroll
        for (int j = 0; j < N; j++) sum += expf(v[j] - max_logit);
    }
    for (u32 mask = p.lanes / 2; mask != 0; mask /= 2) sum += shuffle_xor(sum, mask);
    return max_logit + logf(sum);
}

// Adds the contribution of a row to the loss. `score` returns the logit of a class.
template <class Score>
DEVICE void add_row(const CrossEntropyParams& p, u64 number, float lse, const Score& score, double (&sums)[3]) {
    p.out[2 + number] = lse;
    const u32 label = load_label(p.labels, p.label_type, (u32)number);
    if (p.has_ignored_label && label == p.ignored_label) return;
    float weight = 1.0f, error = bits_as_float(0x7FC00000u);
    if (label < p.classes) {
        if (p.weights != 0) weight = p.weights[label];
        error = lse - score(label);
    }
    sums[0] += (double)weight * error, sums[1] += weight, sums[2] += 1;
}

// Starts with the last rows, because their logits are still in L2. The first rows are then in L2 for the gradient.
KERNEL(cross_entropy, CrossEntropyParams) {
    SHARED Words4 rows[THREADS * MAX_CLASSES_PER_THREAD / 8];
    const u32 rows_per_block = THREADS / p.lanes, t = thread_index(), lane = t % p.lanes;
    double sums[3] = {0, 0, 0};
    const u32 tiles = (u32)(((u64)p.rows + rows_per_block - 1) / rows_per_block);
    for (u32 tile = block_x(); tile < tiles; tile += blocks_x()) {
        const u64 start = (u64)(tiles - 1 - tile) * rows_per_block;
        const u64 number = start + t / p.lanes;
        const bool is_live = number < p.rows;
        if (p.lanes == 1) {
            const u64 rest = p.rows - start;
            stage_rows(p, start * p.classes, (u32)(rest < THREADS ? rest : THREADS) * p.classes, (u16*)rows);
            barrier();
            const u16* const row = (u16*)rows + t * p.classes;
            if (is_live) add_row(p, number, log_sum_exp(row, p.classes), [&](u32 c) { return half_to_float(row[c]); }, sums);
            barrier();
            continue;
        }
        // All lanes of a warp must take part in shuffles.
        const u32 first = (is_live ? (u32)number : 0) * p.classes;
        const float lse = p.classes % 8 == 0 ? log_sum_exp<8>(p, first, lane) : log_sum_exp<1>(p, first, lane);
        if (is_live && lane == 0) add_row(p, number, lse, [&](u32 c) { return load(p.logits, p.type, first + c); }, sums);
    }
    block_reduce(sums);
    if (t != 0) return;
#pragma unroll
    for (u32 i = 0; i < 3; i++) p.sums[3 * block_x() + i] = sums[i];
}

// Loads of eight logits that a thread has under way in a long row.
const u32 LOADS_OF_LONG_ROW = 4;

// Loads eight logits from `i` on, a multiple of eight. Those outside of the row, from `first` to `end`, become −∞.
DEVICE void load_part_of_row(const CrossEntropyParams& p, u32 i, u32 first, u32 end, float (&x)[8]) {
    if (i >= first && i + 8 <= end) {
        load_vec8_streaming(p.logits, p.type, i, x);
        return;
    }
#pragma unroll
    for (u32 j = 0; j < 8; j++) x[j] = i + j >= first && i + j < end ? load(p.logits, p.type, i + j) : bits_as_float(0xFF800000u);
}

// Returns log Σ exp(x) of the row from `first` on, by all threads of a block. It reads the row once: if a larger logit
// comes, the sum so far is divided by the exponential of the difference. Rows of odd lengths begin inside of eight logits.
DEVICE float log_sum_exp_of_block(const CrossEntropyParams& p, u32 first) {
    const float least = bits_as_float(0xFF800000u);
    const u32 end = first + p.classes, span = 8 * THREADS;
    float max_logit = least, sum = 0.0f;
    for (u32 start = first / 8 * 8 + 8 * thread_index(); start < end; start += LOADS_OF_LONG_ROW * span) {
        float x[LOADS_OF_LONG_ROW][8];
        float larger = max_logit;
#pragma unroll
        for (u32 k = 0; k < LOADS_OF_LONG_ROW; k++) load_part_of_row(p, start + k * span, first, end, x[k]);
#pragma unroll
        for (u32 k = 0; k < LOADS_OF_LONG_ROW; k++) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) larger = Larger()(larger, x[k][j]);
        }
        // Without a logit above −∞, exponentials are 0, or NaN for NaN.
        const float base = larger == least ? 0.0f : larger;
        if (max_logit != least) sum *= expf(max_logit - base);
#pragma unroll
        for (u32 k = 0; k < LOADS_OF_LONG_ROW; k++) {
            float part = 0.0f;
#pragma unroll
            for (u32 j = 0; j < 8; j++) part += expf(x[k][j] - base);
            sum += part;
        }
        max_logit = larger;
    }
    const float max_of_row = reduce_lanes(max_logit, THREADS, Larger());
    if (max_logit != least) sum *= expf(max_logit - max_of_row);
    sum = reduce_lanes(sum, THREADS, Plus());
    // The logarithm of nothing but −∞ is NaN, as ∞ − ∞ makes it in a row that has +∞.
    return max_of_row == least ? bits_as_float(0x7FC00000u) : max_of_row + logf(sum);
}

// Starts with the last rows, as the kernel for short ones.
KERNEL(cross_entropy_long_rows, CrossEntropyParams) {
    double sums[3] = {0, 0, 0};
    for (u32 i = block_x(); i < p.rows; i += blocks_x()) {
        const u32 number = p.rows - 1 - i, first = number * p.classes;
        const float lse = log_sum_exp_of_block(p, first);
        if (thread_index() == 0) add_row(p, number, lse, [&](u32 c) { return load(p.logits, p.type, first + c); }, sums);
    }
    if (thread_index() != 0) return;
#pragma unroll
    for (u32 i = 0; i < 3; i++) p.sums[3 * block_x() + i] = sums[i];
}

// Adds the sums of all blocks and divides. One block.
KERNEL(cross_entropy_finish, CrossEntropyParams) {
    double sums[3] = {0, 0, 0};
    for (u32 block = thread_index(); block < p.blocks; block += THREADS) {
#pragma unroll
        for (u32 i = 0; i < 3; i++) sums[i] += p.sums[3 * block + i];
    }
    block_reduce(sums);
    if (thread_index() != 0) return;
    const float divisor = p.divisor_kind == DIVIDE_FIXED ? p.divisor : (float)(p.divisor_kind == DIVIDE_ROWS ? sums[2] : sums[1]);
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
    u32 has_ignored_label, ignored_label;
};

struct CrossEntropyGradient {
    const CrossEntropyVjpParams& p;
    // Factor of the gradient of rows whose label has weight one.
    const float unit_weight_factor;
    DEVICE_MEMBER CrossEntropyGradient(const CrossEntropyVjpParams& p) : p(p), unit_weight_factor(*p.upstream / p.out[1]) {}
    DEVICE_MEMBER bool is_counted(u32 label) const { return !(p.has_ignored_label && label == p.ignored_label); }
    // NaN for a label that is no class.
    DEVICE_MEMBER float factor(u32 label) const {
        if (label >= p.classes) return bits_as_float(0x7FC00000u);
        return p.weights != 0 ? *p.upstream * p.weights[label] / p.out[1] : unit_weight_factor;
    }
    DEVICE_MEMBER float compute_scalar(u32 i) const {
        const u32 number = i / p.classes, label = load_label(p.labels, p.label_type, number);
        if (!is_counted(label)) return 0.0f;
        const float score = expf(load(p.logits, p.type, i) - p.out[2 + number]);
        return factor(label) * (score - (i % p.classes == label ? 1.0f : 0.0f));
    }
};

// Gradient of f16 logits of at least eight classes, where eight neighbours belong to at most two rows.
struct CrossEntropyGradientTwoRows : CrossEntropyGradient {
    static const u32 LOADS_IN_FLIGHT = 2;
    struct Operands {
        Fragment<8, true> logits;
        // Number of elements of the first row, and index of its label among them.
        u32 split, label_index;
        u32 label, next_label;
        float lse, next_lse;
    };
    struct ThreadParams {
        DEVICE_MEMBER ThreadParams(const CrossEntropyVjpParams&, u32) {}
    };
    DEVICE_MEMBER CrossEntropyGradientTwoRows(const CrossEntropyVjpParams& p) : CrossEntropyGradient(p) {}
    DEVICE_MEMBER Operands load_operands(u32 i) const {
        const u32 number = i / p.classes, c = i - number * p.classes, split = p.classes - c;
        const u32 next = split < 8 ? number + 1 : number, label = load_label(p.labels, p.label_type, number);
        return Operands{Fragment<8, true>::load(p.logits, p.type, i), split, label - c, label,
                        load_label(p.labels, p.label_type, next), p.out[2 + number], p.out[2 + next]};
    }
    DEVICE_MEMBER void compute_results(const Operands& read, const ThreadParams&, float (&v)[8]) const {
        // Labels that are no class may be as large as u32 is, and a sum with them would wrap.
        const u32 split = read.split, next_label_index = read.next_label < 8 ? read.next_label + split : 8;
        const float first = factor(read.label), second = factor(read.next_label);
        // One bit for each element that is the label of its row.
        const u32 label_bits = (read.label_index < 8 && read.label_index < split ? 1u << read.label_index : 0) | (next_label_index < 8 ? 1u << next_label_index : 0);
        read.logits.unpack_into(v);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            const float score = expf(v[j] - (j < split ? read.lse : read.next_lse));
            v[j] = (j < split ? first : second) * (score - (label_bits & 1u << j ? 1.0f : 0.0f));
        }
        const bool is_live = is_counted(read.label), next_is_live = is_counted(read.next_label);
        if (is_live && next_is_live) return;
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = (j < split ? is_live : next_is_live) ? v[j] : 0.0f;
    }
};

KERNEL(cross_entropy_vjp, CrossEntropyVjpParams) {
    store_elementwise(p.dx, p.len, ScalarOnly<CrossEntropyGradient>{CrossEntropyGradient(p)});
}

KERNEL(cross_entropy_vjp_two_rows, CrossEntropyVjpParams) {
    const CrossEntropyGradientTwoRows f(p);
    Epilogue e = begin_epilogue(p.dx);
    StatsAccumulator stats = {};
    store_elementwise_pipelined(p.dx, e, stats, p.len, f);
    const u32 last_index = p.len / 8 * 8 + thread_index();
    if (block_x() == 0 && last_index < p.len) store_scalar(p.dx, e, stats, last_index, f.compute_scalar(last_index));
    end_epilogue(p.dx, e, stats);
}
