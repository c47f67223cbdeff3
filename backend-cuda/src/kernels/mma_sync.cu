// GEMM of f16 operands by mma.sync: TILE_M × TILE_N results a block, 64 × 32 (or 32 × 32) a warp, in K tiles of 32.
//
// Shared memory has the layout of global memory: [m or n][k] if k is contiguous, otherwise [k][m or n]. Each line has 16
// bytes of padding, so that the eight rows of a matrix are in different banks. From sm_80 on, copies run STAGES ahead (double buffering).
// Before, and for unaligned operands, the next K tile waits in registers.
//
// VECTORIZED: 8-wide vectors of operands are aligned, and each is inside its operand or outside it as a whole.

#define K_TILE 32
#define WARP_M (TILE_M / WARPS_M)
#define WARP_N (TILE_N / WARPS_N)
#define MATRICES_M (WARP_M / 16)
#define MATRICES_N (WARP_N / 8)
#define STAGES 3

// Elements from line to line in shared memory.
#define A_SMEM_PITCH (A_K_CONTIGUOUS ? K_TILE + 8 : TILE_M + 8)
#define B_SMEM_PITCH (B_K_CONTIGUOUS ? K_TILE + 8 : TILE_N + 8)
#define A_STAGE_ELEMENTS (A_K_CONTIGUOUS ? TILE_M * A_SMEM_PITCH : K_TILE * A_SMEM_PITCH)
#define B_STAGE_ELEMENTS (B_K_CONTIGUOUS ? TILE_N * B_SMEM_PITCH : K_TILE * B_SMEM_PITCH)
#define STAGE_ELEMENTS (A_STAGE_ELEMENTS + B_STAGE_ELEMENTS)
// Floats from row to row of the accumulators in shared memory, with padding against bank conflicts.
#define EPILOGUE_PITCH (WARP_N + 4)
// 8-wide vectors that a thread loads for a K tile.
#define A_VEC8S (TILE_M * K_TILE / 8 / THREADS)
#define B_VEC8S (TILE_N * K_TILE / 8 / THREADS)
// Threads that load one line, and lines from one 8-wide vector of a thread to its next.
#define A_THREADS_PER_LINE (A_K_CONTIGUOUS ? K_TILE / 8 : TILE_M / 8)
#define B_THREADS_PER_LINE (B_K_CONTIGUOUS ? K_TILE / 8 : TILE_N / 8)
#define A_LINES_PER_PASS (THREADS / A_THREADS_PER_LINE)
#define B_LINES_PER_PASS (THREADS / B_THREADS_PER_LINE)

#if !VECTORIZED
// Returns the bits of an element, or of 0 out of bounds.
DEVICE u32 load_half_or_zero(const void* x, u32 at) { return at != OUT_OF_BOUNDS ? ((const u16*)x)[at] : 0; }

DEVICE Words4 gather_a_vec8(const GemmParams& p, u32 z, const PartialAddress& side, u32 row, u32 k, u32 end_k) {
    u32 v[8];
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        u32 m = row + (A_K_CONTIGUOUS ? 0 : j), at = k + (A_K_CONTIGUOUS ? j : 0);
        PartialAddress line = A_K_CONTIGUOUS ? side : a_address_m(p, z, m < p.m ? m : 0);
        v[j] = load_half_or_zero(p.a, a_vec8_offset(p, line, m, at, end_k));
    }
    return Words4{v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16};
}
DEVICE Words4 gather_b_vec8(const GemmParams& p, u32 z, const PartialAddress& side, u32 column, u32 k, u32 end_k) {
    u32 v[8];
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        u32 n = column + (B_K_CONTIGUOUS ? 0 : j), at = k + (B_K_CONTIGUOUS ? j : 0);
        PartialAddress line = B_K_CONTIGUOUS ? side : b_address_n(p, z, n < p.n ? n : 0);
        v[j] = load_half_or_zero(p.b, b_vec8_offset(p, line, n, at, end_k));
    }
    return Words4{v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16};
}
#endif

// Byte offsets in a stage of the rows that a lane passes to ldmatrix for the first matrices. Others have constant offsets.
struct FragmentOffsets {
    u32 a, b;
};
DEVICE FragmentOffsets fragment_offsets(u32 warp_m, u32 warp_n) {
    const u32 lane = thread_index() % 32, matrix = lane / 8, r = lane % 8;
    const u32 m = warp_m + matrix % 2 * 8, a_k = matrix / 2 * 8, n = warp_n + matrix / 2 * 8, b_k = matrix % 2 * 8;
    return FragmentOffsets{2 * (A_K_CONTIGUOUS ? (m + r) * A_SMEM_PITCH + a_k : (a_k + r) * A_SMEM_PITCH + m),
                2 * (A_STAGE_ELEMENTS + (B_K_CONTIGUOUS ? (n + r) * B_SMEM_PITCH + b_k : (b_k + r) * B_SMEM_PITCH + n))};
}

