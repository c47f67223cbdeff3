// A copy that does nothing else, for the bandwidth that others are compared with: 16 bytes a load, COPY_LOADS of them
// under way in each thread.

struct CopyParams {
    const Words4* x;
    Words4* y;
    u64 count;
};

// Kernel that copies chunks of THREADS * COPY_LOADS contiguous words in each block, so that its loads and stores stay
// in few pages of memory.
KERNEL(copy_words4, CopyParams) {
    const u64 chunk = (u64)THREADS * COPY_LOADS;
    const u64 step = (u64)blocks_x() * chunk;
    for (u64 begin = (u64)block_x() * chunk; begin < p.count; begin += step) {
        const u64 first = begin + thread_index();
        if (begin + chunk <= p.count) {
            Words4 words[COPY_LOADS];
#pragma unroll
            for (u32 i = 0; i < COPY_LOADS; i++) words[i] = load_streaming(p.x + first + (u64)i * THREADS);
#pragma unroll
            for (u32 i = 0; i < COPY_LOADS; i++) p.y[first + (u64)i * THREADS] = words[i];
        } else {
            for (u64 i = first; i < p.count; i += THREADS) p.y[i] = p.x[i];
        }
    }
}
