// Products of halves on tensor cores: TILE_M × TILE_N results a block, 64 × 32 (or 32 × 32) a warp, 32 of k at a time.
//
// Operands lie in shared memory as they lie in memory: [m or n][k] where k is contiguous, [k][m or n] elsewhere, each
// line longer by 16 bytes, so that the eight rows of a matrix lie in different banks. From sm_80 on copies run STAGES
// ahead of the sums; before, and where operands are not aligned, they wait in registers.
//
// WIDE: eight halves side by side are all there or none, and aligned.

#define DEPTH 32
#define WARP_M (TILE_M / WARPS_M)
#define WARP_N (TILE_N / WARPS_N)
#define MATRICES_M (WARP_M / 16)
#define MATRICES_N (WARP_N / 8)
#define STAGES 3

// Halves of a line in shared memory.
#define A_LINE (A_ALONG_K ? DEPTH + 8 : TILE_M + 8)
#define B_LINE (B_ALONG_K ? DEPTH + 8 : TILE_N + 8)
#define A_HALVES (A_ALONG_K ? TILE_M * A_LINE : DEPTH * A_LINE)
#define B_HALVES (B_ALONG_K ? TILE_N * B_LINE : DEPTH * B_LINE)
#define STAGE (A_HALVES + B_HALVES)
// Floats of a line of results on their way out.
#define EPILOGUE_LINE (WARP_N + 4)
// Eights that a thread brings.
#define A_VEC8S (TILE_M * DEPTH / 8 / THREADS)
#define B_VEC8S (TILE_N * DEPTH / 8 / THREADS)
// Threads along a line, and lines between two eights of a thread.
#define A_ACROSS (A_ALONG_K ? DEPTH / 8 : TILE_M / 8)
#define B_ACROSS (B_ALONG_K ? DEPTH / 8 : TILE_N / 8)
#define A_STEP (THREADS / A_ACROSS)
#define B_STEP (THREADS / B_ACROSS)

#if !WIDE
// One half, or 0.
DEVICE u32 half_at(const void* x, u32 at) { return at != NOWHERE ? ((const u16*)x)[at] : 0; }

DEVICE Words4 gather_a(const Product& p, u32 z, const Side& side, u32 row, u32 k, u32 end_k) {
    u32 v[8];
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        u32 m = row + (A_ALONG_K ? 0 : j), at = k + (A_ALONG_K ? j : 0);
        Side own = A_ALONG_K ? side : a_of_m(p, z, m < p.m ? m : 0);
        v[j] = half_at(p.a, a_start(p, own, m, at, end_k));
    }
    return Words4{v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16};
}
DEVICE Words4 gather_b(const Product& p, u32 z, const Side& side, u32 column, u32 k, u32 end_k) {
    u32 v[8];
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        u32 n = column + (B_ALONG_K ? 0 : j), at = k + (B_ALONG_K ? j : 0);
        Side own = B_ALONG_K ? side : b_of_n(p, z, n < p.n ? n : 0);
        v[j] = half_at(p.b, b_start(p, own, n, at, end_k));
    }
    return Words4{v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16};
}
#endif

// Where a lane's rows of the first matrices lie in a stage, in bytes; all others are a constant further.
struct Rows {
    u32 a, b;
};
DEVICE Rows rows_of(u32 warp_m, u32 warp_n) {
    const u32 lane = thread_index() % 32, matrix = lane / 8, r = lane % 8;
    const u32 m = warp_m + matrix % 2 * 8, a_k = matrix / 2 * 8, n = warp_n + matrix / 2 * 8, b_k = matrix % 2 * 8;
    return Rows{2 * (A_ALONG_K ? (m + r) * A_LINE + a_k : (a_k + r) * A_LINE + m),
                2 * (A_HALVES + (B_ALONG_K ? (n + r) * B_LINE + b_k : (b_k + r) * B_LINE + n))};
}

