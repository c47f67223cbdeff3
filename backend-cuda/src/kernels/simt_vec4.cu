// GEMM of f32 operands without tensor cores: 128 × 128 results a block, 8 × 8 a thread, in K tiles of 16.
//
// A thread reads 16 floats of shared memory for 64 multiplications, half as many for each as in simt.cu. It loads its part
// of the next K tile before it multiplies the current one, and writes it to the other of two buffers afterwards, so there is
// one barrier for each K tile. Operands are aligned: four contiguous elements are all inside an operand or all outside.
// Each result is the same chain of multiplications and additions as in simt.cu.

#define TILE 128
#define K_TILE 16
// Floats from one k to the next in shared memory, a multiple of four with few bank conflicts.
#define SMEM_PITCH (TILE + 4)
#define OPERAND_FLOATS (K_TILE * SMEM_PITCH)
// Vectors of four that a thread loads of each operand.
#define VEC4S (TILE * K_TILE / 4 / THREADS)
// Threads that load one line, and lines from one vector of a thread to its next.
#define A_THREADS_PER_LINE (A_K_CONTIGUOUS ? K_TILE / 4 : TILE / 4)
#define B_THREADS_PER_LINE (B_K_CONTIGUOUS ? K_TILE / 4 : TILE / 4)
#define A_LINES_PER_PASS (THREADS / A_THREADS_PER_LINE)
#define B_LINES_PER_PASS (THREADS / B_THREADS_PER_LINE)
// Rows of a warp in each half of the tile.
#define WARP_ROWS 8

static_assert(2 * 2 * OPERAND_FLOATS * 4 <= SHARED_TOTAL, "two buffers of both operands fit");
static_assert(THREADS / 32 * WARP_ROWS * SMEM_PITCH <= 2 * 2 * OPERAND_FLOATS, "half of the results fits");

DEVICE void unpack_vec4(const float* from, float* v) {
    const Words4 words = *(const Words4*)from;
    v[0] = bits_as_float(words.x), v[1] = bits_as_float(words.y), v[2] = bits_as_float(words.z), v[3] = bits_as_float(words.w);
}

// Writes four elements of a line, along k (K_CONTIGUOUS) or along m or n, to shared memory as [k][m or n].
template <bool K_CONTIGUOUS>
DEVICE void write_vec4(float* smem, u32 line, u32 across, const Words4& words) {
    if (K_CONTIGUOUS) {
        float* const first = smem + across * SMEM_PITCH + line;
        first[0] = bits_as_float(words.x), first[SMEM_PITCH] = bits_as_float(words.y);
        first[2 * SMEM_PITCH] = bits_as_float(words.z), first[3 * SMEM_PITCH] = bits_as_float(words.w);
    } else {
        *(Words4*)(smem + line * SMEM_PITCH + across) = words;
    }
}

#if MODE == FORWARD && __CUDA_ARCH__ >= 1200
// Two blocks leave 128 registers, in which the addresses of a forward pass do not fit on sm_120.
#undef KERNEL_ATTRIBUTES
#define KERNEL_ATTRIBUTES __launch_bounds__(THREADS, 1)
#endif