// Multiplies a warp's part of a K tile.
DEVICE void multiply_k_tile(u32 stage, const FragmentOffsets& offsets, float (&sums)[MATRICES_M][MATRICES_N][4]) {
    const u32 a = stage + offsets.a, b = stage + offsets.b;
#pragma unroll
    for (u32 k = 0; k < K_TILE; k += 16) {
        u32 a_fragments[MATRICES_M][4], b_fragments[MATRICES_N][2];
#pragma unroll
        for (u32 i = 0; i < MATRICES_M; i++) {
            if (A_K_CONTIGUOUS) {
                ldmatrix(a_fragments[i], a + 2 * (i * 16 * A_SMEM_PITCH + k));
            } else {
                ldmatrix_trans(a_fragments[i], a + 2 * (k * A_SMEM_PITCH + i * 16));
            }
        }
#pragma unroll
        for (u32 j = 0; j < MATRICES_N; j += 2) {
            u32 b_pair[4];
            if (B_K_CONTIGUOUS) {
                ldmatrix(b_pair, b + 2 * (j * 8 * B_SMEM_PITCH + k));
            } else {
                ldmatrix_trans(b_pair, b + 2 * (k * B_SMEM_PITCH + j * 8));
            }
            b_fragments[j][0] = b_pair[0], b_fragments[j][1] = b_pair[1];
            b_fragments[j + 1][0] = b_pair[2], b_fragments[j + 1][1] = b_pair[3];
        }
#pragma unroll
        for (u32 i = 0; i < MATRICES_M; i++) {
#pragma unroll
            for (u32 j = 0; j < MATRICES_N; j++) mma_sync(sums[i][j], a_fragments[i], b_fragments[j]);
        }
    }
}

KERNEL(mma_sync_gemm, GemmParams) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    const u32 t = thread_index(), warp = t / 32, lane = t % 32;
    const u32 warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    const TileCoord block = swizzled_tile(p, block_x(), TILE_M, TILE_N);
    const u32 begin_k = block.split * p.split_len;
    const u32 end_k = p.k - begin_k < p.split_len ? p.k : begin_k + p.split_len;
    const u32 k_tiles = (end_k - begin_k + K_TILE - 1) / K_TILE;

    // Line and position in it that a thread loads, of a and of b.
    const u32 a_line = t / A_THREADS_PER_LINE, a_across = t % A_THREADS_PER_LINE * 8, b_line = t / B_THREADS_PER_LINE, b_across = t % B_THREADS_PER_LINE * 8;
    PartialAddress a_partial[A_K_CONTIGUOUS ? A_VEC8S : 1], b_partial[B_K_CONTIGUOUS ? B_VEC8S : 1];
#pragma unroll
    for (u32 i = 0; i < (A_K_CONTIGUOUS ? A_VEC8S : 1); i++) {
        u32 m = block.m + (A_K_CONTIGUOUS ? a_line + i * A_LINES_PER_PASS : a_across);
        a_partial[i] = a_address_m(p, block.z, m < p.m ? m : 0);
    }
#pragma unroll
    for (u32 i = 0; i < (B_K_CONTIGUOUS ? B_VEC8S : 1); i++) {
        u32 n = block.n + (B_K_CONTIGUOUS ? b_line + i * B_LINES_PER_PASS : b_across);
        b_partial[i] = b_address_n(p, block.z, n < p.n ? n : 0);
    }
    const FragmentOffsets offsets = fragment_offsets(warp_m, warp_n);
    const u32 start = shared_address(stages);
    float sums[MATRICES_M][MATRICES_N][4] = {};

#define A_ROW(i) (block.m + (A_K_CONTIGUOUS ? a_line + (i) * A_LINES_PER_PASS : a_across))
#define A_K(i, k0) ((k0) + (A_K_CONTIGUOUS ? a_across : a_line + (i) * A_LINES_PER_PASS))
#define B_COLUMN(i) (block.n + (B_K_CONTIGUOUS ? b_line + (i) * B_LINES_PER_PASS : b_across))
#define B_K(i, k0) ((k0) + (B_K_CONTIGUOUS ? b_across : b_line + (i) * B_LINES_PER_PASS))
#define A_SMEM_INDEX(i) ((a_line + (i) * A_LINES_PER_PASS) * A_SMEM_PITCH + a_across)
#define B_SMEM_INDEX(i) (A_STAGE_ELEMENTS + (b_line + (i) * B_LINES_PER_PASS) * B_SMEM_PITCH + b_across)

