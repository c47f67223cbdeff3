// y[i] = x[i], rounded to a format of eight bits that memory holds as halves. The module defines the format: the thresholds
// that statistics use, FORMAT_LEAST_NORMAL (bits of its least normal number), FORMAT_TO_LAST_PLACE (distance, as f32 bits, to
// the exponent of an f32 whose last place is the format's) and FORMAT_OVERFLOWED (bits of what is too large).

struct RoundParams {
    Store y;
    const void* x;
    u32 type;
    u32 len;
};

DEVICE float round_to_format(float u) {
    const u32 bits = float_as_bits(u), size = bits & 0x7FFFFFFFu, sign = bits ^ size;
    if (size >= OVERFLOW_START) return bits_as_float(sign | (size > 0x7F800000u ? size : FORMAT_OVERFLOWED));
    // A sum whose last place is the format's rounds to it, to nearest even. It is exact to subtract again.
    u32 exponent = size & 0x7F800000u;
    exponent = exponent > FORMAT_LEAST_NORMAL ? exponent : FORMAT_LEAST_NORMAL;
    const float anchor = bits_as_float(exponent + FORMAT_TO_LAST_PLACE);
    return bits_as_float(sign | float_as_bits((bits_as_float(size) + anchor) - anchor));
}

// Scales, adds, observes, rounds to the format and stores one result of FP16 or f32.
DEVICE void round_and_store(const Store& s, const Epilogue& e, StatsAccumulator& stats, u32 i, float v) {
    float value[1] = {v};
    apply_factor(e.factor, value);
    if (s.add) value[0] = load(s.y, s.type, i) + value[0];
    if (e.detail != 0) observe(e, stats, value);
    value[0] = round_to_format(value[0]);
    if (s.type == TYPE_F16) {
        ((u16*)s.y)[i] = float_to_half(value[0]);
    } else {
        ((float*)s.y)[i] = value[0];
    }
}

// Scales, adds, observes, rounds to the format and stores eight results from `i` on, a multiple of eight.
DEVICE void round_and_store_vec8(const Store& s, const Epilogue& e, StatsAccumulator& stats, u32 i, float (&v)[8]) {
    apply_factor(e.factor, v);
    if (s.add) {
        float previous[8];
        load_vec8_streaming(s.y, s.type, i, previous);
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = previous[j] + v[j];
    }
    if (e.detail != 0) observe(e, stats, v);
#pragma unroll
    for (u32 j = 0; j < 8; j++) v[j] = round_to_format(v[j]);
    if (s.type == TYPE_F16) {
        Words4 words = {floats_to_half2(v[0], v[1]), floats_to_half2(v[2], v[3]), floats_to_half2(v[4], v[5]), floats_to_half2(v[6], v[7])};
        *(Words4*)((u16*)s.y + i) = words;
    } else {
#pragma unroll
        for (u32 j = 0; j < 8; j++) ((float*)s.y)[i + j] = v[j];
    }
}

KERNEL(round_stores, RoundParams) {
    const Store& s = p.y;
    Epilogue e = begin_epilogue(s);
    StatsAccumulator stats = {};
    const u32 step = blocks_x() * thread_count(), groups = p.len / 8;
    for (u32 group = block_x() * thread_count() + thread_index(); group < groups; group += step) {
        float v[8];
        load_vec8_streaming(p.x, p.type, (u64)group * 8, v);
        round_and_store_vec8(s, e, stats, group * 8, v);
    }
    const u32 rest = p.len / 8 * 8 + thread_index();
    if (block_x() == 0 && rest < p.len) round_and_store(s, e, stats, rest, load(p.x, p.type, rest));
    end_epilogue(s, e, stats);
}
