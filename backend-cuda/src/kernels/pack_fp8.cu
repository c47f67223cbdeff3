// Packs operands of products from halves, all of whose values are of a format of eight bits, to bytes of that format.
// Packed rows are those of m or n, and are contiguous along k, with zeros up to whole 16-byte vectors. Packing is exact. Needs codes.cuh.
//
// The weights of a convolution's data pass are the matrices of its groups. Each has a row for an input, and of that row a
// part for each tap, whose k are the outputs. Taps are packed in reverse order: the data pass is a convolution with these.

struct PackParams {
    const u16* x;
    Words4* y;
    // Packed rows of a matrix, values of a row, and matrices.
    u32 rows, k, matrices;
    // Halves of x from row to row, from value to value of a row, and from matrix to matrix.
    u32 row_stride, k_stride, matrix_stride;
    // Vectors of a packed row.
    u32 vectors;
    u32 is_e4m3;
    // 1 if rows of x begin at multiples of eight halves.
    u32 vectorized;
    // Taps, and those of a row of the kernel; both 1 without taps. Vectors above are those of one tap.
    u32 taps, tap_columns;
    // Halves of x from row to row of taps, and from tap to tap.
    u32 tap_row_stride, tap_stride;
    u32 unused;
};

// Rows, and values of each, that a block transposes at a time.
#define TRANSPOSED 64
// Words from row to row of these in shared memory, an odd number, so that 32 rows are in different banks.
#define TRANSPOSED_PITCH (TRANSPOSED / 4 + 1)

// Packs rows that are contiguous along k, without taps.
KERNEL(pack_rows, PackParams) {
    const u32 total = p.matrices * p.rows * p.vectors, step = blocks_x() * thread_count();
    for (u32 i = block_x() * thread_count() + thread_index(); i < total; i += step) {
        const u32 line = i / p.vectors, first = (i - line * p.vectors) * 16, matrix = line / p.rows;
        const u16* from = p.x + (u64)matrix * p.matrix_stride + (u64)(line - matrix * p.rows) * p.row_stride + first;
        const u32 count = p.k - first;
        u32 words[4] = {};
        if (p.vectorized != 0 && count >= 16) {
            const Words4 halves[2] = {*(const Words4*)from, *(const Words4*)(from + 8)};
#pragma unroll
            for (u32 j = 0; j < 2; j++) {
                const u32 pairs[4] = {halves[j].x, halves[j].y, halves[j].z, halves[j].w};
#pragma unroll
                for (u32 c = 0; c < 8; c++) {
                    words[2 * j + c / 4] |= code_of((u16)(pairs[c / 2] >> 16 * (c % 2)), p.is_e4m3) << 8 * (c % 4);
                }
            }
        } else {
#pragma unroll
            for (u32 j = 0; j < 16; j++) {
                if (j < count) words[j / 4] |= code_of(from[j], p.is_e4m3) << 8 * (j % 4);
            }
        }
        p.y[i] = Words4{words[0], words[1], words[2], words[3]};
    }
}

// Packs rows whose values are `k_stride` apart, and neighbouring rows are contiguous: transposes through shared memory.
KERNEL(pack_columns, PackParams) {
    SHARED u32 words[TRANSPOSED * TRANSPOSED_PITCH];
    u8* const tile_bytes = (u8*)words;
    const u32 row_tiles = (p.rows + TRANSPOSED - 1) / TRANSPOSED, k_tiles = (p.k + TRANSPOSED - 1) / TRANSPOSED;
    const u32 t = thread_index(), total = p.matrices * p.taps * row_tiles * k_tiles;
    for (u32 tile = block_x(); tile < total; tile += blocks_x()) {
        const u32 rest = tile / row_tiles, part = rest / k_tiles;
        const u32 first_row = (tile - rest * row_tiles) * TRANSPOSED, first_k = (rest - part * k_tiles) * TRANSPOSED;
        const u32 matrix = part / p.taps, tap = part - matrix * p.taps, tap_row = tap / p.tap_columns;
        const u32 row = t % TRANSPOSED;
        const u16* const from = p.x + (u64)matrix * p.matrix_stride + (u64)tap_row * p.tap_row_stride +
                                (u64)(tap - tap_row * p.tap_columns) * p.tap_stride + (u64)(first_row + row) * p.row_stride;
#pragma unroll 4
        for (u32 k = t / TRANSPOSED; k < TRANSPOSED; k += THREADS / TRANSPOSED) {
            const bool is_inside = first_row + row < p.rows && first_k + k < p.k;
            const u32 byte = is_inside ? code_of(from[(u64)(first_k + k) * p.k_stride], p.is_e4m3) : 0;
            tile_bytes[row * 4 * TRANSPOSED_PITCH + k] = (u8)byte;
        }
        barrier();
        const u32 line = t / 4, vector = t % 4;
        if (first_row + line < p.rows && first_k / 16 + vector < p.vectors) {
            const u32* const four = words + line * TRANSPOSED_PITCH + vector * 4;
            const u64 packed_part = ((u64)matrix * p.rows + first_row + line) * p.taps + p.taps - 1 - tap;
            p.y[packed_part * p.vectors + first_k / 16 + vector] = Words4{four[0], four[1], four[2], four[3]};
        }
        barrier();
    }
}
