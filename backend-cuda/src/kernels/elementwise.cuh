// Operators whose results are dense and depend on their index alone: eight at a time, as many blocks as the device
// holds at once.
//
// A thread asks for the operands of two groups before it uses the first: blocks of 256 threads, of which four fit, have 16 KiB
// of halves under way with one, and an H100 needs 18 KiB on each multiprocessor (3.35 TB/s · 0.7 µs / 132).
//
// `F::one(i)` is the result of index i; `F::vec8(i, v)` those from i on, a multiple of eight.

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

// All whole groups of eight where operands are read apart from results: those of `F::LOADS_IN_FLIGHT` groups are asked for before any is
// used. (On an H100 batch norm took 4 to 48 % longer when the next were asked for where the last were used; a warp has six
// scoreboards to tell loads apart by, which may be why.) `F::Kept` is what a thread keeps for all its groups, of which the first begins at an index.
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
        // Behind the end, but no further than numbers go.
        if (rest <= F::LOADS_IN_FLIGHT * step) break;
    }
}

// For operators that have no better way: eight times one.
template <class F>
struct ScalarOnly : F {
    DEVICE_MEMBER void compute_vec8(u32 i, float (&v)[8]) const {
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = this->compute_scalar(i + j);
    }
};

// For operators of rows of `f.width()` elements: `F::some(i, v)` gives as many results as `v` has, all of one row.
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

// One element from `i` on, or eight where `i` is a multiple of eight.
DEVICE void load_vec(const void* x, u32 type, u64 i, float (&v)[1]) { v[0] = load(x, type, i); }
DEVICE void load_vec(const void* x, u32 type, u64 i, float (&v)[8]) { load_vec8(x, type, i, v); }
// The same of what nobody reads again soon.
DEVICE void load_vec_streaming(const void* x, u32 type, u64 i, float (&v)[1]) { v[0] = load(x, type, i); }
DEVICE void load_vec_streaming(const void* x, u32 type, u64 i, float (&v)[8]) { load_vec8_streaming(x, type, i, v); }

// An element and its neighbours as they were read. Halves are unpacked where they are used, so that registers hold more of
// them on their way: where two blocks of 256 threads are all that fit a multiprocessor, 16 bytes of each leave an H100's
// memory half idle.
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
