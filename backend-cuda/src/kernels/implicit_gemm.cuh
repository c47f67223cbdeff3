// GEMMs, and convolutions as implicit GEMMs: operands are addressed in their own layout, and no im2col matrix is written.
//
// Result (m, n) of product z is Σ over k of a(m, k) · b(k, n):
//
//   MODE       m                 n                 k                 a    b
//   GEMM       row               column            –                 a    b
//   FORWARD    pixel of y        output            offset, input     x    w
//   DATA       pixel of x        input             offset, output    dy   w
//   WEIGHT     output            offset, input     pixel of y        dy   x
//
// An offset is a position in the convolution kernel, z an index of a matrix of a batch or of a group. Layouts are NHWC and
// OHWI (`core::ops::{Gemm, Conv2d}`). An output, input or element is one of its group's channels.

#define GEMM 0
#define FORWARD 1
#define DATA 2
#define WEIGHT 3

struct GemmParams {
    Store y;
    const void* a;
    const void* b;
    // Bias of the columns, or null without a bias.
    const void* bias;
    // Partial sums [split][z][m][n], if there is more than one split.
    float* partials;
    u32 a_type, b_type, bias_type;
    u32 m, n, k, batch;
    // Number of splits of k, and terms of a split.
    u32 splits, split_len;
    // Leading dimension of y, and elements from z to z in y and in the bias.
    u32 ldy, y_stride, bias_stride;
    // Strides of a in m, k and z, and of b in k, n and z. Only GEMM uses those of a, only GEMM and FORWARD those of b.
    u32 a_stride_m, a_stride_k, a_stride_z, b_stride_k, b_stride_n, b_stride_z;
    // Convolutions: x is [?, h, w, c], y is [?, oh, ow, o].
    u32 h, w, c, oh, ow, o, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    // Input and output channels of a group.
    u32 inputs, outputs;
    // 1 if eight neighbouring results of a row are aligned in y.
    u32 vectorized;
    // Element of y that is the first result.
    u32 y_start;
    // Elements of y from pixel to pixel of a row, from row to row and from image to image, if the results are every
    // stride-th pixel of x: one phase of DATA. 0 if rows of results are `ldy` apart.
    u32 y_pixel_step, y_row_step, y_image_step;
};

#define OUT_OF_BOUNDS 0xFFFFFFFFu

// Summand of the address of an element: that of its m (or n), or that of its k. For an operand with pixels, u and v are
// a row and a column of the image, which are valid only after both summands are added.
struct PartialAddress {
    u32 base;
    int u, v;
};

// Returns the summand of a pixel of y: the upper left corner of its window in x.
DEVICE PartialAddress window_origin(const GemmParams& p, u32 pixel, u32 base) {
    u32 q = pixel % p.ow, rest = pixel / p.ow;
    u32 r = rest % p.oh, image = rest / p.oh;
    return PartialAddress{image * p.h * p.w * p.c + base, (int)(r * p.stride_h) - (int)p.pad_h,
                (int)(q * p.stride_w) - (int)p.pad_w};
}

// Returns the summand of a kernel offset and one of `channels` channels.
DEVICE PartialAddress kernel_offset(const GemmParams& p, u32 k, u32 channels) {
    u32 place = k / channels, channel = k - place * channels;
    u32 i = place / p.kernel_w, j = place - i * p.kernel_w;
    return PartialAddress{channel, (int)(i * p.dilation_h), (int)(j * p.dilation_w)};
}

// Returns the element of x that a kernel offset of a window reads.
DEVICE u32 x_offset(const GemmParams& p, const PartialAddress& window_origin, const PartialAddress& kernel_offset) {
    u32 u = (u32)(window_origin.u + kernel_offset.u), v = (u32)(window_origin.v + kernel_offset.v);
    return u < p.h && v < p.w ? window_origin.base + (u * p.w + v) * p.c + kernel_offset.base : OUT_OF_BOUNDS;
}

DEVICE PartialAddress a_address_m(const GemmParams& p, u32 z, u32 m) {
#if MODE == GEMM
    return PartialAddress{z * p.a_stride_z + m * p.a_stride_m, 0, 0};
#elif MODE == FORWARD
    return window_origin(p, m, z * p.inputs);
#elif MODE == DATA
    u32 v = m % p.w, rest = m / p.w;
    u32 u = rest % p.h, image = rest / p.h;
    return PartialAddress{image * p.oh * p.ow * p.o + z * p.outputs, (int)(u + p.pad_h), (int)(v + p.pad_w)};
#else
    return PartialAddress{z * p.outputs + m, 0, 0};
#endif
}

