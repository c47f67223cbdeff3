// Sums of N f64 values over threads, in a fixed order. All threads of a block call these, and all get the sums.

template <int N>
DEVICE void warp_reduce(double (&x)[N], u32 lanes) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        for (u32 mask = lanes / 2; mask != 0; mask /= 2) x[i] += shuffle_xor(x[i], mask);
    }
}

template <int N>
DEVICE void block_reduce(double (&x)[N]) {
    SHARED double warps[THREADS / 32][N];
    warp_reduce(x, 32);
    barrier();
    if (thread_index() % 32 == 0) {
#pragma unroll
        for (int i = 0; i < N; i++) warps[thread_index() / 32][i] = x[i];
    }
    barrier();
#pragma unroll
    for (int i = 0; i < N; i++) {
        x[i] = 0;
        for (u32 w = 0; w < THREADS / 32; w++) x[i] += warps[w][i];
    }
}

// Adds values over `lanes` neighbouring threads: a power of two up to 32, or the whole block.
template <int N>
DEVICE void lane_group_reduce(double (&x)[N], u32 lanes) {
    if (lanes > 32) {
        block_reduce(x);
    } else {
        warp_reduce(x, lanes);
    }
}
