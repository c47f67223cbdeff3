// Epilogue of every operator: scale, add, observe, round once, write (`core::backend::Store`).
//
// Counters, amax and histogram are integers, so blocks add theirs to the statistics row in any order. Sums are f64 for each
// thread, then for each block. The last block adds the sums of all blocks in their order.

struct Store {
    void* y;
    const int* exponents;
    // Control words of the step, indexed by CONTROL_*.
    const u32* control;
    u32* rows;
    // Four sums for each block, and the number of finished blocks.
    double* sums;
    u32* done;
    u32 type;
    u32 add;
    u32 detail;
    u32 from;
    u32 to;
    u32 unused;
};

// Blocks of a launch that store results: how many, and the number of this one among them.
struct StoringBlocks {
    u32 total, number;
};
DEVICE StoringBlocks all_blocks() {
    return StoringBlocks{blocks_x() * blocks_y() * blocks_z(), (block_z() * blocks_y() + block_y()) * blocks_x() + block_x()};
}

// Loads of elements of any type as f32.

DEVICE float load(const void* x, u32 type, u64 i) {
    if (type == TYPE_F16) return half_to_float(((const u16*)x)[i]);
    if (type == TYPE_F32) return ((const float*)x)[i];
    if (type == TYPE_U8) return (float)((const u8*)x)[i];
    return (float)((const u32*)x)[i];
}

DEVICE void unpack(const Words4& words, float (&v)[8]) {
    v[0] = half_to_float((u16)words.x), v[1] = half_to_float((u16)(words.x >> 16));
    v[2] = half_to_float((u16)words.y), v[3] = half_to_float((u16)(words.y >> 16));
    v[4] = half_to_float((u16)words.z), v[5] = half_to_float((u16)(words.z >> 16));
    v[6] = half_to_float((u16)words.w), v[7] = half_to_float((u16)(words.w >> 16));
}

// Loads eight elements from `i` on, a multiple of eight.
DEVICE void load_vec8(const void* x, u32 type, u64 i, float (&v)[8]) {
    if (type == TYPE_F16) {
        unpack(*(const Words4*)((const u16*)x + i), v);
    } else if (type == TYPE_F32) {
        const Words4 low = *(const Words4*)((const float*)x + i), high = *(const Words4*)((const float*)x + i + 4);
        v[0] = bits_as_float(low.x), v[1] = bits_as_float(low.y), v[2] = bits_as_float(low.z), v[3] = bits_as_float(low.w);
        v[4] = bits_as_float(high.x), v[5] = bits_as_float(high.y), v[6] = bits_as_float(high.z), v[7] = bits_as_float(high.w);
    } else {
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = load(x, type, i + j);
    }
}

// Loads eight elements that are not read again soon, f16 without a copy in L1. Of f32 a warp reads each line by two loads,
// so the second one needs L1.
DEVICE void load_vec8_streaming(const void* x, u32 type, u64 i, float (&v)[8]) {
    if (type == TYPE_F16) {
        unpack(load_streaming((const u16*)x + i), v);
    } else {
        load_vec8(x, type, i, v);
    }
}

// 2^k as a product of up to three normal numbers (`core::scale::Factor`).
struct Factor {
    float parts[3];
    // True if the first part is the whole factor.
    bool is_single;
};

DEVICE float power_of_two(int k) { return bits_as_float((u32)(k + 127) << 23); }

DEVICE Factor scale_factor(int from, int to) {
    i64 distance = (i64)to - (i64)from;
    int k = distance > MAX_STEP ? MAX_STEP : distance < -MAX_STEP ? -MAX_STEP : (int)distance;
    int size = k < 0 ? -k : k;
    int n = size <= 126 ? 1 : size <= 252 ? 2 : 3;
    int first = k / n, second = n > 1 ? (k - first) / (n - 1) : 0;
    return Factor{{power_of_two(first), power_of_two(second), power_of_two(k - first - second)}, n == 1};
}

template <u32 N>
DEVICE void apply_factor(const Factor& f, float (&v)[N]) {
#pragma unroll
    for (u32 j = 0; j < N; j++) v[j] *= f.parts[0];
    // One test for all values, because nearly every factor has one part.
    if (f.is_single) return;
#pragma unroll
    for (u32 j = 0; j < N; j++) v[j] = v[j] * f.parts[1] * f.parts[2];
}

// Statistics of the values that one thread has stored.
struct StatsAccumulator {
    u32 count, zeros, below_flush, below_normal, overflowing, infinite, nan, amax;
    double sum, square, log, log_square;
};

// Statistics of a block, with the sums of each of its warps.
struct Row {
    u32 counts[8];
    u32 bins[ROW_BINS];
    double sums[THREADS / 32][4];
    u32 last;
};

struct Epilogue {
    Factor factor;
    u32 detail;
    Row* row;
};

