// GEMM of operands of any type in f32, without tensor cores: 64 × 64 results a block, 4 × 4 a thread.

#define TILE 64
#define K_TILE 16

KERNEL(simt_gemm, GemmParams) {
    SHARED float a[K_TILE][TILE + 4];
    SHARED float b[K_TILE][TILE + 4];
    const u32 t = thread_index();
    const TileCoord block = swizzled_tile(p, block_x(), TILE, TILE);
    const u32 begin_k = block.split * p.split_len;
    const u32 end_k = p.k - begin_k < p.split_len ? p.k : begin_k + p.split_len;
    // Neighbouring threads read neighbouring elements.
#if MODE == WEIGHT
    const bool a_k_contiguous = false;
#elif MODE == GEMM
    const bool a_k_contiguous = p.a_stride_k == 1;
#else
    const bool a_k_contiguous = true;
#endif
#if MODE == GEMM
    const bool b_k_contiguous = p.b_stride_k == 1;
#else
    const bool b_k_contiguous = MODE == FORWARD;
#endif
    const u32 a_k = a_k_contiguous ? t % K_TILE : t / TILE, a_m = a_k_contiguous ? t / K_TILE : t % TILE;
    const u32 b_k = b_k_contiguous ? t % K_TILE : t / TILE, b_n = b_k_contiguous ? t / K_TILE : t % TILE;
    const u32 a_step = a_k_contiguous ? 16 : 4, b_step = b_k_contiguous ? 16 : 4;
    PartialAddress a_partials[4], b_partials[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        u32 m = block.m + a_m + (a_k_contiguous ? i * a_step : 0), n = block.n + b_n + (b_k_contiguous ? i * b_step : 0);
        a_partials[i] = a_address_m(p, block.z, m < p.m ? m : 0);
        b_partials[i] = b_address_n(p, block.z, n < p.n ? n : 0);
    }
    float sums[4][4] = {};
    const u32 row = t / 16 * 4, column = t % 16 * 4;
    for (u32 k0 = begin_k; k0 < end_k; k0 += K_TILE) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 dk = a_k + (a_k_contiguous ? 0 : i * a_step), dm = a_m + (a_k_contiguous ? i * a_step : 0), k = k0 + dk;
            u32 at = k < end_k && block.m + dm < p.m ? a_offset(p, a_partials[i], a_address_k(p, k)) : OUT_OF_BOUNDS;
            a[dk][dm] = at != OUT_OF_BOUNDS ? load(p.a, p.a_type, at) : 0.0f;
        }
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 dk = b_k + (b_k_contiguous ? 0 : i * b_step), dn = b_n + (b_k_contiguous ? i * b_step : 0), k = k0 + dk;
            u32 at = k < end_k && block.n + dn < p.n ? b_offset(p, b_address_k(p, k), b_partials[i]) : OUT_OF_BOUNDS;
            b[dk][dn] = at != OUT_OF_BOUNDS ? load(p.b, p.b_type, at) : 0.0f;
        }
        barrier();
#pragma unroll
        for (u32 k = 0; k < K_TILE; k++) {
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
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            u32 m = block.m + row + i, n = block.n + column + j;
            if (m >= p.m || n >= p.n) continue;
            store_scalar(p.y, e, stats, y_offset(p, block.z, m, n), sums[i][j] + load_bias(p, block.z, n));
        }
    }
    end_epilogue(p.y, e, stats);
}
