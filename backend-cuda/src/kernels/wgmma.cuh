// Stages of operands in shared memory that warpgroups multiply (wgmma, sm_90a), 64 of k each, and the inner loop of it.
//
// Lines of 128 bytes (64 halves of k, or of m or n) lie one after the other; the 16-byte pieces of line i stand in
// places exchanged by i mod 8, so that eight lines fill all banks ("128-byte swizzle"), a pattern that repeats every 1024
// bytes. Operands that are contiguous along m or n come in panels of 64.

#define DEPTH 64
#define A_HALVES (TILE_M * DEPTH)
#define B_HALVES (TILE_N * DEPTH)
#define STAGE (A_HALVES + B_HALVES)

// The low words of two matrix descriptors, those of a's 64 rows and of b's columns (PTX ISA, "Matrix descriptor format"):
// where they start and how far it is from panel to panel, in units of 16 bytes. What follows in memory is found by adding
// to the start.
struct Operands {
    u32 a, b;
};

DEVICE u64 descriptor(u32 low) {
    // 1024 bytes from eight lines to the next eight; lines of 128 bytes, exchanged.
    const u32 high = 1024 / 16 | 1u << 30;
    return (u64)high << 32 | low;
}

// Of the first stage, for a group that multiplies. The same in all lanes, which the compiler does not see by itself.
DEVICE Operands operands_of(const u16* stages, u32 group) {
    // A block's place in its cluster stands above the 18 bits of an address that a descriptor has.
    const u32 panels = DEPTH * 128 / 16, start = (shared_address(stages) & 0x3FFFF) / 16;
    // Lines of this group, or its panel.
    const u32 own = group * (64 * 64 * 2 / 16);
    return Operands{warp_uniform((start + own) | (A_ALONG_K ? 1 : panels) << 16),
                    warp_uniform((start + A_HALVES * 2 / 16) | (B_ALONG_K ? 1 : panels) << 16)};
}

// Adds the products of a stage: one group of instructions, which stand one after another and run beside what follows.
template <int eights>
DEVICE void multiply_stage(float (&sums)[eights][4], const Operands& first, u32 stage) {
    // 16 of k: 32 bytes of a line, or 16 lines.
    const u32 a_step = A_ALONG_K ? 2 : 128, b_step = B_ALONG_K ? 2 : 128;
    const u32 a = first.a + stage * (STAGE * 2 / 16), b = first.b + stage * (STAGE * 2 / 16);
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < DEPTH / 16; k++) {
        wgmma_mma_async<!A_ALONG_K, !B_ALONG_K>(sums, descriptor(a + k * a_step), descriptor(b + k * b_step));
    }
    wgmma_commit();
}