DEVICE PartialAddress a_address_k(const GemmParams& p, u32 k) {
#if MODE == GEMM
    return PartialAddress{k * p.a_stride_k, 0, 0};
#elif MODE == FORWARD
    return kernel_offset(p, k, p.inputs);
#elif MODE == DATA
    return kernel_offset(p, k, p.outputs);
#else
    return PartialAddress{k * p.o, 0, 0};
#endif
}

DEVICE u32 a_offset(const GemmParams& p, const PartialAddress& m, const PartialAddress& k) {
#if MODE == FORWARD
    return x_offset(p, m, k);
#elif MODE == DATA
    int u = m.u - k.u, v = m.v - k.v;
    if (u < 0 || v < 0) return OUT_OF_BOUNDS;
    u32 r = (u32)u / p.stride_h, s = (u32)v / p.stride_w;
    bool is_inside = r * p.stride_h == (u32)u && s * p.stride_w == (u32)v && r < p.oh && s < p.ow;
    return is_inside ? m.base + (r * p.ow + s) * p.o + k.base : OUT_OF_BOUNDS;
#else
    return m.base + k.base;
#endif
}

DEVICE PartialAddress b_address_k(const GemmParams& p, u32 k) {
#if MODE == GEMM || MODE == FORWARD
    return PartialAddress{k * p.b_stride_k, 0, 0};
#elif MODE == DATA
    u32 place = k / p.outputs, output = k - place * p.outputs;
    return PartialAddress{(output * p.kernel_h * p.kernel_w + place) * p.inputs, 0, 0};
#else
    return window_origin(p, k, 0);
#endif
}

DEVICE PartialAddress b_address_n(const GemmParams& p, u32 z, u32 n) {
#if MODE == GEMM || MODE == FORWARD
    return PartialAddress{z * p.b_stride_z + n * p.b_stride_n, 0, 0};
#elif MODE == DATA
    return PartialAddress{z * p.outputs * p.kernel_h * p.kernel_w * p.inputs + n, 0, 0};
#else
    PartialAddress side = kernel_offset(p, n, p.inputs);
    side.base += z * p.inputs;
    return side;
#endif
}

DEVICE u32 b_offset(const GemmParams& p, const PartialAddress& k, const PartialAddress& n) {
#if MODE == WEIGHT
    return x_offset(p, k, n);
#else
    return k.base + n.base;
#endif
}

// First row and column of the tile of a block, its matrix or group, and its split.
struct TileCoord {
    u32 m, n, z, split;
};

// Returns the tile of block `tile_number`. The order is swizzled: consecutive blocks work on eight rows of tiles at a
// time, so that blocks that run together share operands in L2.
DEVICE TileCoord swizzled_tile(const GemmParams& p, u32 tile_number, u32 tile_m, u32 tile_n) {
    const u32 swizzle_rows = 8;
    u32 rows = (p.m + tile_m - 1) / tile_m, columns = (p.n + tile_n - 1) / tile_n;
    u32 tile = tile_number % (rows * columns), rest = tile_number / (rows * columns);
    u32 first_row = tile / (swizzle_rows * columns) * swizzle_rows;
    u32 band_rows = rows - first_row < swizzle_rows ? rows - first_row : swizzle_rows;
    u32 tile_in_band = tile - first_row * columns;
    return TileCoord{(first_row + tile_in_band % band_rows) * tile_m, tile_in_band / band_rows * tile_n, rest % p.batch, rest / p.batch};
}

DEVICE float load_bias(const GemmParams& p, u32 z, u32 n) {
    return p.bias ? load(p.bias, p.bias_type, z * p.bias_stride + n) : 0.0f;
}

