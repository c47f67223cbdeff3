// Reduction of split-K: adds the partial sums of all splits in order, then the bias, and stores. If the images of a
// convolution are padded to `inputs` channels, partial sums have all of them and the result has `c`; otherwise `inputs` is 0.

// Partial sums that a thread loads before it adds the first. A weight gradient of pictures has 507 of them and 88 to 3136
// threads: loaded one at a time, each thread waits for L2 507 times.
#define PARTIALS_IN_FLIGHT 8

// Adds WIDTH neighbouring partial sums of each split to v, in order. `fetch` loads those of one split.
template <u32 WIDTH, class Fetch> DEVICE void add_partials(float* v, u32 splits, const Fetch& fetch) {
#pragma unroll 1
    for (u32 first = 0; first < splits; first += PARTIALS_IN_FLIGHT) {
        float loaded[PARTIALS_IN_FLIGHT][WIDTH];
#pragma unroll
        for (u32 i = 0; i < PARTIALS_IN_FLIGHT; i++) {
            if (first + i < splits) fetch(first + i, loaded[i]);
        }
#pragma unroll
        for (u32 i = 0; i < PARTIALS_IN_FLIGHT; i++) {
            if (first + i < splits) {
#pragma unroll
                for (u32 j = 0; j < WIDTH; j++) v[j] += loaded[i][j];
            }
        }
    }
}

KERNEL(split_k_reduce, GemmParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    // Results are fewer than 2^32, and 32-bit divisions take a quarter of the instructions.
    const u32 total = p.batch * p.m * p.n;
    const u32 width = p.vectorized ? 8 : 1;
    const u64 step = (u64)blocks_x() * thread_count() * width;
    for (u64 at = ((u64)block_x() * thread_count() + thread_index()) * width; at < total; at += step) {
        const u32 i = (u32)at;
        // Where the partial sums are, and how many a split has.
        const bool is_padded = p.inputs > p.c;
        const u64 from = is_padded ? (u64)(i / p.c) * p.inputs + i % p.c : i, size = is_padded ? (u64)(total / p.c) * p.inputs : total;
        float v[8] = {};
        if (p.vectorized) {
            add_partials<8>(v, p.splits, [&](u32 split, float (&partial)[8]) { load_vec8(p.partials, TYPE_F32, split * size + from, partial); });
        } else {
            add_partials<1>(v, p.splits, [&](u32 split, float (&partial)[1]) { partial[0] = p.partials[split * size + from]; });
        }
        // After the sums, whose loads need the registers.
        const u32 row = i / p.n, n = i - row * p.n, z = row / p.m, m = row - z * p.m;
        const u64 to = y_offset(p, z, m, n);
        if (p.vectorized) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] += load_bias(p, z, n + j);
            store_vec8(p.y, e, stats, to, v);
        } else {
            store_scalar(p.y, e, stats, to, v[0] + load_bias(p, z, n));
        }
    }
    end_epilogue(p.y, e, stats);
}
