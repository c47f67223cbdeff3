// Copies rows of f16 operands to rows of whole 16-byte vectors, with zeros after their elements. Kernels for aligned
// operands then take rows of any length, and the taps of one phase of a strided convolution as one smaller convolution.

struct PadParams {
    const u16* x;
    Words4* y;
    // Rows of the copy, [outer, middle, inner], and the elements of x between them.
    u32 counts[3], strides[3];
    // Elements of a row of x, and vectors of a row of y.
    u32 elements, vec8s;
    // Outer rows of x. The copy may have more, which are zeros.
    u32 outer_rows, unused;
};

KERNEL(pad, PadParams) {
    const u32 total = p.counts[0] * p.counts[1] * p.counts[2] * p.vec8s, step = blocks_x() * thread_count();
    for (u32 i = block_x() * thread_count() + thread_index(); i < total; i += step) {
        const u32 row = i / p.vec8s, first = (i - row * p.vec8s) * 8;
        const u32 rest = row / p.counts[2], inner = row - rest * p.counts[2];
        const u32 outer = rest / p.counts[1], middle = rest - outer * p.counts[1];
        const u16* from = p.x + (u64)outer * p.strides[0] + (u64)middle * p.strides[1] + (u64)inner * p.strides[2] + first;
        const u32 count = outer < p.outer_rows ? p.elements - first : 0;
        u32 words[4] = {};
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            if (j < count) words[j / 2] |= (u32)from[j] << 16 * (j % 2);
        }
        p.y[i] = Words4{words[0], words[1], words[2], words[3]};
    }
}
