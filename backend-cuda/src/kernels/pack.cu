// Halves that are values of a format of eight bits as bytes, and back. Both are exact. Needs codes.cuh.

struct PackedParams {
    const void* x;
    void* y;
    u32 len;
    u32 is_e4m3;
};

// y[i] = code of x[i].
KERNEL(pack_values, PackedParams) {
    const u16* const x = (const u16*)p.x;
    const u32 step = blocks_x() * thread_count(), groups = p.len / 8;
    for (u32 group = block_x() * thread_count() + thread_index(); group < groups; group += step) {
        const Words4 halves = ((const Words4*)x)[group];
        const u32 pairs[4] = {halves.x, halves.y, halves.z, halves.w};
        u32 codes[2] = {};
#pragma unroll
        for (u32 c = 0; c < 8; c++) codes[c / 4] |= code_of((u16)(pairs[c / 2] >> 16 * (c % 2)), p.is_e4m3) << 8 * (c % 4);
        ((Words2*)p.y)[group] = Words2{codes[0], codes[1]};
    }
    const u32 rest = p.len / 8 * 8 + thread_index();
    if (block_x() == 0 && rest < p.len) ((u8*)p.y)[rest] = (u8)code_of(x[rest], p.is_e4m3);
}

// y[i] = half of the code x[i].
KERNEL(unpack_values, PackedParams) {
    const u8* const x = (const u8*)p.x;
    const u32 step = blocks_x() * thread_count(), groups = p.len / 8;
    for (u32 group = block_x() * thread_count() + thread_index(); group < groups; group += step) {
        const Words2 codes = ((const Words2*)x)[group];
        u32 halves[4];
#pragma unroll
        for (u32 c = 0; c < 4; c++) {
            const u32 two = (c < 2 ? codes.x : codes.y) >> 16 * (c % 2);
            halves[c] = half_of(two & 0xFF, p.is_e4m3) | half_of(two >> 8 & 0xFF, p.is_e4m3) << 16;
        }
        ((Words4*)p.y)[group] = Words4{halves[0], halves[1], halves[2], halves[3]};
    }
    const u32 rest = p.len / 8 * 8 + thread_index();
    if (block_x() == 0 && rest < p.len) ((u16*)p.y)[rest] = (u16)half_of(x[rest], p.is_e4m3);
}
