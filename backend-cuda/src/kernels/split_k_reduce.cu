// Reduction of split-K: adds the partial sums of all splits in order, then the bias, and stores. If the images of a
// convolution are padded to `inputs` channels, partial sums have all of them and the result has `c`.

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
    const u64 total = (u64)p.batch * p.m * p.n;
    const u32 width = p.vectorized ? 8 : 1;
    const u64 step = (u64)blocks_x() * thread_count() * width;
    for (u64 i = ((u64)block_x() * thread_count() + thread_index()) * width; i < total; i += step) {
        const u32 n = (u32)(i % p.n);
        const u64 row = i / p.n;
        const u32 m = (u32)(row % p.m), z = (u32)(row / p.m);
        const u64 at = (u64)z * p.y_stride + (u64)m * p.ldy + n;
        if (p.vectorized) {
            float v[8] = {};
            add_partials<8>(v, p.splits, [&](u32 split, float (&partial)[8]) { load_vec8(p.partials, TYPE_F32, split * total + i, partial); });
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] += load_bias(p, z, n + j);
            store_vec8(p.y, e, stats, at, v);
        } else {
            const bool is_padded = p.inputs > p.c;
            const u64 from = is_padded ? i / p.c * p.inputs + i % p.c : i, size = is_padded ? total / p.c * p.inputs : total;
            float v[1] = {};
            add_partials<1>(v, p.splits, [&](u32 split, float (&partial)[1]) { partial[0] = p.partials[split * size + from]; });
            store_scalar(p.y, e, stats, at, v[0] + load_bias(p, z, n));
        }
    }
    end_epilogue(p.y, e, stats);
}