// Returns the offset of the first element of the 8-wide vector of an operand from (m, k) or (k, n) on.
DEVICE u32 a_vec8_offset(const GemmParams& p, const PartialAddress& m, u32 row, u32 k, u32 end_k) {
    return row < p.m && k < end_k ? a_offset(p, m, a_address_k(p, k)) : OUT_OF_BOUNDS;
}
DEVICE u32 b_vec8_offset(const GemmParams& p, const PartialAddress& n, u32 column, u32 k, u32 end_k) {
    return column < p.n && k < end_k ? b_offset(p, b_address_k(p, k), n) : OUT_OF_BOUNDS;
}

// Phases of a strided convolution exist in DATA, and in the reduction of split-K, which serves all modes.
#if MODE == DATA || defined(ANY_MODE)
#define HAS_PHASES 1
#else
#define HAS_PHASES 0
#endif

// Returns the index of result (m, n) in y.
DEVICE u64 y_offset(const GemmParams& p, u32 z, u32 m, u32 n) {
    const u64 start = (u64)p.y_start + (u64)z * p.y_stride + n;
#if HAS_PHASES
    if (p.y_pixel_step != 0) {
        const u32 rest = m / p.w, column = m - rest * p.w, image = rest / p.h, row = rest - image * p.h;
        return start + (u64)image * p.y_image_step + (u64)row * p.y_row_step + (u64)column * p.y_pixel_step;
    }
#endif
    return start + (u64)m * p.ldy;
}

// Stores `count` results, at most eight, from any element on. The others of v are zeros: they are observed, and what
// they add to the counters is subtracted, so that values are observed eight at a time here, too.
DEVICE void store_partial_vec8(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 at, u32 count, float (&v)[8]) {
    if (s.type != TYPE_F16 && s.type != TYPE_F32) {
#pragma unroll 1
        for (u32 j = 0; j < count; j++) store_scalar(s, e, stats, at + j, v[j]);
        return;
    }
    apply_factor(e.factor, v);
    if (s.add) {
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            if (j < count) v[j] = load(s.y, s.type, at + j) + v[j];
        }
    }
    if (e.detail != 0) {
        observe(e, stats, v);
        const u32 padding = 8 - count;
        stats.count -= padding;
        stats.zeros -= padding;
        stats.below_flush -= padding;
        stats.below_normal -= padding;
    }
#pragma unroll
    for (u32 j = 0; j < 8; j++) {
        if (j >= count) continue;
        if (s.type == TYPE_F16) {
            ((u16*)s.y)[at + j] = float_to_half(v[j]);
        } else {
            ((float*)s.y)[at + j] = v[j];
        }
    }
}

// Stores `rows` × `columns` results of a warp whose rows are not aligned in y, from (m0, n0) on. `sum_at` returns the sum
// of a row and a column.
//
// A run is a range of results that are contiguous in y: one row, or all rows if each is a whole row of y. It consists of
// vectors that are aligned in y, and of a head and a tail of less than eight results. For example, 16 rows of 11 classes
// are one run of 22 vectors.
template <class SumAt>
DEVICE void store_unaligned_tile(const GemmParams& p, u32 z, u32 m0, u32 n0, u32 rows, u32 columns, const Epilogue& e,
                                 StatsAccumulator& stats, const SumAt& sum_at) {
    if (m0 >= p.m || n0 >= p.n) return;
    rows = p.m - m0 < rows ? p.m - m0 : rows;
    columns = p.n - n0 < columns ? p.n - n0 : columns;
#if HAS_PHASES
    const bool is_one_run = p.y_pixel_step == 0 && columns == p.ldy;
#else
    const bool is_one_run = columns == p.ldy;
#endif
    const u32 runs = is_one_run ? 1 : rows, length = is_one_run ? rows * columns : columns, lane = thread_index() % 32;
    // Gathers eight results of a run, with zeros after its end.
    auto gather = [&](u32 run, u32 first, float (&v)[8]) {
        u32 row = is_one_run ? first / columns : run, column = is_one_run ? first - row * columns : first;
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            v[j] = first + j < length ? sum_at(row, column) + load_bias(p, z, n0 + column) : 0.0f;
            column += 1;
            if (column == columns) column = 0, row += 1;
        }
    };
    const u32 vec8s = (length + 7) / 8;
#pragma unroll 1
    for (u32 i = lane; i < runs * vec8s; i += 32) {
        const u32 run = i / vec8s;
        const u64 at = y_offset(p, z, m0 + run, n0);
        const u32 first = (0 - (u32)at) % 8 + (i - run * vec8s) * 8;
        if (first + 8 > length) continue;
        float v[8];
        gather(run, first, v);
        store_vec8(p.y, e, stats, at + first, v);
    }
