// Splits f32 values into three bfloat16: x = hi + mid + lo, each the nearest to what is left.
//
// hi has 8 of the 24 bits of x, mid the next 8 with a sign, and lo the other 7. So the sum is exact from 2^-110 on. Below, lo
// is less than bfloat16's least number, 2^-133, and x loses what is smaller than half of it.
//
// The nearest bfloat16 of the largest f32 values is infinite, so these are truncated. Then mid and lo are exact, too. An
// infinity or NaN is its own hi.

struct SplitParams {
    const Words4* x;
    // Parts: all hi, then all mid, then all lo.
    Words4* parts;
    // A word for each block: 1 if the block has seen an infinity or NaN, otherwise 0.
    u32* nonfinite;
    // 8-wide vectors of x, which are those of a part.
    u32 vec8s;
    u32 unused;
};

#define BF16_MAX 0x7F7Fu

// Returns the bits of the bfloat16 nearest to x, or the largest one for x that is larger.
DEVICE u32 nearest_bf16(u32 x) {
    const u32 nearest = (x + 0x7FFF + (x >> 16 & 1)) >> 16;
    return (nearest & 0x7FFF) > BF16_MAX ? x >> 16 : nearest;
}

// Splits x, and returns true if it is finite.
DEVICE bool split_value(u32 bits, u32 (&parts)[3]) {
    const u32 magnitude = bits & 0x7FFFFFFF;
    if (magnitude >= 0x7F800000) {
        // A NaN remains one without its lower bits.
        parts[0] = bits >> 16 | (magnitude > 0x7F800000 ? 0x40 : 0), parts[1] = 0, parts[2] = 0;
        return false;
    }
    float rest = bits_as_float(bits);
#pragma unroll
    for (u32 part = 0; part < 3; part++) {
        parts[part] = nearest_bf16(float_as_bits(rest));
        rest -= bits_as_float(parts[part] << 16);
    }
    return true;
}

KERNEL(split_bf16, SplitParams) {
    SHARED u32 nonfinite_seen;
    if (thread_index() == 0) nonfinite_seen = 0;
    barrier();
    bool is_finite = true;
    const u32 step = blocks_x() * thread_count();
    for (u32 i = block_x() * thread_count() + thread_index(); i < p.vec8s; i += step) {
        const Words4 halves[2] = {p.x[2 * (u64)i], p.x[2 * (u64)i + 1]};
        u32 words[3][4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) {
            const Words4& four = halves[j / 2];
            u32 low[3], high[3];
            is_finite = split_value(j % 2 == 0 ? four.x : four.z, low) && is_finite;
            is_finite = split_value(j % 2 == 0 ? four.y : four.w, high) && is_finite;
#pragma unroll
            for (u32 part = 0; part < 3; part++) words[part][j] = low[part] | high[part] << 16;
        }
#pragma unroll
        for (u32 part = 0; part < 3; part++) {
            p.parts[part * (u64)p.vec8s + i] = Words4{words[part][0], words[part][1], words[part][2], words[part][3]};
        }
    }
    if (!is_finite) nonfinite_seen = 1;
    barrier();
    if (thread_index() == 0) p.nonfinite[block_x()] = nonfinite_seen;
}