// The matrices of one stage that a warp multiplies.
DEVICE void multiply(u32 stage, const Rows& rows, float (&sums)[MATRICES_M][MATRICES_N][4]) {
    const u32 a = stage + rows.a, b = stage + rows.b;
#pragma unroll
    for (u32 k = 0; k < DEPTH; k += 16) {
        u32 left[MATRICES_M][4], right[MATRICES_N][2];
#pragma unroll
        for (u32 i = 0; i < MATRICES_M; i++) {
            if (A_ALONG_K) {
                ldmatrix(left[i], a + 2 * (i * 16 * A_LINE + k));
            } else {
                ldmatrix_trans(left[i], a + 2 * (k * A_LINE + i * 16));
            }
        }
#pragma unroll
        for (u32 j = 0; j < MATRICES_N; j += 2) {
            u32 both[4];
            if (B_ALONG_K) {
                ldmatrix(both, b + 2 * (j * 8 * B_LINE + k));
            } else {
                ldmatrix_trans(both, b + 2 * (k * B_LINE + j * 8));
            }
            right[j][0] = both[0], right[j][1] = both[1];
            right[j + 1][0] = both[2], right[j + 1][1] = both[3];
        }
#pragma unroll
        for (u32 i = 0; i < MATRICES_M; i++) {
#pragma unroll
            for (u32 j = 0; j < MATRICES_N; j++) mma_sync(sums[i][j], left[i], right[j]);
        }
    }
}

KERNEL(tensor, Product) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    const u32 t = thread_index(), warp = t / 32, lane = t % 32;
    const u32 warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    const Block block = block_of(p, block_x(), TILE_M, TILE_N);
    const u32 begin_k = block.split * p.depth;
    const u32 end_k = p.k - begin_k < p.depth ? p.k : begin_k + p.depth;
    const u32 steps = (end_k - begin_k + DEPTH - 1) / DEPTH;

    // Lines and places across, of a and of b.
    const u32 a_line = t / A_ACROSS, a_across = t % A_ACROSS * 8, b_line = t / B_ACROSS, b_across = t % B_ACROSS * 8;
    Side a_side[A_ALONG_K ? A_VEC8S : 1], b_side[B_ALONG_K ? B_VEC8S : 1];
#pragma unroll
    for (u32 i = 0; i < (A_ALONG_K ? A_VEC8S : 1); i++) {
        u32 m = block.m + (A_ALONG_K ? a_line + i * A_STEP : a_across);
        a_side[i] = a_of_m(p, block.z, m < p.m ? m : 0);
    }
#pragma unroll
    for (u32 i = 0; i < (B_ALONG_K ? B_VEC8S : 1); i++) {
        u32 n = block.n + (B_ALONG_K ? b_line + i * B_STEP : b_across);
        b_side[i] = b_of_n(p, block.z, n < p.n ? n : 0);
    }
    const Rows rows = rows_of(warp_m, warp_n);
    const u32 start = shared_address(stages);
    float sums[MATRICES_M][MATRICES_N][4] = {};

#define A_ROW(i) (block.m + (A_ALONG_K ? a_line + (i) * A_STEP : a_across))
#define A_K(i, k0) ((k0) + (A_ALONG_K ? a_across : a_line + (i) * A_STEP))
#define B_COLUMN(i) (block.n + (B_ALONG_K ? b_line + (i) * B_STEP : b_across))
#define B_K(i, k0) ((k0) + (B_ALONG_K ? b_across : b_line + (i) * B_STEP))
#define A_TO(i) ((a_line + (i) * A_STEP) * A_LINE + a_across)
#define B_TO(i) (A_HALVES + (b_line + (i) * B_STEP) * B_LINE + b_across)