#pragma unroll 1
    for (u32 i = lane; i < 2 * runs; i += 32) {
        const u32 run = i / 2;
        const u64 at = y_offset(p, z, m0 + run, n0);
        const u32 unaligned = (0 - (u32)at) % 8, head = unaligned < length ? unaligned : length;
        const u32 first = i % 2 == 0 ? 0 : head + (length - head) / 8 * 8, count = (i % 2 == 0 ? head : length) - first;
        if (count == 0) continue;
        float v[8];
        gather(run, first, v);
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = j < count ? v[j] : 0.0f;
        store_partial_vec8(p.y, e, stats, at + first, count, v);
    }
}

// Stores eight results from (m, n) on, to aligned elements of y, or with several splits to the partial sums. Results
// outside the matrix are skipped.
DEVICE void store_result_vec8(const GemmParams& p, u32 z, u32 split, u32 m, u32 n, const float* from, const Epilogue& e, StatsAccumulator& stats) {
    if (m >= p.m || n >= p.n) return;
    const bool is_unsplit = p.splits == 1;
    if (is_unsplit) {
        float v[8];
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = from[j];
        // One test for all eight.
        if (p.bias != 0) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] += load_bias(p, z, n + j);
        }
        store_vec8(p.y, e, stats, y_offset(p, z, m, n), v);
        return;
    }
    float* partials = p.partials + (((u64)split * p.batch + z) * p.m + m) * p.n + n;
    const u32 remaining = p.n - n < 8 ? p.n - n : 8;
    if (p.n % 4 == 0) {
        // 16-byte stores, so that the lines of a warp fill their sectors.
#pragma unroll 1
        for (u32 j = 0; j < remaining; j += 4) {
            const Words4 four = {float_as_bits(from[j]), float_as_bits(from[j + 1]), float_as_bits(from[j + 2]), float_as_bits(from[j + 3])};
            *(Words4*)(partials + j) = four;
        }
        return;
    }
#pragma unroll 1
    for (u32 j = 0; j < remaining; j++) partials[j] = from[j];
}

// Stores two such vectors. The second one is `second_row` rows below the first, and `second_from` floats after it in shared
// memory. Both are stored together if possible, because a warp that is alone on its scheduler then waits half as often.
DEVICE void store_result_vec8_pair(const GemmParams& p, u32 z, u32 split, u32 m, u32 n, const float* from, u32 second_row, u32 second_from,
                            const Epilogue& e, StatsAccumulator& stats) {
    if (p.splits == 1 && m + second_row < p.m && n < p.n) {
        float v[16];
#pragma unroll
        for (u32 j = 0; j < 16; j++) v[j] = from[j / 8 * second_from + j % 8];
        if (p.bias != 0) {
#pragma unroll
            for (u32 j = 0; j < 16; j++) v[j] += load_bias(p, z, n + j % 8);
        }
        const u64 at[2] = {y_offset(p, z, m, n), y_offset(p, z, m + second_row, n)};
        store_vec8s(p.y, e, stats, at, v);
        return;
    }
#pragma unroll 1
    for (u32 i = 0; i < 2; i++) store_result_vec8(p, z, split, m + i * second_row, n, from + i * second_from, e, stats);
}

// Stores `rows` rows of `vec8s` 8-wide vectors of a warp from shared memory, from (m0, n0) of the result on.
DEVICE void store_epilogue_tile(const GemmParams& p, u32 z, u32 split, u32 m0, u32 n0, const float* tile, u32 pitch, u32 rows,
                                u32 vec8s, const Epilogue& e, StatsAccumulator& stats) {
    if (p.splits == 1 && !p.vectorized) {
        store_unaligned_tile(p, z, m0, n0, rows, vec8s * 8, e, stats, [&](u32 row, u32 column) { return tile[row * pitch + column]; });
        return;
    }
#pragma unroll 1
    for (u32 i = thread_index() % 32; i < rows * vec8s; i += 32) {
        const u32 row = i / vec8s, column = i % vec8s * 8;
        store_result_vec8(p, z, split, m0 + row, n0 + column, tile + row * pitch + column, e, stats);
    }
}
