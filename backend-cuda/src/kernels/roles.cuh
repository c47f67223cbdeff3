// What gives the rows and what the columns of a tile by warpgroups: a and b, as product.cuh has them.
//
// TRANSPOSED: the other way around. The gradient of weights of few outputs has few rows, of which the tensor cores take 64
// at a time and a tile 128; there rows are taps and inputs (n, of b), columns outputs (m, of a). Results lie as they would.

#if !defined(TRANSPOSED)
#define TRANSPOSED 0
#endif

#if TRANSPOSED
#define ROWS n
#define COLUMNS m
#define ROW_OPERAND b
#define COLUMN_OPERAND a
#define side_of_row b_of_n
#define side_of_column a_of_m
#define row_start b_start
#define column_start a_start
#else
#define ROWS m
#define COLUMNS n
#define ROW_OPERAND a
#define COLUMN_OPERAND b
#define side_of_row a_of_m
#define side_of_column b_of_n
#define row_start a_start
#define column_start b_start
#endif

// Floats of a warp's results on their way out: 16 rows of so many, or so many columns of 16, with room between lines so
// that these lie in different banks.
#if TRANSPOSED
#define LINE(columns) (16 + 4)
#define EPILOGUE_FLOATS(columns) ((columns) * LINE(columns))
#else
#define LINE(columns) ((columns) + 4)
#define EPILOGUE_FLOATS(columns) (16 * LINE(columns))
#endif

// Rows and columns of a block's tile as its m and n.
DEVICE Block tile_of(const Product& p, u32 number, u32 rows, u32 columns) {
#if TRANSPOSED
    const Block block = block_of(p, number, columns, rows);
    return Block{block.n, block.m, block.z, block.split};
#else
    return block_of(p, number, rows, columns);
#endif
}

// Keeps what a lane has of 16 × 8 results from column `column` on (PTX ISA, "wgmma", fragments of d).
template <u32 COLUMNS_OUT>
DEVICE void keep(float* tile, u32 column, const float (&sums)[4]) {
    const u32 lane = thread_index() % 32;
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        const u32 r = lane / 4 + i / 2 * 8, c = column + lane % 4 * 2 + i % 2;
        tile[TRANSPOSED ? c * LINE(COLUMNS_OUT) + r : r * LINE(COLUMNS_OUT) + c] = sums[i];
    }
}

// Stores what a warp keeps: 16 rows from `row` on, so many columns from `column` on.
template <u32 COLUMNS_OUT>
DEVICE void store_kept(const Product& p, const Block& block, u32 row, u32 column, const float* tile, const Epilogue& e,
                       Seen& seen) {
#if TRANSPOSED
    store_epilogue_tile(p, block.z, block.split, column, row, tile, LINE(COLUMNS_OUT), COLUMNS_OUT, 2, e, seen);
#else
    store_epilogue_tile(p, block.z, block.split, row, column, tile, LINE(COLUMNS_OUT), 16, COLUMNS_OUT / 8, e, seen);
#endif
}