#if VECTORIZED && HAS_CP_ASYNC
    auto copy_k_tile = [&](u32 k_tile) {
        const u32 k0 = begin_k + k_tile * K_TILE;
        const u32 stage = start + k_tile % STAGES * STAGE_ELEMENTS * 2;
        if (k_tile < k_tiles) {
#pragma unroll
            for (u32 i = 0; i < A_VEC8S; i++) {
                u32 at = a_vec8_offset(p, a_partial[A_K_CONTIGUOUS ? i : 0], A_ROW(i), A_K(i, k0), end_k);
                cp_async(stage + 2 * A_SMEM_INDEX(i), (const u16*)p.a + (at != OUT_OF_BOUNDS ? at : 0), at != OUT_OF_BOUNDS);
            }
#pragma unroll
            for (u32 i = 0; i < B_VEC8S; i++) {
                u32 at = b_vec8_offset(p, b_partial[B_K_CONTIGUOUS ? i : 0], B_COLUMN(i), B_K(i, k0), end_k);
                cp_async(stage + 2 * B_SMEM_INDEX(i), (const u16*)p.b + (at != OUT_OF_BOUNDS ? at : 0), at != OUT_OF_BOUNDS);
            }
        }
        cp_async_commit();
    };
    for (u32 k_tile = 0; k_tile < STAGES - 1; k_tile++) copy_k_tile(k_tile);
    for (u32 k_tile = 0; k_tile < k_tiles; k_tile++) {
        cp_async_wait<STAGES - 2>();
        barrier();
        copy_k_tile(k_tile + STAGES - 1);
        multiply_k_tile(start + k_tile % STAGES * STAGE_ELEMENTS * 2, offsets, sums);
    }
    cp_async_wait<0>();
    barrier();
#else
    Words4 a_next[A_VEC8S], b_next[B_VEC8S];
    auto load_k_tile = [&](u32 k_tile) {
        const u32 k0 = begin_k + k_tile * K_TILE;
#pragma unroll
        for (u32 i = 0; i < A_VEC8S; i++) {
#if VECTORIZED
            u32 at = a_vec8_offset(p, a_partial[A_K_CONTIGUOUS ? i : 0], A_ROW(i), A_K(i, k0), end_k);
            a_next[i] = at != OUT_OF_BOUNDS ? *(const Words4*)((const u16*)p.a + at) : Words4{0, 0, 0, 0};
#else
            a_next[i] = gather_a_vec8(p, block.z, a_partial[A_K_CONTIGUOUS ? i : 0], A_ROW(i), A_K(i, k0), end_k);
#endif
        }
#pragma unroll
        for (u32 i = 0; i < B_VEC8S; i++) {
#if VECTORIZED
            u32 at = b_vec8_offset(p, b_partial[B_K_CONTIGUOUS ? i : 0], B_COLUMN(i), B_K(i, k0), end_k);
            b_next[i] = at != OUT_OF_BOUNDS ? *(const Words4*)((const u16*)p.b + at) : Words4{0, 0, 0, 0};
#else
            b_next[i] = gather_b_vec8(p, block.z, b_partial[B_K_CONTIGUOUS ? i : 0], B_COLUMN(i), B_K(i, k0), end_k);
#endif
        }
    };
    auto write_k_tile = [&](u32 k_tile) {
        u16* const stage = stages + k_tile % 2 * STAGE_ELEMENTS;
#pragma unroll
        for (u32 i = 0; i < A_VEC8S; i++) *(Words4*)(stage + A_SMEM_INDEX(i)) = a_next[i];
#pragma unroll
        for (u32 i = 0; i < B_VEC8S; i++) *(Words4*)(stage + B_SMEM_INDEX(i)) = b_next[i];
    };
    if (k_tiles != 0) {
        load_k_tile(0);
        write_k_tile(0);
    }
    barrier();
    for (u32 k_tile = 0; k_tile < k_tiles; k_tile++) {
        if (k_tile + 1 < k_tiles) load_k_tile(k_tile + 1);
        multiply_k_tile(start + k_tile % 2 * STAGE_ELEMENTS * 2, offsets, sums);
        if (k_tile + 1 < k_tiles) write_k_tile(k_tile + 1);
        barrier();
    }
#endif

    // Shared memory gathers eight neighbouring results in one lane, 32 rows of a warp at a time.
    float* const tile = (float*)bytes + warp * 32 * EPILOGUE_PITCH;
    float* const lane_origin = tile + lane / 4 * EPILOGUE_PITCH + lane % 4 * 2;
    const bool is_unsplit = p.splits == 1;
    Epilogue e;
    if (is_unsplit) e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
#pragma unroll
    for (u32 i = 0; i < MATRICES_M; i += 2) {
#pragma unroll
        for (u32 j = 0; j < 2 * MATRICES_N; j++) {
            const float* from = sums[i + j / MATRICES_N][j % MATRICES_N];
            float* to = lane_origin + j / MATRICES_N * 16 * EPILOGUE_PITCH + j % MATRICES_N * 8;
            to[0] = from[0], to[1] = from[1];
            to[8 * EPILOGUE_PITCH] = from[2], to[8 * EPILOGUE_PITCH + 1] = from[3];
        }
        warp_barrier();
        store_epilogue_tile(p, block.z, block.split, block.m + warp_m + i * 16, block.n + warp_n, tile, EPILOGUE_PITCH, 32,
                            WARP_N / 8, e, stats);
        warp_barrier();
    }
    if (is_unsplit) end_epilogue(p.y, e, stats);
}
