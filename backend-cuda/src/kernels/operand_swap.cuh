// Assignment of the operands to the rows and columns of a wgmma tile, and the epilogue's layout of shared memory.
//
// By default a has the rows and b the columns. SWAP_AB exchanges them, because the weight gradient of a convolution with
// few outputs has few rows: a tile has 128 and a warpgroup multiplies 64 at a time. Then the rows are kernel offsets and
// inputs (n, of b), and the columns are outputs (m, of a). The layout of the result does not change.

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

// Floats of a warp's accumulators in shared memory: 16 rows of `columns`, or with SWAP_AB `columns` columns of 16. The
// padding of SMEM_PITCH avoids bank conflicts of writes. Shifting every other group of four rows by four floats avoids
// those of reads.
#if SWAP_AB
#define SMEM_PITCH(columns) (16 + 4)
#define EPILOGUE_TILE_FLOATS(columns) ((columns) * SMEM_PITCH(columns))
#else
#define SMEM_PITCH(columns) ((columns) + 8)
#define EPILOGUE_TILE_FLOATS(columns) (16 * SMEM_PITCH(columns))
#endif
// Columns that a warp stores at a time: two 8-wide vectors for each lane.
#define STORE_COLUMNS 32

// Returns the tile of a block, its m counted along ROWS and its n along COLUMNS.
DEVICE TileCoord tile_coord(const GemmParams& p, u32 tile_number, u32 rows, u32 columns) {
#if SWAP_AB
    const TileCoord block = swizzled_tile(p, tile_number, columns, rows);
    return TileCoord{block.n, block.m, block.z, block.split};
#else
    return swizzled_tile(p, tile_number, rows, columns);
#endif
}

// Returns the index of (row, column) in a warp's part of shared memory.
template <u32 COLUMNS_IN_SMEM>
DEVICE u32 smem_index(u32 row, u32 column) {
#if SWAP_AB
    return column * SMEM_PITCH(COLUMNS_IN_SMEM) + row;
#else
    return row * SMEM_PITCH(COLUMNS_IN_SMEM) + (row & 4) + column;
#endif
}

// Returns the address of the first of 16 × 8 accumulators that a lane holds (PTX ISA, "wgmma", fragments of d). The
// others have constant offsets.
template <u32 COLUMNS_IN_SMEM>
DEVICE float* smem_lane_origin(float* tile) {
    const u32 lane = thread_index() % 32;
    return tile + smem_index<COLUMNS_IN_SMEM>(lane / 4, lane % 4 * 2);
}

// Writes a lane's part of 16 × 8 accumulators to shared memory, from column `column` on.
template <u32 COLUMNS_IN_SMEM>
DEVICE void smem_write(float* tile, u32 column, const float (&sums)[4]) {
    float* const first = smem_lane_origin<COLUMNS_IN_SMEM>(tile);
#pragma unroll
    for (u32 i = 0; i < 4; i++) first[smem_index<COLUMNS_IN_SMEM>(i / 2 * 8, column + i % 2)] = sums[i];
}

// Adds accumulators to the values that the same lane has written before.
template <u32 COLUMNS_IN_SMEM>
DEVICE void smem_accumulate(float* tile, u32 column, const float (&sums)[4]) {
    float* const first = smem_lane_origin<COLUMNS_IN_SMEM>(tile);
#pragma unroll
    for (u32 i = 0; i < 4; i++) first[smem_index<COLUMNS_IN_SMEM>(i / 2 * 8, column + i % 2)] += sums[i];
}

// Writes all accumulators of a lane to shared memory, or adds them to what it has written before.
template <int VEC8S>
DEVICE void smem_write_all(float* tile, const float (&sums)[VEC8S][4], bool accumulates) {
    if (accumulates) {
#pragma unroll
        for (u32 j = 0; j < VEC8S; j++) smem_accumulate<8 * VEC8S>(tile, j * 8, sums[j]);
    } else {
#pragma unroll
        for (u32 j = 0; j < VEC8S; j++) smem_write<8 * VEC8S>(tile, j * 8, sums[j]);
    }
}

// Stores a warp's 16 rows from shared memory, from (row, column) of the result on: two 8-wide vectors of each lane at a
// time.
template <u32 COLUMNS_IN_SMEM>
DEVICE void smem_store(const GemmParams& p, const TileCoord& block, u32 row, u32 column, const float* tile, const Epilogue& e,
                       StatsAccumulator& stats) {
    const u32 lane = thread_index() % 32;
#if SWAP_AB
    // Rows of weights are aligned: they are whole taps of a multiple of eight inputs. Both 8-wide vectors of a line of 16 are in neighbouring lanes; the next line is 16 columns further.
    const u32 r = lane % 2 * 8, c = lane / 2, second_from = smem_index<COLUMNS_IN_SMEM>(0, 16);
#pragma unroll 1
    for (u32 i = 0; i < COLUMNS_IN_SMEM; i += STORE_COLUMNS) {
        const float* from = tile + smem_index<COLUMNS_IN_SMEM>(r, c + i);
        store_result_vec8_pair(p, block.z, block.split, column + c + i, row + r, from, 16, second_from, e, stats);
    }
#else
    // Four 8-wide vectors of a row in neighbouring lanes, of rows four apart, which are in different banks. The second
    // vector is eight rows further.
    if (p.splits == 1 && !p.vectorized) {
        store_unaligned_tile(p, block.z, row, column, 16, COLUMNS_IN_SMEM, e, stats,
                             [&](u32 r, u32 c) { return tile[smem_index<COLUMNS_IN_SMEM>(r, c)]; });
        return;
    }
    const u32 r = lane / 8 + lane / 4 % 2 * 4, c = lane % 4 * 8, second_from = smem_index<COLUMNS_IN_SMEM>(8, 0);
#pragma unroll 1
    for (u32 i = 0; i < COLUMNS_IN_SMEM; i += STORE_COLUMNS) {
        const float* from = tile + smem_index<COLUMNS_IN_SMEM>(r, c + i);
        store_result_vec8_pair(p, block.z, block.split, row + r, column + c + i, from, 8, second_from, e, stats);
    }
#endif
}
