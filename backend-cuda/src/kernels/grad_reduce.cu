// Exact reduction of gradients over ranks. Every finite f16 value is an integer multiple of 2^-24, so sums of them are sums
// of integers, in any order. Their mean is rounded once (`distributed::half_codec` of the engine).

struct GradReduceParams {
    const void* from;
    void* to;
    u64 count;
    // Elements from the values of one rank to those of the next.
    u64 stride;
    u32 kind;
    u32 ranks;
    u32 micro_batches;
    int exponent;
};

// Returns an f16 value in units of 2^-24. Infinities and NaNs give any number, because their step is skipped.
DEVICE i64 to_fixed_point(u16 half) {
    const u32 exponent = half >> 10 & 31, significand = half & 1023;
    const i64 magnitude = exponent == 0 ? (i64)significand : (i64)(1024 + significand) << (exponent - 1);
    return half >> 15 ? -magnitude : magnitude;
}

// Returns sum / micro_batches · 2^-24, rounded to nearest even.
DEVICE u16 rounded_mean(i64 sum, u32 micro_batches) {
    const u64 magnitude = sum < 0 ? (u64)-sum : (u64)sum;
    const u64 integer = magnitude / micro_batches, rest = magnitude % micro_batches;
    // Bits beyond the eleven significand bits of f16.
    u32 shift = 0;
#pragma unroll
    for (u32 step = 16; step != 0; step >>= 1) {
        if (integer >> (shift + step) >= 1024) shift += step;
    }
    const u64 quotient = integer >> shift;
    // Twice the remainder, compared with one unit of the last bit.
    const u64 remainder = integer - (quotient << shift), tie = shift == 0 ? micro_batches : (u64)1 << shift;
    const u64 doubled_rest = shift == 0 ? 2 * rest : 2 * remainder;
    const bool has_fraction = shift != 0 && rest != 0;
    const bool rounds_up = doubled_rest > tie || (doubled_rest == tie && (has_fraction || (quotient & 1)));
    return (u16)((sum < 0 ? 0x8000u : 0u) | ((shift << 10) + (u32)quotient + (rounds_up ? 1u : 0u)));
}

// Adds gradients of a micro-batch, divided by 2^exponent, to the sums that are sent.
KERNEL(grad_reduce_accumulate, GradReduceParams) {
    const float* from = (const float*)p.from;
    const Factor factor = scale_factor(0, p.exponent);
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        if (p.kind == GRAD_REDUCE_F32) {
            ((float*)p.to)[i] += from[i] / (float)p.micro_batches;
            continue;
        }
        float v[1] = {from[i]};
        apply_factor(factor, v);
        const u16 half = float_to_half(v[0]);
        if (p.kind == GRAD_REDUCE_F16) {
            ((u16*)p.to)[i] = half;
        } else {
            ((i64*)p.to)[i] += to_fixed_point(half);
        }
    }
}

// Computes means from the sums that were received from all ranks.
KERNEL(grad_reduce_mean, GradReduceParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        i64 sum = 0;
        if (p.kind == GRAD_REDUCE_F16) {
            for (u32 rank = 0; rank < p.ranks; rank++) sum += to_fixed_point(((const u16*)p.from)[rank * p.stride + i]);
        } else {
            sum = ((const i64*)p.from)[i];
        }
        ((u16*)p.to)[i] = rounded_mean(sum, p.micro_batches);
    }
}

// Converts the means of a parameter to f32.
KERNEL(grad_reduce_read, GradReduceParams) {
    const Factor factor = scale_factor(p.exponent, 0);
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        if (p.kind == GRAD_REDUCE_F32) {
            ((float*)p.to)[i] = ((const float*)p.from)[i];
            continue;
        }
        float v[1] = {half_to_float(((const u16*)p.from)[i])};
        apply_factor(factor, v);
        ((float*)p.to)[i] = v[0];
    }
}
