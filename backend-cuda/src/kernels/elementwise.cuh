// Loops over elementwise operators: contiguous results that depend on their index alone. Each thread computes 8-wide
// vectors, and a grid has as many blocks as the device holds at once.
//
// A thread loads two vectors before it uses the first, because one is not enough to hide the latency of memory. With one,
// four blocks of 256 threads have 16 KiB of f16 in flight, and a multiprocessor of an H100 needs 18 KiB (3.35 TB/s ·
// 0.7 µs / 132).
//
// `F::compute_scalar(i)` returns the result of index i, `F::compute_vec8(i, v)` those from a multiple of eight on.

template <class F>
DEVICE void store_elementwise(const Store& s, u32 len, const F& f) {
    Epilogue e = begin_epilogue(s);
    StatsAccumulator stats = {};
    const u32 step = blocks_x() * thread_count(), groups = len / 8;
    for (u32 group = block_x() * thread_count() + thread_index(); group < groups; group += 2 * step) {
        const u32 next_group = group + step;
        float v[8], w[8];
        f.compute_vec8(group * 8, v);
        if (next_group < groups) f.compute_vec8(next_group * 8, w);
        store_vec8(s, e, stats, (u64)group * 8, v);
        if (next_group < groups) store_vec8(s, e, stats, (u64)next_group * 8, w);
    }
    u32 rest = len / 8 * 8 + thread_index();
    if (block_x() == 0 && rest < len) store_scalar(s, e, stats, rest, f.compute_scalar(rest));
    end_epilogue(s, e, stats);
}

// Computes and stores all whole vectors, with operands of `F::LOADS_IN_FLIGHT` vectors loaded before any is used.
// `F::ThreadParams` holds what a thread needs for all of its vectors.
//
// A rolling prefetch was slower: on an H100 batch norm took 4 to 48 % longer when each use issued the next load. A warp has
// six scoreboards to distinguish loads, which may be the reason.
template <class F>
DEVICE void store_elementwise_pipelined(const Store& s, const Epilogue& e, StatsAccumulator& stats, u32 len, const F& f) {
    const u32 step = blocks_x() * THREADS, groups = len / 8, first = block_x() * THREADS + thread_index();
    const typename F::ThreadParams thread_params(f.p, first * 8);
    for (u32 group = first; group < groups; group += F::LOADS_IN_FLIGHT * step) {
        const u32 rest = groups - group;
        typename F::Operands read[F::LOADS_IN_FLIGHT];
#pragma unroll
        for (u32 k = 0; k < F::LOADS_IN_FLIGHT; k++) {
            if (k * step < rest) read[k] = f.load_operands((group + k * step) * 8);
        }
#pragma unroll
        for (u32 k = 0; k < F::LOADS_IN_FLIGHT; k++) {
            if (k * step >= rest) continue;
            float v[8];
            f.compute_results(read[k], thread_params, v);
            store_vec8(s, e, stats, (u64)(group + k * step) * 8, v);
        }
        // Prevents an overflow of `group` after the last vector.
        if (rest <= F::LOADS_IN_FLIGHT * step) break;
    }
}

// Adapter for operators that compute single elements only.
template <class F>
struct ScalarOnly : F {
    DEVICE_MEMBER void compute_vec8(u32 i, float (&v)[8]) const {
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = this->compute_scalar(i + j);
    }
};

// Adapter for operators on rows of `f.width()` elements: `F::compute_vec(i, v)` computes results of one row.
template <class F>
struct RowWise : F {
    DEVICE_MEMBER float compute_scalar(u32 i) const {
        float v[1];
        this->compute_vec(i, v);
        return v[0];
    }
    DEVICE_MEMBER void compute_vec8(u32 i, float (&v)[8]) const {
        if (this->width() % 8 == 0) {
            this->compute_vec(i, v);
            return;
        }
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = compute_scalar(i + j);
    }
};

// Loads one element, or eight from a multiple of eight on.
DEVICE void load_vec(const void* x, u32 type, u64 i, float (&v)[1]) { v[0] = load(x, type, i); }
DEVICE void load_vec(const void* x, u32 type, u64 i, float (&v)[8]) { load_vec8(x, type, i, v); }
// Loads elements that are not read again soon, without a copy in L1.
DEVICE void load_vec_streaming(const void* x, u32 type, u64 i, float (&v)[1]) { v[0] = load(x, type, i); }
DEVICE void load_vec_streaming(const void* x, u32 type, u64 i, float (&v)[8]) { load_vec8_streaming(x, type, i, v); }

// Loaded elements. f16 values are unpacked at their use, so that registers hold more of them in flight: with only two
// blocks of 256 threads on a multiprocessor, 16 bytes for each thread leave an H100's memory half idle.
template <int N, bool F16>
struct Fragment {
    float x[N];
    static DEVICE_MEMBER Fragment load(const void* from, u32 type, u64 i) {
        Fragment read;
        load_vec_streaming(from, type, i, read.x);
        return read;
    }
    DEVICE_MEMBER void unpack_into(float (&v)[N]) const {
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = x[j];
    }
};
template <>
struct Fragment<8, true> {
    Words4 words;
    static DEVICE_MEMBER Fragment load(const void* from, u32, u64 i) { return Fragment{load_streaming((const u16*)from + i)}; }
    DEVICE_MEMBER void unpack_into(float (&v)[8]) const { unpack(words, v); }
};
