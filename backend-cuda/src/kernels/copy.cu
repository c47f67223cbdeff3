// Strided copies. Dimensions come in the order of y, outermost first, so that neighbouring threads write neighbours.

struct CopyParams {
    Store y;
    const void* x;
    // Places are below 2^32, so steps back wrap round.
    u32 x_steps[COPY_DIMS], y_steps[COPY_DIMS];
    u32 x_start, y_start;
    u32 lens[COPY_DIMS];
    u32 type;
    u32 count;
    // Whether all is aligned to eights, and eights are contiguous in x and y.
    u32 wide;
    u32 unused;
};

struct Places {
    u32 x, y;
};

// Where the `i`th element copied comes from, and where it goes.
DEVICE Places places(const CopyParams& p, u32 i) {
    Places at = {p.x_start, p.y_start};
#pragma unroll
    for (int d = COPY_DIMS - 1; d >= 0; d--) {
        if (p.lens[d] == 1) continue;
        const u32 rest = i / p.lens[d], step = i - rest * p.lens[d];
        at.x += step * p.x_steps[d], at.y += step * p.y_steps[d];
        i = rest;
    }
    return at;
}

KERNEL(copy, CopyParams) {
    Epilogue e = begin(p.y);
    Seen seen = {};
    const u64 first = (u64)block_x() * thread_count() + thread_index(), step = (u64)blocks_x() * thread_count();
    if (p.wide) {
        for (u64 group = first; group < p.count / 8; group += step) {
            const Places at = places(p, (u32)group * 8);
            float v[8];
            load8(p.x, p.type, at.x, v);
            put8(p.y, e, seen, at.y, v);
        }
    } else {
        for (u64 i = first; i < p.count; i += step) {
            const Places at = places(p, (u32)i);
            put(p.y, e, seen, at.y, load(p.x, p.type, at.x));
        }
    }
    end(p.y, e, seen);
}

// Words as they are: f32 has no room for all of them.
KERNEL(copy_words, CopyParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        const Places at = places(p, (u32)i);
        ((u32*)p.y.y)[at.y] = ((const u32*)p.x)[at.x];
    }
}
