// Global norm √Σ‖g‖² of several tensors. f64 represents the square of every f32, and the sum of 2^32 of them.

struct TensorEntry {
    const float* x;
    u32 len;
    u32 first_chunk;
};

struct GlobalNormParams {
    // Partial sums of squares, one for each block of all launches.
    double* sums;
    u32 chunks;
    u32 count;
    // Index of the first partial sum that this launch writes.
    u32 sum;
    u32 unused;
    TensorEntry tensors[MAX_TENSORS_PER_LAUNCH];
};

KERNEL(global_norm, GlobalNormParams) {
    const u32 t = thread_index();
    double sum[1] = {0};
    for (u32 chunk = block_x(); chunk < p.chunks; chunk += blocks_x()) {
        const TensorEntry& tensor = p.tensors[find_tensor(p.tensors, p.count, chunk)];
        const u32 start = (chunk - tensor.first_chunk) * CHUNK_ELEMENTS;
        const u32 end = tensor.len - start < CHUNK_ELEMENTS ? tensor.len : start + CHUNK_ELEMENTS, vec4_end = end / 4 * 4;
        for (u32 i = start + 4 * t; i < vec4_end; i += 4 * THREADS) {
            const Words4 words = *(const Words4*)(tensor.x + i);
            const double v[4] = {bits_as_float(words.x), bits_as_float(words.y), bits_as_float(words.z), bits_as_float(words.w)};
            sum[0] += (v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3]);
        }
        if (vec4_end + t < end) sum[0] += (double)tensor.x[vec4_end + t] * tensor.x[vec4_end + t];
    }
    block_reduce(sum);
    if (t == 0) p.sums[p.sum + block_x()] = sum[0];
}

struct GlobalNormFinishParams {
    const double* sums;
    float* norm;
    // Number of partial sums of squares.
    u32 count;
    u32 unused;
};

// Adds the sums of all blocks and takes the root. One block.
KERNEL(global_norm_finish, GlobalNormFinishParams) {
    double sum[1] = {0};
    for (u32 i = thread_index(); i < p.count; i += THREADS) sum[0] += p.sums[i];
    block_reduce(sum);
    if (thread_index() == 0) *p.norm = (float)sqrt(sum[0]);
}
