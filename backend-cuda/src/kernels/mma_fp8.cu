// GEMM and convolution of operands of eight bits by mma.sync, from sm_89 on: TILE_M × TILE_N results a block, in K tiles
// of 64 terms.
//
// Both operands are contiguous along k, as `pack_fp8.cu` writes them, because tensor cores transpose no bytes. Their
// parameters count k, channels and strides in pairs of bytes. So addresses, copies and ldmatrix are those of halves.
//
// A convolution (MODE 2) sums over taps and channels of an image: that of x in the forward pass, and that of dy in the
// data pass. There the weights are packed with their taps in reverse order, so both passes are the same sum. Parameters
// are named as in a data pass: results are the [?, h, w, ?] pixels of x, and the image is [?, oh, ow, o]. So `y_offset`
// stores the phases of a strided convolution.
//
// Tensor cores keep about 14 bits of such a sum (DeepSeek-V3 technical report, section 3.3.2). So their sums begin at
// zero every PROMOTION_PAIRS pairs, and are added to f32 sums in registers.

// Pairs of a K tile.
#define K_TILE 32
#define WARP_M (TILE_M / WARPS_M)
#define WARP_N (TILE_N / WARPS_N)
#define MATRICES_M (WARP_M / 16)
#define MATRICES_N (WARP_N / 8)
#define STAGES 3
// K tiles whose products tensor cores add.
#define PROMOTION_TILES (PROMOTION_PAIRS / K_TILE)

// Pairs from row to row in shared memory. The padding of 16 bytes puts the eight rows of a matrix into different banks.
#define SMEM_PITCH (K_TILE + 8)
#define A_STAGE_PAIRS (TILE_M * SMEM_PITCH)
#define STAGE_PAIRS ((TILE_M + TILE_N) * SMEM_PITCH)
// Floats from row to row of the sums in shared memory, with padding against bank conflicts.
#define EPILOGUE_PITCH (WARP_N + 4)
// 16-byte vectors of a row in a K tile, rows that a block copies at a time, and vectors that a thread copies.
#define ROW_VECTORS (K_TILE / 8)
#define ROWS_PER_PASS (THREADS / ROW_VECTORS)
#define A_VECTORS (TILE_M / ROWS_PER_PASS)
#define B_VECTORS (TILE_N / ROWS_PER_PASS)

typedef float Sums[MATRICES_M][MATRICES_N][4];

// Adds the products of a warp's part of a K tile. `a` and `b` are the rows that this lane passes to the first ldmatrix.
DEVICE void multiply_k_tile(u32 a, u32 b, Sums& sums) {
#pragma unroll
    for (u32 k = 0; k < K_TILE; k += 16) {
        u32 a_fragments[MATRICES_M][4], b_fragments[MATRICES_N][2];
#pragma unroll
        for (u32 i = 0; i < MATRICES_M; i++) ldmatrix(a_fragments[i], a + 2 * (i * 16 * SMEM_PITCH + k));
#pragma unroll
        for (u32 j = 0; j < MATRICES_N; j += 2) {
            u32 b_pair[4];
            ldmatrix(b_pair, b + 2 * (j * 8 * SMEM_PITCH + k));
            b_fragments[j][0] = b_pair[0], b_fragments[j][1] = b_pair[1];
            b_fragments[j + 1][0] = b_pair[2], b_fragments[j + 1][1] = b_pair[3];
        }
#pragma unroll
        for (u32 i = 0; i < MATRICES_M; i++) {
#pragma unroll
            for (u32 j = 0; j < MATRICES_N; j++) mma_fp8(sums[i][j], a_fragments[i], b_fragments[j]);
        }
    }
}

#if MODE == DATA
// Returns the summand of a result: the upper left corner of its window in the image.
DEVICE PartialAddress a_row(const GemmParams& p, u32 z, u32 m) {
    const u32 rest = m / p.w, column = m - rest * p.w, image = rest / p.h, row = rest - image * p.h;
    return PartialAddress{image * p.oh * p.ow * p.o + z * p.outputs, (int)(row * p.stride_h) - (int)p.pad_h,
                          (int)(column * p.stride_w) - (int)p.pad_w};
}

// Returns the offset of the vector of a from k on. Its 16 channels are of one tap.
DEVICE u32 a_vector(const GemmParams& p, const PartialAddress& row, u32 k) {
    const PartialAddress tap = kernel_offset(p, k, p.outputs);
    const u32 u = (u32)(row.u + tap.u), v = (u32)(row.v + tap.v);
    return u < p.oh && v < p.ow ? row.base + (u * p.ow + v) * p.o + tap.base : OUT_OF_BOUNDS;
}
#else
DEVICE PartialAddress a_row(const GemmParams& p, u32 z, u32 m) { return PartialAddress{z * p.a_stride_z + m * p.a_stride_m, 0, 0}; }
DEVICE u32 a_vector(const GemmParams&, const PartialAddress& row, u32 k) { return row.base + k; }
#endif

