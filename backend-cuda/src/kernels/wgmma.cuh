// Layout of a stage of operands in shared memory for wgmma (sm_90a), and the multiplication of a stage.
//
// A line has 128 bytes: 64 elements along k, or along m or n. Its 16-byte pieces are permuted by the number of the line
// modulo 8, so that eight lines fill all banks ("128-byte swizzle"). The pattern repeats every 1024 bytes. Operands that
// are contiguous along m or n consist of panels of 64. A pair of operands of eight bits takes the place of a half.
//
// An f32 operand x is hi + mid + lo, three bfloat16 (split_bf16.cu), which a stage has one after another. Of the nine
// products of the parts of a and b, those of mid and lo, of lo and mid, and of both lo are below 2^-24 of the whole, and are
// left out. The other six are added smallest first, because tensor cores truncate: each addition loses up to the last bit
// of what an accumulator holds by then.

#define K_TILE 64
#define A_TILE_ELEMENTS (TILE_M * K_TILE)
#define B_TILE_ELEMENTS (TILE_N * K_TILE)
#define A_STAGE_ELEMENTS (OPERAND_PARTS * A_TILE_ELEMENTS)
#define B_STAGE_ELEMENTS (OPERAND_PARTS * B_TILE_ELEMENTS)
#define STAGE_ELEMENTS (A_STAGE_ELEMENTS + B_STAGE_ELEMENTS)

// Low words of the matrix descriptors of a's 64 rows and of b's columns (PTX ISA, "Matrix descriptor format"): start
// address and distance of panels, in units of 16 bytes. Later K steps and stages are found by adding to the start.
struct OperandDescriptors {
    u32 a, b;
};

DEVICE u64 matrix_descriptor(u32 low) {
    // 1024 bytes from eight lines to the next eight; 128-byte swizzle.
    const u32 high = 1024 / 16 | 1u << 30;
    return (u64)high << 32 | low;
}

// Returns the descriptors of the first stage for a warpgroup. They are equal in all lanes, which the compiler cannot
// prove.
DEVICE OperandDescriptors operand_descriptors(const u16* stages, u32 group) {
    // A descriptor has 18 bits of an address. The rank in the cluster is above them.
    const u32 panel_stride = K_TILE * 128 / 16, start = (shared_address(stages) & 0x3FFFF) / 16;
    // Lines or panel of this warpgroup.
    const u32 group_offset = group * (64 * 64 * 2 / 16);
    return OperandDescriptors{warp_uniform((start + group_offset) | (A_K_CONTIGUOUS ? 1 : panel_stride) << 16),
                    warp_uniform((start + A_STAGE_ELEMENTS * 2 / 16) | (B_K_CONTIGUOUS ? 1 : panel_stride) << 16)};
}

// Products of parts: 1 of halves, or 6 of f32 values. The last is that of both hi.
#define PART_PRODUCTS (OPERAND_PARTS == 1 ? 1 : 6)
// K steps of a product in a stage, and of all products, which are numbered by product first.
#define K_STEPS (K_TILE / 16)
#define STEPS (PART_PRODUCTS * K_STEPS)

// Starts the multiplications FIRST to END of a stage as one group of asynchronous instructions. They add to sums, or
// (ACCUMULATES = false) replace them.
template <u32 FIRST = 0, u32 END = STEPS, bool ACCUMULATES = true, int VEC8S>
DEVICE void multiply_stage(float (&sums)[VEC8S][4], const OperandDescriptors& first, u32 stage) {
    // A K step of 16 is 32 bytes of a line, or 16 lines.
    const u32 a_k_stride = A_K_CONTIGUOUS ? 2 : 128, b_k_stride = B_K_CONTIGUOUS ? 2 : 128;
    const u32 a = first.a + stage * (STAGE_ELEMENTS * 2 / 16), b = first.b + stage * (STAGE_ELEMENTS * 2 / 16);
#if OPERAND_PARTS > 1
    // 0 is hi, 1 mid, 2 lo.
    const u32 a_parts[PART_PRODUCTS] = {2, 1, 0, 1, 0, 0}, b_parts[PART_PRODUCTS] = {0, 1, 2, 0, 1, 0};
#else
    const u32 a_parts[PART_PRODUCTS] = {0}, b_parts[PART_PRODUCTS] = {0};
#endif
    wgmma_fence();
#pragma unroll
    for (u32 step = FIRST; step < END; step++) {
        const u32 i = step / K_STEPS, k = step % K_STEPS;
        const u32 a_step = a + a_parts[i] * (A_TILE_ELEMENTS * 2 / 16) + k * a_k_stride;
        const u32 b_step = b + b_parts[i] * (B_TILE_ELEMENTS * 2 / 16) + k * b_k_stride;
#if defined(PROMOTION_PAIRS)
        wgmma_fp8_async(sums, matrix_descriptor(a_step), matrix_descriptor(b_step));
#else
        if (ACCUMULATES || step != FIRST) {
            wgmma_mma_async<!A_K_CONTIGUOUS, !B_K_CONTIGUOUS>(sums, matrix_descriptor(a_step), matrix_descriptor(b_step));
        } else {
            wgmma_mma_async<!A_K_CONTIGUOUS, !B_K_CONTIGUOUS, false>(sums, matrix_descriptor(a_step), matrix_descriptor(b_step));
        }
#endif
    }
    wgmma_commit();
}