// Starts the epilogue. All threads of a block call it.
DEVICE Epilogue begin_epilogue(const Store& s) {
    SHARED Row row;
    Epilogue e;
    e.factor = scale_factor(s.exponents[s.from], s.exponents[s.to]);
    u32 step = s.control[CONTROL_DETAIL];
    e.detail = s.type == TYPE_U8 || s.type == TYPE_U32 ? 0 : s.detail < step ? s.detail : step;
    e.row = &row;
    if (e.detail != 0) {
        for (u32 i = thread_index(); i < ROW_BINS; i += thread_count()) row.bins[i] = 0;
        if (thread_index() < 8) row.counts[thread_index()] = 0;
        barrier();
    }
    return e;
}

// Returns whether the bits of a magnitude are those of a finite number other than zero.
DEVICE bool is_finite_nonzero(u32 size) { return size - 1 < 0x7F7FFFFFu; }

// Returns 1 if the bits of a magnitude are below a limit, otherwise 0. Both are below 2^31, so the sign of their difference
// decides.
DEVICE u32 is_below(u32 size, u32 limit) { return (size - limit) >> 31; }

// Adds values to the statistics of a thread. Most values are neither small nor large, so the minimum and the maximum decide
// whether the counters of small or large values are updated at all.
template <u32 N>
DEVICE void observe(const Epilogue& e, StatsAccumulator& stats, const float (&v)[N]) {
    u32 size[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) size[j] = float_as_bits(v[j]) & 0x7FFFFFFFu;
    u32 min_magnitude = size[0], max_magnitude = size[0];
#pragma unroll
    for (u32 j = 1; j < N; j++) {
        min_magnitude = size[j] < min_magnitude ? size[j] : min_magnitude;
        max_magnitude = size[j] > max_magnitude ? size[j] : max_magnitude;
    }
    stats.count += N;
    if (min_magnitude < SUBNORMAL_END) {
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            stats.zeros += is_below(size[j], 1);
            stats.below_flush += is_below(size[j], FLUSH_END);
            stats.below_normal += is_below(size[j], SUBNORMAL_END);
        }
    }
    if (max_magnitude >= OVERFLOW_START) {
        max_magnitude = 0;
#pragma unroll
        for (u32 j = 0; j < N; j++) {
            stats.overflowing += size[j] >= OVERFLOW_START;
            stats.infinite += size[j] == 0x7F800000u;
            stats.nan += size[j] > 0x7F800000u;
            const u32 finite = size[j] < 0x7F800000u ? size[j] : 0;
            max_magnitude = finite > max_magnitude ? finite : max_magnitude;
        }
    }
    stats.amax = max_magnitude > stats.amax ? max_magnitude : stats.amax;
    if (e.detail < DETAIL_FULL) return;
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        if (is_finite_nonzero(size[j])) atomic_add(&e.row->bins[(size[j] + KEY_CONSTANT) >> 23], 1u);
    }
    if (e.detail < DETAIL_MOMENTS) return;
    // Eight terms are added in f32, because f64 is slow on most devices and eight terms lose little.
#pragma unroll
    for (u32 first = 0; first < N; first += 8) {
        float sums[4] = {};
#pragma unroll
        for (u32 j = first; j < N && j < first + 8; j++) {
            if (!is_finite_nonzero(size[j])) continue;
            const float log = log2_approx(bits_as_float(size[j])) * 0.693147180559945f;
            sums[0] += v[j];
            sums[1] += v[j] * v[j];
            sums[2] += log;
            sums[3] += log * log;
        }
        stats.sum += sums[0];
        stats.square += sums[1];
        stats.log += sums[2];
        stats.log_square += sums[3];
    }
}

// Stores one result through the epilogue.
DEVICE void store_scalar(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 i, float v) {
    if (s.type == TYPE_U8) {
        ((u8*)s.y)[i] = (u8)(u32)v;
        return;
    }
    if (s.type == TYPE_U32) {
        ((u32*)s.y)[i] = (u32)v;
        return;
    }
    float value[1] = {v};
    apply_factor(e.factor, value);
    if (s.add) value[0] = load(s.y, s.type, i) + value[0];
    if (e.detail != 0) observe(e, stats, value);
    if (s.type == TYPE_F16) {
        ((u16*)s.y)[i] = float_to_half(value[0]);
    } else {
        ((float*)s.y)[i] = value[0];
    }
}