// Adds sums of tensor cores to those in registers, and sets them to zero.
DEVICE void promote(Sums& sums, Sums& partial) {
#pragma unroll
    for (u32 i = 0; i < MATRICES_M; i++) {
#pragma unroll
        for (u32 j = 0; j < MATRICES_N; j++) {
#pragma unroll
            for (u32 c = 0; c < 4; c++) sums[i][j][c] += partial[i][j][c], partial[i][j][c] = 0;
        }
    }
}

KERNEL(mma_fp8_gemm, GemmParams) {
    SHARED_BYTES(bytes);
    const u32 t = thread_index(), warp = t / 32, lane = t % 32;
    const u32 warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
    const TileCoord block = swizzled_tile(p, block_x(), TILE_M, TILE_N);
    const u32 begin_k = block.split * p.split_len;
    const u32 end_k = p.k - begin_k < p.split_len ? p.k : begin_k + p.split_len;
    const u32 k_tiles = (end_k - begin_k + K_TILE - 1) / K_TILE;

    // First row that a thread copies, and its position in the row.
    const u32 row = t / ROW_VECTORS, across = t % ROW_VECTORS * 8;
    PartialAddress a_rows[A_VECTORS];
    u32 b_rows[B_VECTORS];
#pragma unroll
    for (u32 i = 0; i < A_VECTORS; i++) {
        const u32 m = block.m + row + i * ROWS_PER_PASS;
        a_rows[i] = a_row(p, block.z, m < p.m ? m : 0);
    }
#pragma unroll
    for (u32 i = 0; i < B_VECTORS; i++) {
        const u32 n = block.n + row + i * ROWS_PER_PASS;
        b_rows[i] = block.z * p.b_stride_z + (n < p.n ? n : 0) * p.b_stride_n;
    }
    // Rows that a lane passes to ldmatrix for the first matrices.
    const u32 matrix = lane / 8, r = lane % 8;
    const u32 a_row = 2 * ((warp_m + matrix % 2 * 8 + r) * SMEM_PITCH + matrix / 2 * 8);
    const u32 b_row = 2 * (A_STAGE_PAIRS + (warp_n + matrix / 2 * 8 + r) * SMEM_PITCH + matrix % 2 * 8);
    const u32 start = shared_address(bytes);
    Sums sums = {}, partial = {};

    auto copy_k_tile = [&](u32 k_tile) {
        const u32 k = begin_k + k_tile * K_TILE + across;
        const u32 stage = start + k_tile % STAGES * STAGE_PAIRS * 2;
        if (k_tile < k_tiles) {
#pragma unroll
            for (u32 i = 0; i < A_VECTORS; i++) {
                const u32 line = row + i * ROWS_PER_PASS;
                const u32 at = block.m + line < p.m && k < end_k ? a_vector(p, a_rows[i], k) : OUT_OF_BOUNDS;
                cp_async(stage + 2 * (line * SMEM_PITCH + across), (const u16*)p.a + (at != OUT_OF_BOUNDS ? at : 0), at != OUT_OF_BOUNDS);
            }
#pragma unroll
            for (u32 i = 0; i < B_VECTORS; i++) {
                const u32 line = row + i * ROWS_PER_PASS;
                const u32 at = block.n + line < p.n && k < end_k ? b_rows[i] + k : OUT_OF_BOUNDS;
                cp_async(stage + 2 * (A_STAGE_PAIRS + line * SMEM_PITCH + across), (const u16*)p.b + (at != OUT_OF_BOUNDS ? at : 0), at != OUT_OF_BOUNDS);
            }
        }
        cp_async_commit();
    };
    for (u32 k_tile = 0; k_tile < STAGES - 1; k_tile++) copy_k_tile(k_tile);
    for (u32 k_tile = 0; k_tile < k_tiles; k_tile++) {
        cp_async_wait<STAGES - 2>();
        barrier();
        copy_k_tile(k_tile + STAGES - 1);
        const u32 stage = start + k_tile % STAGES * STAGE_PAIRS * 2;
        multiply_k_tile(stage + a_row, stage + b_row, partial);
        if (k_tile % PROMOTION_TILES == PROMOTION_TILES - 1) promote(sums, partial);
    }
    promote(sums, partial);
    cp_async_wait<0>();
    barrier();

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
