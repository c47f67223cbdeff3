// Operators whose results are dense and depend on their index alone: eight at a time, as many blocks as the device
// holds at once.
//
// A thread asks for the operands of two groups before it uses the first: blocks of 256 threads, of which four fit, have 16 KiB
// of halves under way with one, and an H100 needs 18 KiB on each multiprocessor (3.35 TB/s · 0.7 µs / 132).
//
// `F::one(i)` is the result of index i; `F::vec8(i, v)` those from i on, a multiple of eight.

template <class F>
DEVICE void dense(const Store& s, u32 len, const F& f) {
    Epilogue e = begin(s);
    Seen seen = {};
    const u32 step = blocks_x() * thread_count(), groups = len / 8;
    for (u32 group = block_x() * thread_count() + thread_index(); group < groups; group += 2 * step) {
        const u32 next = group + step;
        float v[8], w[8];
        f.vec8(group * 8, v);
        if (next < groups) f.vec8(next * 8, w);
        put8(s, e, seen, (u64)group * 8, v);
        if (next < groups) put8(s, e, seen, (u64)next * 8, w);
    }
    u32 rest = len / 8 * 8 + thread_index();
    if (block_x() == 0 && rest < len) put(s, e, seen, rest, f.one(rest));
    end(s, e, seen);
}

// For operators that have no better way: eight times one.
template <class F>
struct Each : F {
    DEVICE_MEMBER void vec8(u32 i, float (&v)[8]) const {
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = this->one(i + j);
    }
};

// For operators of rows of `f.width()` elements: `F::some(i, v)` gives as many results as `v` has, all of one row.
template <class F>
struct InRows : F {
    DEVICE_MEMBER float one(u32 i) const {
        float v[1];
        this->some(i, v);
        return v[0];
    }
    DEVICE_MEMBER void vec8(u32 i, float (&v)[8]) const {
        if (this->width() % 8 == 0) {
            this->some(i, v);
            return;
        }
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = one(i + j);
    }
};

// One element from `i` on, or eight where `i` is a multiple of eight.
DEVICE void load_some(const void* x, u32 type, u64 i, float (&v)[1]) { v[0] = load(x, type, i); }
DEVICE void load_some(const void* x, u32 type, u64 i, float (&v)[8]) { load8(x, type, i, v); }
// The same of what nobody reads again soon.
DEVICE void load_some_once(const void* x, u32 type, u64 i, float (&v)[1]) { v[0] = load(x, type, i); }
DEVICE void load_some_once(const void* x, u32 type, u64 i, float (&v)[8]) { load8_once(x, type, i, v); }
