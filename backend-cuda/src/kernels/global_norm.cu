// √Σ‖g‖² over several tensors. f64 holds the square of every f32, and the sum of 2^32 of them.

struct Listed {
    const float* x;
    u32 len;
    u32 first;
};

struct GlobalNormParams {
    // One for each block of all launches.
    double* sums;
    u32 pieces;
    u32 count;
    // Where this launch's sums begin.
    u32 sum;
    u32 unused;
    Listed tensors[LIST_TENSORS];
};

KERNEL(global_norm, GlobalNormParams) {
    const u32 t = thread_index();
    double sum[1] = {0};
    for (u32 piece = block_x(); piece < p.pieces; piece += blocks_x()) {
        const Listed& of = p.tensors[tensor_of(p.tensors, p.count, piece)];
        const u32 start = (piece - of.first) * LIST_PIECE;
        const u32 end = of.len - start < LIST_PIECE ? of.len : start + LIST_PIECE, whole = end / 4 * 4;
        for (u32 i = start + 4 * t; i < whole; i += 4 * THREADS) {
            const Words4 words = *(const Words4*)(of.x + i);
            const double v[4] = {of_bits(words.x), of_bits(words.y), of_bits(words.z), of_bits(words.w)};
            sum[0] += (v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3]);
        }
        if (whole + t < end) sum[0] += (double)of.x[whole + t] * of.x[whole + t];
    }
    over_block(sum);
    if (t == 0) p.sums[p.sum + block_x()] = sum[0];
}

struct GlobalNormEnd {
    const double* sums;
    float* norm;
    // How many sums there are.
    u32 count;
    u32 unused;
};

// One block.
KERNEL(global_norm_finish, GlobalNormEnd) {
    double sum[1] = {0};
    for (u32 i = thread_index(); i < p.count; i += THREADS) sum[0] += p.sums[i];
    over_block(sum);
    if (thread_index() == 0) *p.norm = (float)sqrt(sum[0]);
}
