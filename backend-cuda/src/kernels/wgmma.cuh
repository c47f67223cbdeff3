// Stages of operands in shared memory that warpgroups multiply (wgmma, sm_90a), 64 of k each, and the inner loop of it.
//
// Lines of 128 bytes (64 halves of k, or of m or n) lie one after the other; the 16-byte pieces of line i stand in
// places exchanged by i mod 8, so that eight lines fill all banks ("128-byte swizzle"), a pattern that repeats every 1024
// bytes. Operands that are contiguous along m or n come in panels of 64.

#define K_TILE 64
#define A_STAGE_ELEMENTS (TILE_M * K_TILE)
#define B_STAGE_ELEMENTS (TILE_N * K_TILE)
#define STAGE_ELEMENTS (A_STAGE_ELEMENTS + B_STAGE_ELEMENTS)

// The low words of two matrix descriptors, those of a's 64 rows and of b's columns (PTX ISA, "Matrix descriptor format"):
// where they start and how far it is from panel to panel, in units of 16 bytes. What follows in memory is found by adding
// to the start.
struct OperandDescriptors {
    u32 a, b;
};

DEVICE u64 matrix_descriptor(u32 low) {
    // 1024 bytes from eight lines to the next eight; lines of 128 bytes, exchanged.
    const u32 high = 1024 / 16 | 1u << 30;
    return (u64)high << 32 | low;
}

// Of the first stage, for a group that multiplies. The same in all lanes, which the compiler does not see by itself.
DEVICE OperandDescriptors operand_descriptors(const u16* stages, u32 group) {
    // A block's place in its cluster stands above the 18 bits of an address that a descriptor has.
    const u32 panel_stride = K_TILE * 128 / 16, start = (shared_address(stages) & 0x3FFFF) / 16;
    // Lines of this group, or its panel.
    const u32 group_offset = group * (64 * 64 * 2 / 16);
    return OperandDescriptors{warp_uniform((start + group_offset) | (A_K_CONTIGUOUS ? 1 : panel_stride) << 16),
                    warp_uniform((start + A_STAGE_ELEMENTS * 2 / 16) | (B_K_CONTIGUOUS ? 1 : panel_stride) << 16)};
}

// Adds the products of a stage: one group of instructions, which stand one after another and run beside what follows.
template <int VEC8S>
DEVICE void multiply_stage(float (&sums)[VEC8S][4], const OperandDescriptors& first, u32 stage) {
    // 16 of k: 32 bytes of a line, or 16 lines.
    const u32 a_k_stride = A_K_CONTIGUOUS ? 2 : 128, b_k_stride = B_K_CONTIGUOUS ? 2 : 128;
    const u32 a = first.a + stage * (STAGE_ELEMENTS * 2 / 16), b = first.b + stage * (STAGE_ELEMENTS * 2 / 16);
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < K_TILE / 16; k++) {
        wgmma_mma_async<!A_K_CONTIGUOUS, !B_K_CONTIGUOUS>(sums, matrix_descriptor(a + k * a_k_stride), matrix_descriptor(b + k * b_k_stride));
    }
    wgmma_commit();
}
