// Products of halves by whole warpgroups (wgmma, sm_90a): TILE_M × TILE_N results a block, 64 rows for each group of
// four warps, 64 of k at a time. Both operands are read from shared memory by the tensor cores themselves (wgmma.cuh).
//
// Copies run STAGES ahead. What they wrote is handed to the tensor cores by a fence between the two ways to memory.

#define STAGES 3
#define A_VEC8S (A_HALVES / 8 / THREADS)
#define B_VEC8S (B_HALVES / 8 / THREADS)
// Threads along a line, and lines between two eights of a thread.
#define A_ACROSS (A_ALONG_K ? DEPTH / 8 : TILE_M / 8)
#define B_ACROSS (B_ALONG_K ? DEPTH / 8 : TILE_N / 8)
#define A_STEP (THREADS / A_ACROSS)
#define B_STEP (THREADS / B_ACROSS)

// The place of an eight in an operand, in halves: `across` counts eights along the contiguous direction.
DEVICE u32 place(u32 line, u32 across, u32 lines) {
    return across / 8 * lines * 64 + line * 64 + (across % 8 ^ line % 8) * 8;
}

KERNEL(wgmma, Product) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    const u32 t = thread_index(), warp = t / 32;
    const Block block = tile_of(p, block_x(), TILE_M, TILE_N);
    const u32 begin_k = block.split * p.depth;
    const u32 end_k = p.k - begin_k < p.depth ? p.k : begin_k + p.depth;
    const u32 steps = (end_k - begin_k + DEPTH - 1) / DEPTH;

    const u32 a_line = t / A_ACROSS, a_across = t % A_ACROSS, b_line = t / B_ACROSS, b_across = t % B_ACROSS;
    Side a_side[A_ALONG_K ? A_VEC8S : 1], b_side[B_ALONG_K ? B_VEC8S : 1];
#pragma unroll
    for (u32 i = 0; i < (A_ALONG_K ? A_VEC8S : 1); i++) {
        u32 m = block.m + (A_ALONG_K ? a_line + i * A_STEP : a_across * 8);
        a_side[i] = side_of_row(p, block.z, m < p.ROWS ? m : 0);
    }
#pragma unroll
    for (u32 i = 0; i < (B_ALONG_K ? B_VEC8S : 1); i++) {
        u32 n = block.n + (B_ALONG_K ? b_line + i * B_STEP : b_across * 8);
        b_side[i] = side_of_column(p, block.z, n < p.COLUMNS ? n : 0);
    }
    const Operands operands = operands_of(stages, t / 128);
    const u32 start = shared_address(stages);
    float sums[TILE_N / 8][4] = {};

    auto bring = [&](u32 step) {
        const u32 k0 = begin_k + step * DEPTH;
        const u32 a = start + step % STAGES * STAGE * 2, b = a + A_HALVES * 2;
        if (step < steps) {
#pragma unroll
            for (u32 i = 0; i < A_VEC8S; i++) {
                const u32 line = a_line + i * A_STEP;
                const u32 m = block.m + (A_ALONG_K ? line : a_across * 8), k = k0 + (A_ALONG_K ? a_across * 8 : line);
                u32 at = row_start(p, a_side[A_ALONG_K ? i : 0], m, k, end_k);
                const u32 to = a + 2 * place(line, a_across, A_ALONG_K ? TILE_M : DEPTH);
                cp_async(to, (const u16*)p.ROW_OPERAND + (at != NOWHERE ? at : 0), at != NOWHERE);
            }
#pragma unroll
            for (u32 i = 0; i < B_VEC8S; i++) {
                const u32 line = b_line + i * B_STEP;
                const u32 n = block.n + (B_ALONG_K ? line : b_across * 8), k = k0 + (B_ALONG_K ? b_across * 8 : line);
                u32 at = column_start(p, b_side[B_ALONG_K ? i : 0], n, k, end_k);
                const u32 to = b + 2 * place(line, b_across, B_ALONG_K ? TILE_N : DEPTH);
                cp_async(to, (const u16*)p.COLUMN_OPERAND + (at != NOWHERE ? at : 0), at != NOWHERE);
            }
        }
        cp_async_commit();
    };

    for (u32 step = 0; step < STAGES - 1; step++) bring(step);
    for (u32 step = 0; step < steps; step++) {
        cp_async_wait<STAGES - 2>();
        fence_proxy_async();
        barrier();
        multiply_stage(sums, operands, step % STAGES);
        bring(step + STAGES - 1);
        wgmma_wait(sums);
    }
    cp_async_wait<0>();
    barrier();

    // Each warp has 16 rows; eight results side by side meet in one lane.
    float* const tile = (float*)bytes + warp * EPILOGUE_FLOATS(TILE_N);
    const bool whole = p.splits == 1;
    Epilogue e;
    if (whole) e = begin(p.y);
    Seen seen = {};
#pragma unroll
    for (u32 j = 0; j < TILE_N / 8; j++) keep<TILE_N>(tile, j * 8, sums[j]);
    warp_barrier();
    store_kept<TILE_N>(p, block, block.m + warp * 16, block.n, tile, e, seen);
    if (whole) end(p.y, e, seen);
}
