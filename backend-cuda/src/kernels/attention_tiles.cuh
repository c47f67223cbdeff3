// Tiles of attention in shared memory, and their products by mma.sync.
//
// A block has 64 rows of an operand, 16 for each of its warps, and takes the rows of another one in steps of STEP rows, of
// which STAGES are in shared memory: with two, one is copied while the other is multiplied. A row has HEAD halves, with zeros
// after those that exist. The product of a step is a left operand of the next product without leaving the registers, because
// the fragments of results are those of left operands.

#define ROWS (THREADS / 2)
// Halves from row to row in shared memory: 16 bytes of padding, so that the eight rows of a matrix are in different banks.
#define PITCH (HEAD + 8)
#define STAGE_ELEMENTS (2 * STEP * PITCH)
// Floats from row to row of results in shared memory.
#define RESULT_PITCH (HEAD + 4)

// Copies `COUNT` rows of `width` halves to shared memory, with zeros for columns and for rows from `rows` on, which do not
// exist. Rows that come in eights are copied asynchronously where a device can.
template <u32 COUNT>
DEVICE void copy_rows(u16* to, const void* x, u32 first, u32 rows, u32 width) {
    const u16* const halves = (const u16*)x;
#pragma unroll
    for (u32 n = 0; n < COUNT * HEAD / 8 / THREADS; n++) {
        const u32 i = n * THREADS + thread_index(), row = i / (HEAD / 8), column = i % (HEAD / 8) * 8;
        u16* const place = to + row * PITCH + column;
        const bool is_inside = row < rows && column < width;
        const u32 at = is_inside ? (first + row) * width + column : 0;
        if (width % 8 == 0) {
#if HAS_CP_ASYNC
            cp_async(shared_address(place), halves + at, is_inside);
#else
            *(Words4*)place = is_inside ? *(const Words4*)(halves + at) : Words4{0, 0, 0, 0};
#endif
            continue;
        }
        u32 v[8];
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = is_inside && column + j < width ? halves[at + j] : 0;
        *(Words4*)place = Words4{v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16};
    }
}

// Calls `multiply` for each step, after `copy` has brought it to shared memory.
template <class Copy, class Multiply>
DEVICE void for_steps(u32 first, u32 end, const Copy& copy, const Multiply& multiply) {
    if (first < end) copy(first);
    for (u32 step = first; step < end; step++) {
        if (STAGES == 1 && step != first) {
            barrier();
            copy(step);
        }
#if HAS_CP_ASYNC
        cp_async_commit();
        cp_async_wait<0>();
#endif
        barrier();
        if (STAGES == 2 && step + 1 < end) copy(step + 1);
        multiply(step);
    }
#if HAS_CP_ASYNC
    // Waits for the block's own rows, if there are no steps.
    cp_async_commit();
    cp_async_wait<0>();
#endif
    barrier();
}

// Bytes from the first row of a tile to the one that a lane passes to ldmatrix: of left operands and of transposed right
// ones, and of right operands whose columns are rows of a tile.
DEVICE u32 left_offset() {
    const u32 lane = thread_index() % 32, matrix = lane / 8, r = lane % 8;
    return 2 * ((matrix % 2 * 8 + r) * PITCH + matrix / 2 * 8);
}
DEVICE u32 right_offset() {
    const u32 lane = thread_index() % 32, matrix = lane / 8, r = lane % 8;
    return 2 * ((matrix / 2 * 8 + r) * PITCH + matrix % 2 * 8);
}

// Adds the products of 16 rows of a tile with rows of another one.
template <int MATRICES>
DEVICE void multiply_rows(float (&sums)[MATRICES][4], const u16* left, const u16* right) {
    const u32 a_start = shared_address(left) + left_offset(), b_start = shared_address(right) + right_offset();
#pragma unroll
    for (u32 k = 0; k < HEAD; k += 16) {
        u32 a[4];
        ldmatrix(a, a_start + 2 * k);
#pragma unroll
        for (u32 j = 0; j < MATRICES; j += 2) {
            u32 b[4];
            ldmatrix(b, b_start + 2 * (j * 8 * PITCH + k));
            const u32 first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
            mma_sync(sums[j], a, first);
            mma_sync(sums[j + 1], a, second);
        }
    }
}

// Adds the product of a left operand in registers with a tile, whose rows are the sum's terms.
DEVICE void multiply_columns(float (&sums)[HEAD / 8][4], const u32 (&left)[STEP / 16][4], const u16* right) {
    const u32 start = shared_address(right) + left_offset();
#pragma unroll
    for (u32 i = 0; i < STEP / 16; i++) {
#pragma unroll
        for (u32 j = 0; j < HEAD / 8; j += 2) {
            u32 b[4];
            ldmatrix_trans(b, start + 2 * (i * 16 * PITCH + j * 8));
            const u32 first[2] = {b[0], b[1]}, second[2] = {b[2], b[3]};
            mma_sync(sums[j], left[i], first);
            mma_sync(sums[j + 1], left[i], second);
        }
    }
}

// Eight results of a thread: those of two neighbouring matrices of a product. Result i is in row `row_of(i)` of 16 and in
// column `column_of(i)` of 16.
DEVICE u32 row_of(u32 i) { return thread_index() % 32 / 4 + i % 4 / 2 * 8; }
DEVICE u32 column_of(u32 i) { return i / 4 * 8 + thread_index() % 4 * 2 + i % 2; }

// Rounds eight results to halves of a left operand.
DEVICE void pack_left(u32 (&left)[4], const float (&v)[8]) {
#pragma unroll
    for (u32 i = 0; i < 4; i++) left[i] = floats_to_half2(v[2 * i], v[2 * i + 1]);
}

// Stores 16 rows of a warp, of which `rows` exist. Shared memory gathers neighbouring results in one lane.
DEVICE void store_rows(const Store& s, const Epilogue& e, StatsAccumulator& stats, u8* bytes, const float (&sums)[HEAD / 8][4], u32 first,
                       u32 rows, u32 width) {
    const u32 lane = thread_index() % 32;
    float* const tile = (float*)bytes + thread_index() / 32 * 16 * RESULT_PITCH;
#pragma unroll
    for (u32 j = 0; j < HEAD / 8; j++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) tile[row_of(i) * RESULT_PITCH + j * 8 + column_of(i)] = sums[j][i];
    }
    warp_barrier();
    if (width % 8 == 0) {
#pragma unroll 1
        for (u32 i = lane; i < rows * (width / 8); i += 32) {
            const u32 row = i / (width / 8), column = i % (width / 8) * 8;
            float v[8];
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] = tile[row * RESULT_PITCH + column + j];
            store_vec8(s, e, stats, (u64)(first + row) * width + column, v);
        }
    } else {
#pragma unroll 1
        for (u32 i = lane; i < rows * width; i += 32) {
            store_scalar(s, e, stats, (u64)first * width + i, tile[i / width * RESULT_PITCH + i % width]);
        }
    }
    warp_barrier();
}