#if WIDE && HAS_CP_ASYNC
    auto bring = [&](u32 step) {
        const u32 k0 = begin_k + step * DEPTH;
        const u32 stage = start + step % STAGES * STAGE * 2;
        if (step < steps) {
#pragma unroll
            for (u32 i = 0; i < A_VEC8S; i++) {
                u32 at = a_start(p, a_side[A_ALONG_K ? i : 0], A_ROW(i), A_K(i, k0), end_k);
                cp_async(stage + 2 * A_TO(i), (const u16*)p.a + (at != NOWHERE ? at : 0), at != NOWHERE);
            }
#pragma unroll
            for (u32 i = 0; i < B_VEC8S; i++) {
                u32 at = b_start(p, b_side[B_ALONG_K ? i : 0], B_COLUMN(i), B_K(i, k0), end_k);
                cp_async(stage + 2 * B_TO(i), (const u16*)p.b + (at != NOWHERE ? at : 0), at != NOWHERE);
            }
        }
        cp_async_commit();
    };
    for (u32 step = 0; step < STAGES - 1; step++) bring(step);
    for (u32 step = 0; step < steps; step++) {
        cp_async_wait<STAGES - 2>();
        barrier();
        bring(step + STAGES - 1);
        multiply(start + step % STAGES * STAGE * 2, rows, sums);
    }
    cp_async_wait<0>();
    barrier();
#else
    Words4 a_next[A_VEC8S], b_next[B_VEC8S];
    auto fetch = [&](u32 step) {
        const u32 k0 = begin_k + step * DEPTH;
#pragma unroll
        for (u32 i = 0; i < A_VEC8S; i++) {
#if WIDE
            u32 at = a_start(p, a_side[A_ALONG_K ? i : 0], A_ROW(i), A_K(i, k0), end_k);
            a_next[i] = at != NOWHERE ? *(const Words4*)((const u16*)p.a + at) : Words4{0, 0, 0, 0};
#else
            a_next[i] = gather_a(p, block.z, a_side[A_ALONG_K ? i : 0], A_ROW(i), A_K(i, k0), end_k);
#endif
        }
#pragma unroll
        for (u32 i = 0; i < B_VEC8S; i++) {
#if WIDE
            u32 at = b_start(p, b_side[B_ALONG_K ? i : 0], B_COLUMN(i), B_K(i, k0), end_k);
            b_next[i] = at != NOWHERE ? *(const Words4*)((const u16*)p.b + at) : Words4{0, 0, 0, 0};
#else
            b_next[i] = gather_b(p, block.z, b_side[B_ALONG_K ? i : 0], B_COLUMN(i), B_K(i, k0), end_k);
#endif
        }
    };
    auto keep = [&](u32 step) {
        u16* const stage = stages + step % 2 * STAGE;
#pragma unroll
        for (u32 i = 0; i < A_VEC8S; i++) *(Words4*)(stage + A_TO(i)) = a_next[i];
#pragma unroll
        for (u32 i = 0; i < B_VEC8S; i++) *(Words4*)(stage + B_TO(i)) = b_next[i];
    };
    if (steps != 0) {
        fetch(0);
        keep(0);
    }
    barrier();
    for (u32 step = 0; step < steps; step++) {
        if (step + 1 < steps) fetch(step + 1);
        multiply(start + step % 2 * STAGE * 2, rows, sums);
        if (step + 1 < steps) keep(step + 1);
        barrier();
    }
#endif

    // Results go through shared memory once more, 32 rows of a warp at a time, so that eight side by side meet in one
    // lane.
    float* const tile = (float*)bytes + warp * 32 * EPILOGUE_LINE;
    float* const own = tile + lane / 4 * EPILOGUE_LINE + lane % 4 * 2;
    const bool whole = p.splits == 1;
    Epilogue e;
    if (whole) e = begin(p.y);
    Seen seen = {};
#pragma unroll
    for (u32 i = 0; i < MATRICES_M; i += 2) {
#pragma unroll
        for (u32 j = 0; j < 2 * MATRICES_N; j++) {
            const float* from = sums[i + j / MATRICES_N][j % MATRICES_N];
            float* to = own + j / MATRICES_N * 16 * EPILOGUE_LINE + j % MATRICES_N * 8;
            to[0] = from[0], to[1] = from[1];
            to[8 * EPILOGUE_LINE] = from[2], to[8 * EPILOGUE_LINE + 1] = from[3];
        }
        warp_barrier();
        store_epilogue_tile(p, block.z, block.split, block.m + warp_m + i * 16, block.n + warp_n, tile, EPILOGUE_LINE, 32,
                            WARP_N / 8, e, seen);
        warp_barrier();
    }
    if (whole) end(p.y, e, seen);
}
