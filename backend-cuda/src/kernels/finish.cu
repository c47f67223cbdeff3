// The end of a product whose sums were cut: adds their parts in order, then the bias, and stores. Where a convolution's
// images were padded to `inputs` channels, parts have these, and the result the `c` that there are.

KERNEL(finish, Product) {
    Epilogue e = begin(p.y);
    Seen seen = {};
    const u64 total = (u64)p.batch * p.m * p.n;
    const u32 width = p.wide ? 8 : 1;
    const u64 step = (u64)blocks_x() * thread_count() * width;
    for (u64 i = ((u64)block_x() * thread_count() + thread_index()) * width; i < total; i += step) {
        const u32 n = (u32)(i % p.n);
        const u64 row = i / p.n;
        const u32 m = (u32)(row % p.m), z = (u32)(row / p.m);
        const u64 at = (u64)z * p.y_stride + (u64)m * p.y_lead + n;
        if (p.wide) {
            float v[8] = {};
            for (u32 split = 0; split < p.splits; split++) {
                float more[8];
                load8(p.partials, TYPE_F32, split * total + i, more);
#pragma unroll
                for (u32 j = 0; j < 8; j++) v[j] += more[j];
            }
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] += bias_at(p, z, n + j);
            put8(p.y, e, seen, at, v);
        } else {
            const bool padded = p.inputs > p.c;
            const u64 from = padded ? i / p.c * p.inputs + i % p.c : i, size = padded ? total / p.c * p.inputs : total;
            float v = 0.0f;
            for (u32 split = 0; split < p.splits; split++) v += p.partials[split * size + from];
            put(p.y, e, seen, at, v + bias_at(p, z, n));
        }
    }
    end(p.y, e, seen);
}
