// The end of every operator: scale, add, observe, round once, write (`core::backend::Store`).
//
// Counters, amax and histogram are integers: every block adds its own to the row, in any order. Sums are f64 for each
// thread, then for each block, and the last block adds those of all blocks in their order.

struct Store {
    void* y;
    const int* exponents;
    // Of the step: CONTROL_*.
    const u32* control;
    u32* rows;
    // Sums of blocks, four each, and how many blocks are done.
    double* sums;
    u32* done;
    u32 type;
    u32 add;
    u32 detail;
    u32 from;
    u32 to;
    u32 unused;
};

DEVICE u32 block_number() { return (block_z() * blocks_y() + block_y()) * blocks_x() + block_x(); }
DEVICE u32 block_total() { return blocks_x() * blocks_y() * blocks_z(); }

// Elements of any type as f32.

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

// Eight from `i` on, a multiple of eight.
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

// The same of what nobody reads again soon. Of f32 a warp reads each line by two loads, the second from the first cache.
DEVICE void load_vec8_streaming(const void* x, u32 type, u64 i, float (&v)[8]) {
    if (type == TYPE_F16) {
        unpack(load_streaming((const u16*)x + i), v);
    } else {
        load_vec8(x, type, i, v);
    }
}

// 2^k as up to three normal factors (`core::scale::Factor`).
struct Factor {
    float parts[3];
    // Whether the first is all of it.
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
    // Asked once for all: nearly every factor has one part.
    if (f.is_single) return;
#pragma unroll
    for (u32 j = 0; j < N; j++) v[j] = v[j] * f.parts[1] * f.parts[2];
}

// What one thread saw.
struct StatsAccumulator {
    u32 count, zeros, below_flush, below_normal, overflowing, infinite, nan, amax;
    double sum, square, log, log_square;
};

// Sums of a block; room for 32 warps.
struct Row {
    u32 counts[8];
    u32 bins[ROW_BINS];
    double sums[32][4];
    u32 last;
};

struct Epilogue {
    Factor factor;
    u32 detail;
    Row* row;
};

// All threads of a block begin together.
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

// Whether a magnitude is neither zero nor infinite nor NaN.
DEVICE bool is_finite_nonzero(u32 size) { return size - 1 < 0x7F7FFFFFu; }

// 1 if a magnitude is below a limit, by the sign of their difference: both are below 2^31.
DEVICE u32 is_below(u32 size, u32 limit) { return (size - limit) >> 31; }

// Most values are neither small nor large: the least and the greatest of all tell whether others have to be counted.
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
    // Added in f32 first: f64 is slow on most devices, and eight terms lose little.
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

// One result.
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

// Groups of eight results, each from a place on that is a multiple of eight. What one group waits for another fills.
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

// Eight results from `i` on.
DEVICE void store_vec8(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 i, float (&v)[8]) {
    const u64 at[1] = {i};
    store_vec8s(s, e, stats, at, v);
}

// Adds a number to one kept as a pair of f32, large part first.
DEVICE void accumulate_pair(u32* pair, double more) {
    double total = (double)bits_as_float(pair[0]) + (double)bits_as_float(pair[1]) + more;
    float large = (float)total;
    bool finite = (float_as_bits(large) & 0x7F800000u) != 0x7F800000u;
    pair[0] = float_as_bits(large);
    pair[1] = float_as_bits(finite ? (float)(total - (double)large) : 0.0f);
}

// Adds what the block's threads saw to the row. All threads of a block end together.
DEVICE void end_epilogue(const Store& s, const Epilogue& e, const StatsAccumulator& stats) {
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
    // Nothing stored, nothing said.
    if (t == 0 && row.counts[0] != 0) {
        atomic_max(&words[ROW_AMAX], row.counts[7]);
        atomic_max(&words[ROW_DETAIL], e.detail);
    }
    if (e.detail >= DETAIL_FULL) {
        for (u32 i = t; i < ROW_BINS; i += thread_count()) {
            if (row.bins[i] == 0) continue;
            // A bin that is full stays full: whoever lets it wrap sets it afterwards.
            u32 old = atomic_add(&words[ROW_HISTOGRAM + i], row.bins[i]);
            if (old + row.bins[i] < old) atomic_max(&words[ROW_HISTOGRAM + i], 0xFFFFFFFFu);
        }
    }
    if (e.detail < DETAIL_MOMENTS) return;
    if (t < 4) {
        double sum = 0;
        for (u32 w = 0; w < thread_count() / 32; w++) sum += row.sums[w][t];
        s.sums[4 * (u64)block_number() + t] = sum;
        fence();
    }
    barrier();
    if (t == 0) row.last = atomic_add(s.done, 1u) == block_total() - 1;
    barrier();
    if (row.last == 0) return;
    fence();
    // One warp for all: eight of its lanes for each sum.
    if (t < 32) {
        double sum = 0;
        volatile double* block_sums = s.sums;
        for (u64 i = t / 4; i < block_total(); i += 8) sum += block_sums[4 * i + t % 4];
        for (u32 mask = 16; mask >= 4; mask >>= 1) sum += shuffle_xor(sum, mask);
        if (t < 4) accumulate_pair(words + ROW_SUMS + 2 * t, sum);
        if (t == 0) *s.done = 0;
    }
}
