// Reductions of [outer, len, inner] along len.
//
// Some threads of a block, the lanes, share a result: each takes every so many-th value, then they are joined pairwise.
// Where the results are few, len is cut into parts, whose results a second launch reduces. All of this depends on the
// shape alone, and so does the order of a sum.

struct ReduceParams {
    Store y;
    const void* x;
    // Where the values of x came from, if they are results of parts of the index of the largest; else null.
    const u32* from;
    // Takes the same for the next launch.
    u32* places;
    u32 type;
    u32 op;
    u32 outer, len, inner;
    // Values of a part, a multiple of eight.
    u32 part;
    // Threads for one result, a power of two.
    u32 lanes;
    // By what sums are divided.
    float divisor;
};

// A sum, of squares or not.
template <bool squares>
struct Total {
    float v;
    static DEVICE_MEMBER Total none() { return Total{0.0f}; }
    DEVICE_MEMBER void add(float x, u32) { v += squares ? x * x : x; }
    DEVICE_MEMBER void join(const Total& other) { v += other.v; }
};

// The largest value and its place: the first NaN, else the first of the largest.
struct Largest {
    float v;
    u32 place;
    static DEVICE_MEMBER Largest none() { return Largest{of_bits(0xFF800000u), 0xFFFFFFFFu}; }
    DEVICE_MEMBER void join(const Largest& other) {
        const bool mine = v != v, others = other.v != other.v;
        const bool tie = mine == others && (mine || v == other.v);
        if (tie ? other.place < place : others || (!mine && other.v > v)) *this = other;
    }
    DEVICE_MEMBER void add(float x, u32 i) { join(Largest{x, i}); }
};

DEVICE void finish(const ReduceParams& p, const Epilogue& e, Seen& seen, u32 i, const Largest& best) {
    if (p.op == REDUCE_MAX) {
        put(p.y, e, seen, i, best.v);
    } else if (p.places != 0) {
        ((float*)p.y.y)[i] = best.v;
        p.places[i] = best.place;
    } else if (p.y.type == TYPE_U8) {
        ((u8*)p.y.y)[i] = (u8)best.place;
    } else {
        ((u32*)p.y.y)[i] = best.place;
    }
}

template <bool squares>
DEVICE void finish(const ReduceParams& p, const Epilogue& e, Seen& seen, u32 i, const Total<squares>& total) {
    put(p.y, e, seen, i, p.op == REDUCE_MEAN ? total.v / p.divisor : total.v);
}

// A thread forms N neighbouring results. All kinds of them share one piece of memory.
template <class A, int N>
DEVICE void reduce_with(const ReduceParams& p, void* memory) {
    A(*joined)[THREADS] = (A(*)[THREADS])memory;
    Epilogue e = begin(p.y);
    Seen seen = {};
    const u32 t = thread_index(), together = THREADS / p.lanes;
    // Neighbouring threads read neighbouring values.
    const bool along = p.inner == 1;
    const u32 lane = along ? t % p.lanes : t / together, apart = along ? 1 : together;
    const u32 columns = p.outer * p.inner / N, tiles = (columns + together - 1) / together;
    const u32 parts = p.len == 0 ? 1 : (p.len + p.part - 1) / p.part;
    for (u64 tile = block_x(); tile < (u64)tiles * parts; tile += blocks_x()) {
        const u32 part = (u32)(tile / tiles), column = (u32)(tile % tiles) * together + (along ? t / p.lanes : t % together);
        const u32 start = part * p.part, end = p.len - start < p.part ? p.len : start + p.part, result = column * N;
        A a[N];
#pragma unroll
        for (int i = 0; i < N; i++) a[i] = A::none();
        if (column < columns) {
            const u32 first = result / p.inner * p.len * p.inner + result % p.inner;
            if (along && p.len % 8 == 0 && p.from == 0) {
                for (u32 l = start + 8 * lane; l < end; l += 8 * p.lanes) {
                    float v[8];
                    load8(p.x, p.type, first + l, v);
#pragma unroll
                    for (u32 j = 0; j < 8; j++) a[0].add(v[j], l + j);
                }
            } else {
#pragma unroll 4
                for (u32 l = start + lane; l < end; l += p.lanes) {
                    const u32 at = first + l * p.inner;
                    float v[N];
                    load_some(p.x, p.type, at, v);
#pragma unroll
                    for (int i = 0; i < N; i++) a[i].add(v[i], p.from == 0 ? l : p.from[at + i]);
                }
            }
        }
        for (u32 half = p.lanes / 2; half != 0; half /= 2) {
            barrier();
#pragma unroll
            for (int i = 0; i < N; i++) joined[i][t] = a[i];
            barrier();
            if (lane >= half) continue;
#pragma unroll
            for (int i = 0; i < N; i++) a[i].join(joined[i][t + half * apart]);
        }
        if (lane != 0 || column >= columns) continue;
#pragma unroll
        for (int i = 0; i < N; i++) finish(p, e, seen, part * p.outer * p.inner + result + i, a[i]);
    }
    end(p.y, e, seen);
}

template <class A>
DEVICE void reduce_with(const ReduceParams& p, void* memory) {
    if (p.inner % 8 == 0) {
        reduce_with<A, 8>(p, memory);
    } else {
        reduce_with<A, 1>(p, memory);
    }
}

KERNEL(reduce, ReduceParams) {
    SHARED Largest memory[8 * THREADS];
    if (p.op == REDUCE_SUM || p.op == REDUCE_MEAN) {
        reduce_with<Total<false>>(p, memory);
    } else if (p.op == REDUCE_SQUARES) {
        reduce_with<Total<true>>(p, memory);
    } else {
        reduce_with<Largest>(p, memory);
    }
}
