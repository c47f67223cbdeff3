// Maxima and sums of f32 values of the threads that share a row.

struct Larger {
    // A NaN is never the maximum, but it is in the sum.
    DEVICE_MEMBER float operator()(float a, float b) const { return b > a ? b : a; }
};

struct Plus {
    DEVICE_MEMBER float operator()(float a, float b) const { return a + b; }
};

// Combines a value of each lane. All threads of a block call it, and all get the result of their row.
template <class F>
DEVICE float reduce_lanes(float x, u32 lanes, const F& combine) {
    SHARED float warps[THREADS / 32];
    for (u32 mask = (lanes < 32 ? lanes : 32) / 2; mask != 0; mask /= 2) x = combine(x, shuffle_xor(x, mask));
    if (lanes <= 32) return x;
    barrier();
    if (thread_index() % 32 == 0) warps[thread_index() / 32] = x;
    barrier();
    x = warps[0];
#pragma unroll
    for (u32 w = 1; w < THREADS / 32; w++) x = combine(x, warps[w]);
    return x;
}
