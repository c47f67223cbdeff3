// y[i] = x[i], rounded to the format of round.cu in blocks of a row, which have an exponent each (core::block_format). Each
// thread rounds whole blocks: it finds the largest finite magnitude, then rounds value by value. The module defines
// FORMAT_LARGEST, the bits of the format's largest number.

struct RoundBlocksParams {
    Store y;
    const void* x;
    u32 type;
    u32 rows;
    u32 columns;
    // Values of a block, and blocks of a row; the last of these may be shorter.
    u32 size;
    u32 blocks;
    // 1 if the exponent of a block whose largest value would saturate is one more.
    u32 rounds_up;
};

#define MIN_BLOCK_EXPONENT -127
// Bits of the smallest normal f32, 2^-126.
#define F32_MIN_NORMAL 0x00800000u

// Returns value `i` at the exponent of the store, with the destination's added if asked.
DEVICE float load_value(const RoundBlocksParams& p, const Epilogue& e, u64 i) {
    float value[1] = {load(p.x, p.type, i)};
    apply_factor(e.factor, value);
    return p.y.add ? ((const float*)p.y.y)[i] + value[0] : value[0];
}

DEVICE int block_exponent(u32 amax, u32 rounds_up) {
    if (amax == 0) return 0;
    const int more = rounds_up != 0 && (amax & 0x007FFFFFu) > (FORMAT_LARGEST & 0x007FFFFFu);
    const int exponent = (int)(amax >> 23) - (int)(FORMAT_LARGEST >> 23) + more;
    return exponent < MIN_BLOCK_EXPONENT ? MIN_BLOCK_EXPONENT : exponent;
}

// Returns a value as the format is to round it: a number that is not zero stays one, and none is too large.
DEVICE float scale_to_block(const Factor& factor, float u) {
    float s[1] = {u};
    apply_factor(factor, s);
    const u32 bits = float_as_bits(s[0]), size = bits & 0x7FFFFFFFu;
    if ((float_as_bits(u) & 0x7FFFFFFFu) == 0 || size >= 0x7F800000u) return s[0];
    const u32 clamped = size < F32_MIN_NORMAL ? F32_MIN_NORMAL : size > FORMAT_LARGEST ? FORMAT_LARGEST : size;
    return bits_as_float((bits ^ size) | clamped);
}

KERNEL(round_blocks, RoundBlocksParams) {
    const Store& s = p.y;
    Epilogue e = begin_epilogue(s);
    StatsAccumulator stats = {};
    const u64 step = (u64)blocks_x() * thread_count(), total = (u64)p.rows * p.blocks;
    for (u64 block = (u64)block_x() * thread_count() + thread_index(); block < total; block += step) {
        const u32 row = (u32)(block / p.blocks), first = (u32)(block - (u64)row * p.blocks) * p.size;
        const u32 rest = p.columns - first;
        const u64 start = (u64)row * p.columns + first, end = start + (rest < p.size ? rest : p.size);
        u32 amax = 0;
        for (u64 i = start; i < end; i++) {
            const u32 size = float_as_bits(load_value(p, e, i)) & 0x7FFFFFFFu;
            if (size > amax && size < 0x7F800000u) amax = size;
        }
        const int exponent = block_exponent(amax, p.rounds_up);
        const Factor down = scale_factor(exponent, 0), up = scale_factor(0, exponent);
        for (u64 i = start; i < end; i++) {
            float value[1] = {scale_to_block(down, load_value(p, e, i))};
            if (e.detail != 0) observe(e, stats, value);
            value[0] = round_to_format(value[0]);
            apply_factor(up, value);
            ((float*)s.y)[i] = value[0];
        }
    }
    end_epilogue(s, e, stats);
}