// Stores groups of eight results, each from a multiple of eight on. Several groups hide each other's latency.
template <u32 GROUPS>
DEVICE void store_vec8s(const Store& s, const Epilogue& e, StatsAccumulator& stats, const u64 (&at)[GROUPS], float (&v)[8 * GROUPS]) {
    if (s.type != TYPE_F16 && s.type != TYPE_F32) {
#pragma unroll
        for (u32 j = 0; j < 8 * GROUPS; j++) store_scalar(s, e, stats, at[j / 8] + j % 8, v[j]);
        return;
    }
    apply_factor(e.factor, v);
    if (s.add) {
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            float previous[8];
            load_vec8_streaming(s.y, s.type, at[g], previous);
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[8 * g + j] = previous[j] + v[8 * g + j];
        }
    }
    if (e.detail != 0) observe(e, stats, v);
    if (s.type == TYPE_F16) {
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            const float* w = v + 8 * g;
            Words4 words = {floats_to_half2(w[0], w[1]), floats_to_half2(w[2], w[3]), floats_to_half2(w[4], w[5]), floats_to_half2(w[6], w[7])};
            *(Words4*)((u16*)s.y + at[g]) = words;
        }
    } else {
#pragma unroll
        for (u32 g = 0; g < GROUPS; g++) {
            const float* w = v + 8 * g;
            Words4 low = {float_as_bits(w[0]), float_as_bits(w[1]), float_as_bits(w[2]), float_as_bits(w[3])};
            Words4 high = {float_as_bits(w[4]), float_as_bits(w[5]), float_as_bits(w[6]), float_as_bits(w[7])};
            *(Words4*)((float*)s.y + at[g]) = low;
            *(Words4*)((float*)s.y + at[g] + 4) = high;
        }
    }
}

// Stores eight results from `i` on, a multiple of eight.
DEVICE void store_vec8(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 i, float (&v)[8]) {
    const u64 at[1] = {i};
    store_vec8s(s, e, stats, at, v);
}

// Adds a value to a sum that is stored as a pair of f32, the large part first.
DEVICE void accumulate_pair(u32* pair, double more) {
    double total = (double)bits_as_float(pair[0]) + (double)bits_as_float(pair[1]) + more;
    float large = (float)total;
    bool finite = (float_as_bits(large) & 0x7F800000u) != 0x7F800000u;
    pair[0] = float_as_bits(large);
    pair[1] = float_as_bits(finite ? (float)(total - (double)large) : 0.0f);
}

// Adds the statistics of a block's threads to the statistics row. All threads of a block call it, in all blocks that store.
DEVICE void end_epilogue(const Store& s, const Epilogue& e, const StatsAccumulator& stats, const StoringBlocks& blocks = all_blocks()) {
    if (e.detail == 0) return;
    Row& row = *e.row;
    const u32 t = thread_index();
    const u32 thread_counts[7] = {stats.count,
                         stats.zeros,
                         stats.infinite,
                         stats.nan,
                         stats.below_flush - stats.zeros,
                         stats.overflowing - stats.infinite - stats.nan,
                         stats.below_normal - stats.below_flush};
#pragma unroll
    for (u32 i = 0; i < 7; i++) {
        u32 sum = warp_sum(thread_counts[i]);
        if (t % 32 == 0 && sum != 0) atomic_add(&row.counts[i], sum);
    }
    u32 max_magnitude = warp_max(stats.amax);
    if (t % 32 == 0) atomic_max(&row.counts[7], max_magnitude);
    if (e.detail >= DETAIL_MOMENTS) {
        double sums[4] = {stats.sum, stats.square, stats.log, stats.log_square};
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            for (u32 mask = 16; mask != 0; mask >>= 1) sums[i] += shuffle_xor(sums[i], mask);
            if (t % 32 == 0) row.sums[t / 32][i] = sums[i];
        }
    }
    barrier();
    u32* words = s.rows + (u64)s.to * ROW_WORDS;
    if (t < 7 && row.counts[t] != 0) atomic_add((u64*)words + t, (u64)row.counts[t]);
    // A block that stored nothing leaves the row unchanged.
    if (t == 0 && row.counts[0] != 0) {
        atomic_max(&words[ROW_AMAX], row.counts[7]);
        atomic_max(&words[ROW_DETAIL], e.detail);
    }
    if (e.detail >= DETAIL_FULL) {
        for (u32 i = t; i < ROW_BINS; i += thread_count()) {
            if (row.bins[i] == 0) continue;
            // A bin saturates: the block whose addition wraps sets it to the maximum.
            u32 old = atomic_add(&words[ROW_HISTOGRAM + i], row.bins[i]);
            if (old + row.bins[i] < old) atomic_max(&words[ROW_HISTOGRAM + i], 0xFFFFFFFFu);
        }
    }
    if (e.detail < DETAIL_MOMENTS) return;
    if (t < 4) {
        double sum = 0;
        for (u32 w = 0; w < thread_count() / 32; w++) sum += row.sums[w][t];
        s.sums[4 * (u64)blocks.number + t] = sum;
        fence();
    }
    barrier();
    if (t == 0) row.last = atomic_add(s.done, 1u) == blocks.total - 1;
    barrier();
    if (row.last == 0) return;
    fence();
    // One warp adds the sums of all blocks, eight lanes for each of the four sums.
    if (t < 32) {
        double sum = 0;
        volatile double* block_sums = s.sums;
        for (u64 i = t / 4; i < blocks.total; i += 8) sum += block_sums[4 * i + t % 4];
        for (u32 mask = 16; mask >= 4; mask >>= 1) sum += shuffle_xor(sum, mask);
        if (t < 4) accumulate_pair(words + ROW_SUMS + 2 * t, sum);
        if (t == 0) *s.done = 0;
    }
}
