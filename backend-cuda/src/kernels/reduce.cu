// Reductions of [outer, len, inner] along len.
//
// A power of two of threads, the lanes, share a result. Each reduces a strided subset of the values, and then pairs of lanes
// are combined. If there are few results, len is divided into parts, and a second launch reduces their results. The
// division depends on the shape alone, and so does the order of a sum.

struct ReduceParams {
    Store y;
    const void* x;
    // Indices of the values of x, if these are results of parts of an argmax; otherwise null.
    const u32* in_indices;
    // Output: indices of the maxima for the next launch, or null.
    u32* out_indices;
    u32 type;
    u32 op;
    u32 outer, len, inner;
    // Number of values of a part, a multiple of eight.
    u32 part_len;
    // Number of threads that reduce one result, a power of two.
    u32 lanes;
    // Divisor of a mean: the number of values of each result.
    float divisor;
};

// Accumulator of a sum, of values or of squares.
template <bool SQUARES>
struct Sum {
    float v;
    static DEVICE_MEMBER Sum identity() { return Sum{0.0f}; }
    DEVICE_MEMBER void add(float x, u32) { v += SQUARES ? x * x : x; }
    DEVICE_MEMBER void combine(const Sum& other) { v += other.v; }
};

// Accumulator of the maximum and its index: the first NaN, otherwise the first of the largest values.
struct Maximum {
    float v;
    u32 index;
    static DEVICE_MEMBER Maximum identity() { return Maximum{bits_as_float(0xFF800000u), 0xFFFFFFFFu}; }
    DEVICE_MEMBER void combine(const Maximum& other) {
        const bool is_nan = v != v, other_is_nan = other.v != other.v;
        const bool tie = is_nan == other_is_nan && (is_nan || v == other.v);
        if (tie ? other.index < index : other_is_nan || (!is_nan && other.v > v)) *this = other;
    }
    DEVICE_MEMBER void add(float x, u32 i) { combine(Maximum{x, i}); }
};

DEVICE void store_result(const ReduceParams& p, const Epilogue& e, StatsAccumulator& stats, u32 i, const Maximum& maximum) {
    if (p.op == REDUCE_MAX) {
        store_scalar(p.y, e, stats, i, maximum.v);
    } else if (p.out_indices != 0) {
        ((float*)p.y.y)[i] = maximum.v;
        p.out_indices[i] = maximum.index;
    } else if (p.y.type == TYPE_U8) {
        ((u8*)p.y.y)[i] = (u8)maximum.index;
    } else {
        ((u32*)p.y.y)[i] = maximum.index;
    }
}

template <bool SQUARES>
DEVICE void store_result(const ReduceParams& p, const Epilogue& e, StatsAccumulator& stats, u32 i, const Sum<SQUARES>& total) {
    store_scalar(p.y, e, stats, i, p.op == REDUCE_MEAN ? total.v / p.divisor : total.v);
}

// Reduces with N neighbouring results for each thread. All kinds of accumulators share one piece of shared memory.
template <class Accumulator, int N>
DEVICE void reduce_with(const ReduceParams& p, void* shared_memory) {
    Accumulator(*block_partials)[THREADS] = (Accumulator(*)[THREADS])shared_memory;
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    const u32 t = thread_index(), results_per_block = THREADS / p.lanes;
    // Neighbouring threads read neighbouring values.
    const bool is_contiguous = p.inner == 1;
    const u32 lane = is_contiguous ? t % p.lanes : t / results_per_block, lane_stride = is_contiguous ? 1 : results_per_block;
    const u32 columns = p.outer * p.inner / N, tiles = (columns + results_per_block - 1) / results_per_block;
    const u32 parts = p.len == 0 ? 1 : (p.len + p.part_len - 1) / p.part_len;
    for (u64 tile = block_x(); tile < (u64)tiles * parts; tile += blocks_x()) {
        const u32 part = (u32)(tile / tiles), column = (u32)(tile % tiles) * results_per_block + (is_contiguous ? t / p.lanes : t % results_per_block);
        const u32 start = part * p.part_len, end = p.len - start < p.part_len ? p.len : start + p.part_len, result = column * N;
        Accumulator a[N];
#pragma unroll
        for (int i = 0; i < N; i++) a[i] = Accumulator::identity();
        if (column < columns) {
            const u32 first = result / p.inner * p.len * p.inner + result % p.inner;
            if (is_contiguous && p.len % 8 == 0 && p.in_indices == 0) {
                for (u32 l = start + 8 * lane; l < end; l += 8 * p.lanes) {
                    float v[8];
                    load_vec8(p.x, p.type, first + l, v);
#pragma unroll
                    for (u32 j = 0; j < 8; j++) a[0].add(v[j], l + j);
                }
            } else {
#pragma unroll 4
                for (u32 l = start + lane; l < end; l += p.lanes) {
                    const u32 at = first + l * p.inner;
                    float v[N];
                    load_vec(p.x, p.type, at, v);
#pragma unroll
                    for (int i = 0; i < N; i++) a[i].add(v[i], p.in_indices == 0 ? l : p.in_indices[at + i]);
                }
            }
        }
        for (u32 half = p.lanes / 2; half != 0; half /= 2) {
            barrier();
#pragma unroll
            for (int i = 0; i < N; i++) block_partials[i][t] = a[i];
            barrier();
            if (lane >= half) continue;
#pragma unroll
            for (int i = 0; i < N; i++) a[i].combine(block_partials[i][t + half * lane_stride]);
        }
        if (lane != 0 || column >= columns) continue;
#pragma unroll
        for (int i = 0; i < N; i++) store_result(p, e, stats, part * p.outer * p.inner + result + i, a[i]);
    }
    end_epilogue(p.y, e, stats);
}

template <class Accumulator>
DEVICE void reduce_with(const ReduceParams& p, void* shared_memory) {
    if (p.inner % 8 == 0) {
        reduce_with<Accumulator, 8>(p, shared_memory);
    } else {
        reduce_with<Accumulator, 1>(p, shared_memory);
    }
}

KERNEL(reduce, ReduceParams) {
    SHARED Maximum shared_memory[8 * THREADS];
    if (p.op == REDUCE_SUM || p.op == REDUCE_MEAN) {
        reduce_with<Sum<false>>(p, shared_memory);
    } else if (p.op == REDUCE_SQUARES) {
        reduce_with<Sum<true>>(p, shared_memory);
    } else {
        reduce_with<Maximum>(p, shared_memory);
    }
}
