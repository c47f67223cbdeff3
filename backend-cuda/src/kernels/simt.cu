// Products of numbers of any type, in f32: 64 × 64 results a block, 4 × 4 a thread, through shared memory.

#define TILE 64
#define DEPTH 16

KERNEL(plain, Product) {
    SHARED float a[DEPTH][TILE + 4];
    SHARED float b[DEPTH][TILE + 4];
    const u32 t = thread_index();
    const Block block = block_of(p, block_x(), TILE, TILE);
    const u32 begin_k = block.split * p.depth;
    const u32 end_k = p.k - begin_k < p.depth ? p.k : begin_k + p.depth;
    // Whatever lies side by side in memory is read by neighbours.
#if MODE == WEIGHT
    const bool a_along_k = false;
#elif MODE == GEMM
    const bool a_along_k = p.a_k == 1;
#else
    const bool a_along_k = true;
#endif
#if MODE == GEMM
    const bool b_along_k = p.b_k == 1;
#else
    const bool b_along_k = MODE == FORWARD;
#endif
    const u32 a_k = a_along_k ? t % DEPTH : t / TILE, a_m = a_along_k ? t / DEPTH : t % TILE;
    const u32 b_k = b_along_k ? t % DEPTH : t / TILE, b_n = b_along_k ? t / DEPTH : t % TILE;
    const u32 a_step = a_along_k ? 16 : 4, b_step = b_along_k ? 16 : 4;
    Side rows[4], columns[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 m = block.m + a_m + (a_along_k ? i * a_step : 0), n = block.n + b_n + (b_along_k ? i * b_step : 0);
        rows[i] = a_of_m(p, block.z, m < p.m ? m : 0);
        columns[i] = b_of_n(p, block.z, n < p.n ? n : 0);
    }
    float sums[4][4] = {};
    const u32 row = t / 16 * 4, column = t % 16 * 4;
    for (u32 k0 = begin_k; k0 < end_k; k0 += DEPTH) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 dk = a_k + (a_along_k ? 0 : i * a_step), dm = a_m + (a_along_k ? i * a_step : 0), k = k0 + dk;
            u32 at = k < end_k && block.m + dm < p.m ? a_at(p, rows[i], a_of_k(p, k)) : NOWHERE;
            a[dk][dm] = at != NOWHERE ? load(p.a, p.a_type, at) : 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 dk = b_k + (b_along_k ? 0 : i * b_step), dn = b_n + (b_along_k ? i * b_step : 0), k = k0 + dk;
            u32 at = k < end_k && block.n + dn < p.n ? b_at(p, b_of_k(p, k), columns[i]) : NOWHERE;
            b[dk][dn] = at != NOWHERE ? load(p.b, p.b_type, at) : 0.0f;
        }
        barrier();
#pragma unroll
        for (u32 k = 0; k < DEPTH; k++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
#pragma unroll
                for (u32 j = 0; j < 4; j++) sums[i][j] = fmaf(a[k][row + i], b[k][column + j], sums[i][j]);
            }
        }
        barrier();
    }
    if (p.splits > 1) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#pragma unroll
            for (u32 j = 0; j < 4; j++) {
                u32 m = block.m + row + i, n = block.n + column + j;
                u64 at = (((u64)block.split * p.batch + block.z) * p.m + m) * p.n + n;
                if (m < p.m && n < p.n) p.partials[at] = sums[i][j];
            }
        }
        return;
    }
    Epilogue e = begin(p.y);
    Seen seen = {};
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 m = block.m + row + i, n = block.n + column + j;
            if (m >= p.m || n >= p.n) continue;
            put(p.y, e, seen, (u64)block.z * p.y_stride + (u64)m * p.y_lead + n, sums[i][j] + bias_at(p, block.z, n));
        }
    }
    end(p.y, e, seen);
}
