// Strided copies. Dimensions are in the order of y, outermost first, so that neighbouring threads write neighbours.

struct CopyParams {
    Store y;
    const void* x;
    // Strides of each dimension in elements. Offsets are below 2^32, so negative strides wrap.
    u32 x_strides[COPY_DIMS], y_strides[COPY_DIMS];
    u32 x_start, y_start;
    u32 lens[COPY_DIMS];
    u32 type;
    u32 count;
    // 1 if 8-wide vectors are contiguous and aligned in x and y.
    u32 vectorized;
    u32 unused;
};

struct Offsets {
    u32 x, y;
};

// Returns the offsets of the `i`th element in x and in y.
DEVICE Offsets copy_offsets(const CopyParams& p, u32 i) {
    Offsets offsets = {p.x_start, p.y_start};
#pragma unroll
    for (int d = COPY_DIMS - 1; d >= 0; d--) {
        if (p.lens[d] == 1) continue;
        const u32 rest = i / p.lens[d], step = i - rest * p.lens[d];
        offsets.x += step * p.x_strides[d], offsets.y += step * p.y_strides[d];
        i = rest;
    }
    return offsets;
}

KERNEL(copy, CopyParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    const u64 first = (u64)block_x() * thread_count() + thread_index(), step = (u64)blocks_x() * thread_count();
    if (p.vectorized) {
        for (u64 group = first; group < p.count / 8; group += step) {
            const Offsets offsets = copy_offsets(p, (u32)group * 8);
            float v[8];
            load_vec8(p.x, p.type, offsets.x, v);
            store_vec8(p.y, e, stats, offsets.y, v);
        }
    } else {
        for (u64 i = first; i < p.count; i += step) {
            const Offsets offsets = copy_offsets(p, (u32)i);
            store_scalar(p.y, e, stats, offsets.y, load(p.x, p.type, offsets.x));
        }
    }
    end_epilogue(p.y, e, stats);
}

// Copies words unchanged, because f32 cannot represent all of them.
KERNEL(copy_words, CopyParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        const Offsets offsets = copy_offsets(p, (u32)i);
        ((u32*)p.y.y)[offsets.y] = ((const u32*)p.x)[offsets.x];
    }
}
