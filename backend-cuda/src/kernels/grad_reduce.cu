// Gradients between ranks. Every finite half is a whole multiple of 2^-24: sums of halves are sums of integers, whose order
// does not matter, and their mean is rounded once (`distributed::half_codec` of the engine).

struct WireParams {
    const void* from;
    void* to;
    u64 count;
    // How far apart the values of one rank are from those of the next.
    u64 stride;
    u32 kind;
    u32 ranks;
    u32 parts;
    int exponent;
};

// A half as a multiple of 2^-24. No step is taken with what is not finite.
DEVICE i64 units(u16 half) {
    const u32 exponent = half >> 10 & 31, digits = half & 1023;
    const i64 size = exponent == 0 ? (i64)digits : (i64)(1024 + digits) << (exponent - 1);
    return half >> 15 ? -size : size;
}

// sum / parts · 2^-24, to nearest even.
DEVICE u16 rounded_mean(i64 sum, u32 parts) {
    const u64 size = sum < 0 ? (u64)-sum : (u64)sum;
    const u64 whole = size / parts, rest = size % parts;
    // So many digits are more than the eleven of a half.
    u32 over = 0;
#pragma unroll
    for (u32 step = 16; step != 0; step >>= 1) {
        if (whole >> (over + step) >= 1024) over += step;
    }
    const u64 kept = whole >> over;
    // Twice what is left, beside twice a half of the last digit.
    const u64 left = whole - (kept << over), middle = over == 0 ? parts : (u64)1 << over;
    const u64 twice = over == 0 ? 2 * rest : 2 * left;
    const bool more = over != 0 && rest != 0;
    const bool up = twice > middle || (twice == middle && (more || (kept & 1)));
    return (u16)((sum < 0 ? 0x8000u : 0u) | ((over << 10) + (u32)kept + (up ? 1u : 0u)));
}

KERNEL(wire_add, WireParams) {
    const float* from = (const float*)p.from;
    const Factor factor = factor_between(0, p.exponent);
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        if (p.kind == WIRE_SINGLES) {
            ((float*)p.to)[i] += from[i] / (float)p.parts;
            continue;
        }
        float v[1] = {from[i]};
        apply(factor, v);
        const u16 half = half_of(v[0]);
        if (p.kind == WIRE_HALVES) {
            ((u16*)p.to)[i] = half;
        } else {
            ((i64*)p.to)[i] += units(half);
        }
    }
}

KERNEL(wire_mean, WireParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        i64 sum = 0;
        if (p.kind == WIRE_HALVES) {
            for (u32 rank = 0; rank < p.ranks; rank++) sum += units(((const u16*)p.from)[rank * p.stride + i]);
        } else {
            sum = ((const i64*)p.from)[i];
        }
        ((u16*)p.to)[i] = rounded_mean(sum, p.parts);
    }
}

KERNEL(wire_take, WireParams) {
    const Factor factor = factor_between(p.exponent, 0);
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        if (p.kind == WIRE_SINGLES) {
            ((float*)p.to)[i] = ((const float*)p.from)[i];
            continue;
        }
        float v[1] = {of_half(((const u16*)p.from)[i])};
        apply(factor, v);
        ((float*)p.to)[i] = v[0];
    }
}
