// Parts of conv_halo.cu: its parameters, its tiles, and the layout in which sums reach the epilogue.

struct HaloParams {
    // Pixels of x (FORWARD) or dy (DATA) as planes of eight channels. Weights as [output][tap, input] (FORWARD) or
    // [output][tap][input] (DATA).
    TensorMap pixels, weights;
    GemmParams gemm;
    // Tiles along the rows and columns of an image, blocks of 64 results, and tiles of all images and blocks.
    u32 tile_rows, tile_columns, result_blocks, tiles;
    // Rows and columns of a result image.
    u32 rows, columns;
    // Position of the halo's first pixel relative to the first result of a tile.
    int first_row, first_column;
    // Pixels from row to row of the halo.
    u32 pitch;
    // Bytes from buffer to buffer, and those that TMA loads to one.
    u32 buffer_bytes, load_bytes;
    // 16-byte vectors of zeros after these, for the last of an odd number of slices.
    u32 zero_vec8s;
    // Number of K steps. A K step multiplies two slices: eight channels of a tap each.
    u32 steps;
    u32 unused;
    // Low word of a K step's matrix descriptor, relative to the buffer: its first slice, and the distance to its second
    // one. Constants, because a table in shared memory would need a shuffle to become uniform.
    u32 step_offsets[MAX_HALO_STEPS];
};

// Rows and columns of pixels of a tile. A warpgroup has half of the columns, eight, since a core matrix of an operand is
// eight neighbouring pixels.
#define HALO_TILE_SIDE 16
#define GROUP_COLUMNS 8

// First pixel of a tile, its image, and its first result of each pixel.
struct HaloTile {
    u32 image, row, column, n;
};

// Returns a tile by its number. Blocks of results of one halo follow each other, so that L2 has the halo.
DEVICE HaloTile halo_tile(const HaloParams& p, u32 number) {
    u32 rest = number / p.result_blocks;
    const u32 n = (number - rest * p.result_blocks) * TILE_M;
    const u32 column = rest % p.tile_columns;
    rest /= p.tile_columns;
    return HaloTile{rest / p.tile_rows, rest % p.tile_rows * HALO_TILE_SIDE, column * HALO_TILE_SIDE, n};
}

// Sums of a warp on their way to the epilogue: 16 results of each of `columns` pixels, 64 bytes a pixel. Two pixels fill all
// banks. A thread's pixels are two apart from its neighbour's, so that their vectors of eight results are exchanged by
// the number of the pair: then the writes of a warp have no bank conflicts.
#define EPILOGUE_TILE_FLOATS(columns) (16 * (columns))

// Returns the index of the vector of eight results of a pixel that begins with result `row`, 0 or 8.
DEVICE u32 pixel_vec8_index(u32 row, u32 pixel) {
    return pixel / 2 * 32 + ((pixel % 2 * 16 + row) ^ pixel / 2 % 4 * 8);
}

// Writes a lane's accumulators (PTX ISA, "wgmma", fragments of d) to shared memory. Their columns are pixels, and their rows
// results. A lane has four addresses, to which constants are added.
DEVICE void write_sums(float* tile, const float (&sums)[TILE_N / 8][4]) {
    const u32 lane = thread_index() % 32;
    float* at[4];
#pragma unroll
    for (u32 i = 0; i < 4; i++) at[i] = tile + pixel_vec8_index(i / 2 * 8, lane % 4 * 2 + i % 2) + lane / 4;
#pragma unroll
    for (u32 j = 0; j < TILE_N / 8; j++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) at[i][j * (8 * 16)] = sums[j][i];
    }
}

// Stores the sums of one warp: 16 results from `n` on of each pixel of 16 rows and eight columns, from (row, column) on. A lane
// stores eight results of two pixels at a time, which are two rows apart.
DEVICE void store_pixels(const HaloParams& p, u32 image, u32 row, u32 column, u32 n, const float* sums, const Epilogue& e,
                         StatsAccumulator& stats) {
    const GemmParams& gemm = p.gemm;
    const u32 lane = thread_index() % 32, half = lane % 2 * 8, pixel = lane / 2;
    const u32 first_row = row + pixel / GROUP_COLUMNS, own_column = column + pixel % GROUP_COLUMNS;
    const u32 first_result = n + half;
    if (first_result >= gemm.n || own_column >= p.columns) return;
    u64 at = (u64)gemm.y_start + first_result + (u64)image * gemm.y_image_step + (u64)first_row * gemm.y_row_step +
             (u64)own_column * gemm.y_pixel_step;
    const u64 two_rows = 2 * (u64)gemm.y_row_step;
    const float* from = sums + pixel_vec8_index(half, pixel);
#pragma unroll 1
    for (u32 i = 0; i < HALO_TILE_SIDE; i += 4, at += 2 * two_rows, from += 4 * GROUP_COLUMNS * 16) {
        if (first_row + i >= p.rows) return;
        float v[16];
#pragma unroll
        for (u32 j = 0; j < 16; j++) v[j] = from[j / 8 * (2 * GROUP_COLUMNS * 16) + j % 8];
        if (gemm.bias != 0) {
#pragma unroll
            for (u32 j = 0; j < 16; j++) v[j] += load_bias(gemm, 0, first_result + j % 8);
        }
        if (first_row + i + 2 < p.rows) {
            const u64 both[2] = {at, at + two_rows};
            store_vec8s(gemm.y, e, stats, both, v);
        } else {
            float first[8];
#pragma unroll
            for (u32 j = 0; j < 8; j++) first[j] = v[j];
            store_vec8(gemm.y, e, stats, at, first);
        }
    }
}
