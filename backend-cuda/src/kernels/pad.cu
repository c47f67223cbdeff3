// Pads the channels of f16 images to eight with zeros, for convolutions of images with few channels.

struct PadParams {
    // f16 values [rows, channels], and the destination [rows, 8].
    const u16* x;
    Words4* y;
    u32 rows, channels;
};

KERNEL(pad, PadParams) {
    const u32 step = blocks_x() * thread_count();
    for (u32 row = block_x() * thread_count() + thread_index(); row < p.rows; row += step) {
        const u16* from = p.x + (u64)row * p.channels;
        u32 words[4] = {};
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            if (i < p.channels) words[i / 2] |= (u32)from[i] << 16 * (i % 2);
        }
        p.y[row] = Words4{words[0], words[1], words[2], words[3]};
    }
}