KERNEL(simt_vec4_gemm, GemmParams) {
    SHARED_BYTES(bytes);
    float* const smem = (float*)bytes;
    const u32 t = thread_index();
    const TileCoord block = swizzled_tile(p, block_x(), TILE, TILE);
    const u32 begin_k = block.split * p.split_len;
    const u32 end_k = p.k - begin_k < p.split_len ? p.k : begin_k + p.split_len;
    const u32 k_tiles = (end_k - begin_k + K_TILE - 1) / K_TILE;

    const u32 a_line = t / A_THREADS_PER_LINE, a_across = t % A_THREADS_PER_LINE * 4;
    const u32 b_line = t / B_THREADS_PER_LINE, b_across = t % B_THREADS_PER_LINE * 4;
    PartialAddress a_partial[A_K_CONTIGUOUS ? VEC4S : 1], b_partial[B_K_CONTIGUOUS ? VEC4S : 1];
#pragma unroll
    for (u32 i = 0; i < (A_K_CONTIGUOUS ? VEC4S : 1); i++) {
        const u32 m = block.m + (A_K_CONTIGUOUS ? a_line + i * A_LINES_PER_PASS : a_across);
        a_partial[i] = a_address_m(p, block.z, m < p.m ? m : 0);
    }
#pragma unroll
    for (u32 i = 0; i < (B_K_CONTIGUOUS ? VEC4S : 1); i++) {
        const u32 n = block.n + (B_K_CONTIGUOUS ? b_line + i * B_LINES_PER_PASS : b_across);
        b_partial[i] = b_address_n(p, block.z, n < p.n ? n : 0);
    }

    Words4 a_next[VEC4S], b_next[VEC4S];
    auto load_k_tile = [&](u32 k0) {
#pragma unroll
        for (u32 i = 0; i < VEC4S; i++) {
            const u32 line = a_line + i * A_LINES_PER_PASS;
            const u32 m = block.m + (A_K_CONTIGUOUS ? line : a_across), k = k0 + (A_K_CONTIGUOUS ? a_across : line);
            const u32 at = a_vec8_offset(p, a_partial[A_K_CONTIGUOUS ? i : 0], m, k, end_k);
            a_next[i] = at != OUT_OF_BOUNDS ? *(const Words4*)((const float*)p.a + at) : Words4{0, 0, 0, 0};
        }
#pragma unroll
        for (u32 i = 0; i < VEC4S; i++) {
            const u32 line = b_line + i * B_LINES_PER_PASS;
            const u32 n = block.n + (B_K_CONTIGUOUS ? line : b_across), k = k0 + (B_K_CONTIGUOUS ? b_across : line);
            const u32 at = b_vec8_offset(p, b_partial[B_K_CONTIGUOUS ? i : 0], n, k, end_k);
            b_next[i] = at != OUT_OF_BOUNDS ? *(const Words4*)((const float*)p.b + at) : Words4{0, 0, 0, 0};
        }
    };
    auto write_k_tile = [&](u32 buffer) {
        float* const a = smem + buffer * 2 * OPERAND_FLOATS;
#pragma unroll
        for (u32 i = 0; i < VEC4S; i++) {
            write_vec4<A_K_CONTIGUOUS>(a, a_line + i * A_LINES_PER_PASS, a_across, a_next[i]);
            write_vec4<B_K_CONTIGUOUS>(a + OPERAND_FLOATS, b_line + i * B_LINES_PER_PASS, b_across, b_next[i]);
        }
    };

    // A thread has four rows and four columns in each half of the tile, so that a warp reads shared memory without gaps.
    const u32 row = t / 16 * 4, column = t % 16 * 4;
    float sums[8][8] = {};
    if (k_tiles != 0) {
        load_k_tile(begin_k);
        write_k_tile(0);
    }
    barrier();
#pragma unroll 1
    for (u32 k_tile = 0; k_tile < k_tiles; k_tile++) {
        const bool has_next = k_tile + 1 < k_tiles;
        if (has_next) load_k_tile(begin_k + (k_tile + 1) * K_TILE);
        const float* const a = smem + k_tile % 2 * 2 * OPERAND_FLOATS + row;
        const float* const b = smem + (k_tile % 2 * 2 + 1) * OPERAND_FLOATS + column;
#pragma unroll
        for (u32 k = 0; k < K_TILE; k++) {
            float rows[8], columns[8];
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                unpack_vec4(a + k * SMEM_PITCH + half * (TILE / 2), rows + half * 4);
                unpack_vec4(b + k * SMEM_PITCH + half * (TILE / 2), columns + half * 4);
            }
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
#pragma unroll
                for (u32 j = 0; j < 8; j++) sums[i][j] = fmaf(rows[i], columns[j], sums[i][j]);
            }
        }
        if (has_next) write_k_tile((k_tile + 1) % 2);
        barrier();
    }

    // Shared memory gathers the rows of a warp, those of one half of the tile at a time.
    float* const tile = smem + t / 32 * WARP_ROWS * SMEM_PITCH;
    const bool is_unsplit = p.splits == 1;
    Epilogue e;
    if (is_unsplit) e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                tile[(row % WARP_ROWS + i) * SMEM_PITCH + column + j / 4 * (TILE / 2) + j % 4] = sums[half * 4 + i][j];
            }
        }
        warp_barrier();
        const u32 m = block.m + half * (TILE / 2) + row / WARP_ROWS * WARP_ROWS;
        store_epilogue_tile(p, block.z, block.split, m, block.n, tile, SMEM_PITCH, WARP_ROWS, TILE / 8, e, stats);
        warp_barrier();
    }
    if (is_unsplit) end_epilogue(p.y, e, stats);
}
