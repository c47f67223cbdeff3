// What gives the rows and what the columns of a tile by warpgroups: a and b, as implicit_gemm.cuh has them.
//
// SWAP_AB: the other way around. The gradient of weights of few outputs has few rows, of which the tensor cores take 64
// at a time and a tile 128; there rows are taps and inputs (n, of b), columns outputs (m, of a). Results lie as they would.

#if !defined(SWAP_AB)
#define SWAP_AB 0
#endif

#if SWAP_AB
#define ROWS n
#define COLUMNS m
#define ROW_OPERAND b
#define COLUMN_OPERAND a
#define row_address b_address_n
#define column_address a_address_m
#define row_vec8_offset b_vec8_offset
#define column_vec8_offset a_vec8_offset
#else
#define ROWS m
#define COLUMNS n
#define ROW_OPERAND a
#define COLUMN_OPERAND b
#define row_address a_address_m
#define column_address b_address_n
#define row_vec8_offset a_vec8_offset
#define column_vec8_offset b_vec8_offset
#endif

// Floats of a warp's results on their way out: 16 rows of so many, or so many columns of 16. Room between lines puts what
// lanes write at once into different banks; every other four rows are moved by four floats, which does the same for what
// they read.
#if SWAP_AB
#define SMEM_PITCH(columns) (16 + 4)
#define EPILOGUE_TILE_FLOATS(columns) ((columns) * SMEM_PITCH(columns))
#else
#define SMEM_PITCH(columns) ((columns) + 8)
#define EPILOGUE_TILE_FLOATS(columns) (16 * SMEM_PITCH(columns))
#endif
// So many columns are stored at a time.
#define STORE_COLUMNS 32

// Rows and columns of a block's tile as its m and n.
DEVICE TileCoord tile_coord(const GemmParams& p, u32 tile_number, u32 rows, u32 columns) {
#if SWAP_AB
    const TileCoord block = swizzled_tile(p, tile_number, columns, rows);
    return TileCoord{block.n, block.m, block.z, block.split};
#else
    return swizzled_tile(p, tile_number, rows, columns);
#endif
}

// Where (row, column) is kept.
template <u32 COLUMNS_IN_SMEM>
DEVICE u32 smem_index(u32 row, u32 column) {
#if SWAP_AB
    return column * SMEM_PITCH(COLUMNS_IN_SMEM) + row;
#else
    return row * SMEM_PITCH(COLUMNS_IN_SMEM) + (row & 4) + column;
#endif
}

// Of 16 × 8 results the first that a lane has (PTX ISA, "wgmma", fragments of d); what follows is found by constants.
template <u32 COLUMNS_IN_SMEM>
DEVICE float* smem_lane_origin(float* tile) {
    const u32 lane = thread_index() % 32;
    return tile + smem_index<COLUMNS_IN_SMEM>(lane / 4, lane % 4 * 2);
}

// Keeps what a lane has of 16 × 8 results from column `column` on.
template <u32 COLUMNS_IN_SMEM>
DEVICE void smem_write(float* tile, u32 column, const float (&sums)[4]) {
    float* const first = smem_lane_origin<COLUMNS_IN_SMEM>(tile);
#pragma unroll
    for (u32 i = 0; i < 4; i++) first[smem_index<COLUMNS_IN_SMEM>(i / 2 * 8, column + i % 2)] = sums[i];
}

// Adds it to what the same lane kept there before.
template <u32 COLUMNS_IN_SMEM>
DEVICE void smem_accumulate(float* tile, u32 column, const float (&sums)[4]) {
    float* const first = smem_lane_origin<COLUMNS_IN_SMEM>(tile);
#pragma unroll
    for (u32 i = 0; i < 4; i++) first[smem_index<COLUMNS_IN_SMEM>(i / 2 * 8, column + i % 2)] += sums[i];
}

// Stores what a warp keeps, two eights of each lane at a time: 16 rows from (row, column) on.
template <u32 COLUMNS_IN_SMEM>
DEVICE void smem_store(const GemmParams& p, const TileCoord& block, u32 row, u32 column, const float* tile, const Epilogue& e,
                       StatsAccumulator& stats) {
    const u32 lane = thread_index() % 32;
#if SWAP_AB
    // Both halves of a line side by side; then the line 16 columns further.
    const u32 r = lane % 2 * 8, c = lane / 2, second_from = smem_index<COLUMNS_IN_SMEM>(0, 16);
#pragma unroll 1
    for (u32 i = 0; i < COLUMNS_IN_SMEM; i += STORE_COLUMNS) {
        const float* from = tile + smem_index<COLUMNS_IN_SMEM>(r, c + i);
        store_result_vec8_pair(p, block.z, block.split, column + c + i, row + r, from, 16, second_from, e, stats);
    }
#else
    // Four eights of a line side by side, of lines four apart, which differ in banks; then the line eight further.
    const u32 r = lane / 8 + lane / 4 % 2 * 4, c = lane % 4 * 8, second_from = smem_index<COLUMNS_IN_SMEM>(8, 0);
#pragma unroll 1
    for (u32 i = 0; i < COLUMNS_IN_SMEM; i += STORE_COLUMNS) {
        const float* from = tile + smem_index<COLUMNS_IN_SMEM>(r, c + i);
        store_result_vec8_pair(p, block.z, block.split, row + r, column + c + i, from, 8, second_from, e, stats);
    }
#endif
}
