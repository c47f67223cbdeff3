// GEMM of f16 operands by warpgroups (wgmma, sm_90a) with cp.async loads: TILE_M × TILE_N results a block, 64 rows for
// each warpgroup, in K tiles of 64. Tensor cores read both operands from shared memory (wgmma.cuh).
//
// Copies run STAGES ahead. A proxy fence makes the copied data visible to tensor cores.

#define STAGES 3
#define A_VEC8S (A_STAGE_ELEMENTS / 8 / THREADS)
#define B_VEC8S (B_STAGE_ELEMENTS / 8 / THREADS)
// Threads that load one line, and lines from one 8-wide vector of a thread to its next.
#define A_THREADS_PER_LINE (A_K_CONTIGUOUS ? K_TILE / 8 : TILE_M / 8)
#define B_THREADS_PER_LINE (B_K_CONTIGUOUS ? K_TILE / 8 : TILE_N / 8)
#define A_LINES_PER_PASS (THREADS / A_THREADS_PER_LINE)
#define B_LINES_PER_PASS (THREADS / B_THREADS_PER_LINE)

// Returns the index of an 8-wide vector of an operand in its stage, in elements, with the 128-byte swizzle. `vec8` counts
// vectors along the contiguous direction.
DEVICE u32 swizzled_index(u32 line, u32 vec8, u32 lines) {
    return vec8 / 8 * lines * 64 + line * 64 + (vec8 % 8 ^ line % 8) * 8;
}

KERNEL(wgmma, GemmParams) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    const u32 t = thread_index(), warp = t / 32;
    const TileCoord block = tile_coord(p, block_x(), TILE_M, TILE_N);
    const u32 begin_k = block.split * p.split_len;
    const u32 end_k = p.k - begin_k < p.split_len ? p.k : begin_k + p.split_len;
    const u32 k_tiles = (end_k - begin_k + K_TILE - 1) / K_TILE;

    const u32 a_line = t / A_THREADS_PER_LINE, a_across = t % A_THREADS_PER_LINE, b_line = t / B_THREADS_PER_LINE, b_across = t % B_THREADS_PER_LINE;
    PartialAddress a_partial[A_K_CONTIGUOUS ? A_VEC8S : 1], b_partial[B_K_CONTIGUOUS ? B_VEC8S : 1];
#pragma unroll
    for (u32 i = 0; i < (A_K_CONTIGUOUS ? A_VEC8S : 1); i++) {
        u32 m = block.m + (A_K_CONTIGUOUS ? a_line + i * A_LINES_PER_PASS : a_across * 8);
        a_partial[i] = row_address(p, block.z, m < p.ROWS ? m : 0);
    }
#pragma unroll
    for (u32 i = 0; i < (B_K_CONTIGUOUS ? B_VEC8S : 1); i++) {
        u32 n = block.n + (B_K_CONTIGUOUS ? b_line + i * B_LINES_PER_PASS : b_across * 8);
        b_partial[i] = column_address(p, block.z, n < p.COLUMNS ? n : 0);
    }
    const OperandDescriptors descriptors = operand_descriptors(stages, t / 128);
    const u32 start = shared_address(stages);
    float sums[TILE_N / 8][4] = {};

    auto copy_k_tile = [&](u32 k_tile) {
        const u32 k0 = begin_k + k_tile * K_TILE;
        const u32 a = start + k_tile % STAGES * STAGE_ELEMENTS * 2, b = a + A_STAGE_ELEMENTS * 2;
        if (k_tile < k_tiles) {
#pragma unroll
            for (u32 i = 0; i < A_VEC8S; i++) {
                const u32 line = a_line + i * A_LINES_PER_PASS;
                const u32 m = block.m + (A_K_CONTIGUOUS ? line : a_across * 8), k = k0 + (A_K_CONTIGUOUS ? a_across * 8 : line);
                u32 at = row_vec8_offset(p, a_partial[A_K_CONTIGUOUS ? i : 0], m, k, end_k);
                const u32 to = a + 2 * swizzled_index(line, a_across, A_K_CONTIGUOUS ? TILE_M : K_TILE);
                cp_async(to, (const u16*)p.ROW_OPERAND + (at != OUT_OF_BOUNDS ? at : 0), at != OUT_OF_BOUNDS);
            }
#pragma unroll
            for (u32 i = 0; i < B_VEC8S; i++) {
                const u32 line = b_line + i * B_LINES_PER_PASS;
                const u32 n = block.n + (B_K_CONTIGUOUS ? line : b_across * 8), k = k0 + (B_K_CONTIGUOUS ? b_across * 8 : line);
                u32 at = column_vec8_offset(p, b_partial[B_K_CONTIGUOUS ? i : 0], n, k, end_k);
                const u32 to = b + 2 * swizzled_index(line, b_across, B_K_CONTIGUOUS ? TILE_N : K_TILE);
                cp_async(to, (const u16*)p.COLUMN_OPERAND + (at != OUT_OF_BOUNDS ? at : 0), at != OUT_OF_BOUNDS);
            }
        }
        cp_async_commit();
    };

    for (u32 k_tile = 0; k_tile < STAGES - 1; k_tile++) copy_k_tile(k_tile);
    for (u32 k_tile = 0; k_tile < k_tiles; k_tile++) {
        cp_async_wait<STAGES - 2>();
        fence_proxy_async();
        barrier();
        multiply_stage(sums, descriptors, k_tile % STAGES);
        copy_k_tile(k_tile + STAGES - 1);
        wgmma_wait(sums);
    }
    cp_async_wait<0>();
    barrier();

    // Each warp has 16 rows. Shared memory gathers eight neighbouring results in one lane.
    float* const tile = (float*)bytes + warp * EPILOGUE_TILE_FLOATS(TILE_N);
    const bool is_unsplit = p.splits == 1;
    Epilogue e;
    if (is_unsplit) e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
#pragma unroll
    for (u32 j = 0; j < TILE_N / 8; j++) smem_write<TILE_N>(tile, j * 8, sums[j]);
    warp_barrier();
    smem_store<TILE_N>(p, block, block.m + warp * 16, block.n, tile, e, stats);
    if (is_unsplit) end_epilogue(p.y, e, stats);
}
