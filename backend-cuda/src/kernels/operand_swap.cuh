// What gives the rows and what the columns of a tile by warpgroups: a and b, as implicit_gemm.cuh has them.
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

// Floats of a warp's results on their way out: 16 rows of so many, or so many columns of 16. Room between lines puts what
// lanes write at once into different banks; every other four rows are moved by four floats, which does the same for what
// they read.
#if TRANSPOSED
#define LINE(columns) (16 + 4)
#define EPILOGUE_FLOATS(columns) ((columns) * LINE(columns))
#else
#define LINE(columns) ((columns) + 8)
#define EPILOGUE_FLOATS(columns) (16 * LINE(columns))
#endif
// So many columns are stored at a time.
#define STORE_COLUMNS 32

// Rows and columns of a block's tile as its m and n.
DEVICE Block tile_of(const Product& p, u32 number, u32 rows, u32 columns) {
#if TRANSPOSED
    const Block block = block_of(p, number, columns, rows);
    return Block{block.n, block.m, block.z, block.split};
#else
    return block_of(p, number, rows, columns);
#endif
}

// Where (row, column) is kept.
template <u32 COLUMNS_OUT>
DEVICE u32 kept_at(u32 row, u32 column) {
#if TRANSPOSED
    return column * LINE(COLUMNS_OUT) + row;
#else
    return row * LINE(COLUMNS_OUT) + (row & 4) + column;
#endif
}

// Of 16 × 8 results the first that a lane has (PTX ISA, "wgmma", fragments of d); what follows is found by constants.
template <u32 COLUMNS_OUT>
DEVICE float* kept_first(float* tile) {
    const u32 lane = thread_index() % 32;
    return tile + kept_at<COLUMNS_OUT>(lane / 4, lane % 4 * 2);
}

// Keeps what a lane has of 16 × 8 results from column `column` on.
template <u32 COLUMNS_OUT>
DEVICE void keep(float* tile, u32 column, const float (&sums)[4]) {
    float* const first = kept_first<COLUMNS_OUT>(tile);
#pragma unroll
    for (u32 i = 0; i < 4; i++) first[kept_at<COLUMNS_OUT>(i / 2 * 8, column + i % 2)] = sums[i];
}

// Adds it to what the same lane kept there before.
template <u32 COLUMNS_OUT>
DEVICE void add_kept(float* tile, u32 column, const float (&sums)[4]) {
    float* const first = kept_first<COLUMNS_OUT>(tile);
#pragma unroll
    for (u32 i = 0; i < 4; i++) first[kept_at<COLUMNS_OUT>(i / 2 * 8, column + i % 2)] += sums[i];
}

// Stores what a warp keeps, two eights of each lane at a time: 16 rows from (row, column) on.
template <u32 COLUMNS_OUT>
DEVICE void store_kept(const Product& p, const Block& block, u32 row, u32 column, const float* tile, const Epilogue& e,
                       Seen& seen) {
    const u32 lane = thread_index() % 32;
#if TRANSPOSED
    // Both halves of a line side by side; then the line 16 columns further.
    const u32 r = lane % 2 * 8, c = lane / 2, further = kept_at<COLUMNS_OUT>(0, 16);
#pragma unroll 1
    for (u32 i = 0; i < COLUMNS_OUT; i += STORE_COLUMNS) {
        const float* from = tile + kept_at<COLUMNS_OUT>(r, c + i);
        store_two_vec8s(p, block.z, block.split, column + c + i, row + r, from, 16, further, e, seen);
    }
#else
    // Four eights of a line side by side, of lines four apart, which differ in banks; then the line eight further.
    const u32 r = lane / 8 + lane / 4 % 2 * 4, c = lane % 4 * 8, further = kept_at<COLUMNS_OUT>(8, 0);
#pragma unroll 1
    for (u32 i = 0; i < COLUMNS_OUT; i += STORE_COLUMNS) {
        const float* from = tile + kept_at<COLUMNS_OUT>(r, c + i);
        store_two_vec8s(p, block.z, block.split, row + r, column + c + i, from, 8, further, e, seen);
    }
#endif
}
