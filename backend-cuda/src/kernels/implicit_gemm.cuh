// Products of matrices, and convolutions as products whose operands are read where they lie: nothing is laid out anew.
//
// Result (m, n) of product z is Σ over k of a(m, k) · b(k, n):
//
//   MODE       m                 n                 k                 a    b
//   GEMM       row               column            –                 a    b
//   FORWARD    pixel of y        output            tap, input        x    w
//   DATA       pixel of x        input             tap, output       dy   w
//   WEIGHT     output            tap, input        pixel of y        dy   x
//
// z counts matrices of a batch, or groups. Layouts are NHWC and OHWI (`core::descriptor::{Gemm, Conv2d}`).

#define GEMM 0
#define FORWARD 1
#define DATA 2
#define WEIGHT 3

struct Product {
    Store y;
    const void* a;
    const void* b;
    // None: 0.
    const void* bias;
    // Split-K: partial sums, [split][z][m][n], if there is more than one split.
    float* partials;
    u32 a_type, b_type, bias_type;
    u32 m, n, k, batch;
    // Splits of k, and their length.
    u32 splits, depth;
    // Elements from row to row and from z to z in y; of the bias from z to z.
    u32 y_lead, y_stride, bias_stride;
    // GEMM: elements from one m, k, z to the next in a, and from one k, n, z in b. FORWARD: that of b.
    u32 a_m, a_k, a_stride, b_k, b_n, b_stride;
    // Convolutions: x is [?, h, w, c], y is [?, oh, ow, o].
    u32 h, w, c, oh, ow, o, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    // Inputs and outputs of a group.
    u32 inputs, outputs;
    // Whether eight results side by side may be written at once.
    u32 wide;
};

#define NOWHERE 0xFFFFFFFFu

// One side of an element's address; two sides meet in an element.
struct Side {
    u32 base;
    int u, v;
};

// A pixel of y, as the corner of what it reads in x.
DEVICE Side corner(const Product& p, u32 pixel, u32 base) {
    u32 q = pixel % p.ow, rest = pixel / p.ow;
    u32 r = rest % p.oh, image = rest / p.oh;
    return Side{image * p.h * p.w * p.c + base, (int)(r * p.stride_h) - (int)p.pad_h,
                (int)(q * p.stride_w) - (int)p.pad_w};
}

// A tap and one of `channels`.
DEVICE Side tap(const Product& p, u32 k, u32 channels) {
    u32 place = k / channels, channel = k - place * channels;
    u32 i = place / p.kernel_w, j = place - i * p.kernel_w;
    return Side{channel, (int)(i * p.dilation_h), (int)(j * p.dilation_w)};
}

// Where a tap of a corner reads in x.
DEVICE u32 read_x(const Product& p, const Side& corner, const Side& tap) {
    u32 u = (u32)(corner.u + tap.u), v = (u32)(corner.v + tap.v);
    return u < p.h && v < p.w ? corner.base + (u * p.w + v) * p.c + tap.base : NOWHERE;
}

DEVICE Side a_of_m(const Product& p, u32 z, u32 m) {
#if MODE == GEMM
    return Side{z * p.a_stride + m * p.a_m, 0, 0};
#elif MODE == FORWARD
    return corner(p, m, z * p.inputs);
#elif MODE == DATA
    u32 v = m % p.w, rest = m / p.w;
    u32 u = rest % p.h, image = rest / p.h;
    return Side{image * p.oh * p.ow * p.o + z * p.outputs, (int)(u + p.pad_h), (int)(v + p.pad_w)};
#else
    return Side{z * p.outputs + m, 0, 0};
#endif
}

DEVICE Side a_of_k(const Product& p, u32 k) {
#if MODE == GEMM
    return Side{k * p.a_k, 0, 0};
#elif MODE == FORWARD
    return tap(p, k, p.inputs);
#elif MODE == DATA
    return tap(p, k, p.outputs);
#else
    return Side{k * p.o, 0, 0};
#endif
}

DEVICE u32 a_at(const Product& p, const Side& m, const Side& k) {
#if MODE == FORWARD
    return read_x(p, m, k);
#elif MODE == DATA
    int u = m.u - k.u, v = m.v - k.v;
    if (u < 0 || v < 0) return NOWHERE;
    u32 r = (u32)u / p.stride_h, s = (u32)v / p.stride_w;
    bool there = r * p.stride_h == (u32)u && s * p.stride_w == (u32)v && r < p.oh && s < p.ow;
    return there ? m.base + (r * p.ow + s) * p.o + k.base : NOWHERE;
#else
    return m.base + k.base;
#endif
}

DEVICE Side b_of_k(const Product& p, u32 k) {
#if MODE == GEMM || MODE == FORWARD
    return Side{k * p.b_k, 0, 0};
#elif MODE == DATA
    u32 place = k / p.outputs, output = k - place * p.outputs;
    return Side{(output * p.kernel_h * p.kernel_w + place) * p.inputs, 0, 0};
#else
    return corner(p, k, 0);
#endif
}

DEVICE Side b_of_n(const Product& p, u32 z, u32 n) {
#if MODE == GEMM || MODE == FORWARD
    return Side{z * p.b_stride + n * p.b_n, 0, 0};
#elif MODE == DATA
    return Side{z * p.outputs * p.kernel_h * p.kernel_w * p.inputs + n, 0, 0};
#else
    Side side = tap(p, n, p.inputs);
    side.base += z * p.inputs;
    return side;
#endif
}

DEVICE u32 b_at(const Product& p, const Side& k, const Side& n) {
#if MODE == WEIGHT
    return read_x(p, k, n);
#else
    return k.base + n.base;
#endif
}

// Which part of the result a block makes. Blocks side by side work on rows side by side, so that they share operands
// in the second cache.
struct Block {
    u32 m, n, z, split;
};

DEVICE Block block_of(const Product& p, u32 number, u32 tile_m, u32 tile_n) {
    const u32 band = 8;
    u32 rows = (p.m + tile_m - 1) / tile_m, columns = (p.n + tile_n - 1) / tile_n;
    u32 tile = number % (rows * columns), rest = number / (rows * columns);
    u32 first = tile / (band * columns) * band;
    u32 height = rows - first < band ? rows - first : band;
    u32 inside = tile - first * columns;
    return Block{(first + inside % height) * tile_m, inside / height * tile_n, rest % p.batch, rest / p.batch};
}

DEVICE float bias_at(const Product& p, u32 z, u32 n) {
    return p.bias ? load(p.bias, p.bias_type, z * p.bias_stride + n) : 0.0f;
}

// The eight of a from (m, k) on.
DEVICE u32 a_start(const Product& p, const Side& m, u32 row, u32 k, u32 end_k) {
    return row < p.m && k < end_k ? a_at(p, m, a_of_k(p, k)) : NOWHERE;
}
DEVICE u32 b_start(const Product& p, const Side& n, u32 column, u32 k, u32 end_k) {
    return column < p.n && k < end_k ? b_at(p, b_of_k(p, k), n) : NOWHERE;
}

// Where result (m, n) lies in y.
DEVICE u64 y_at(const Product& p, u32 z, u32 m, u32 n) { return (u64)z * p.y_stride + (u64)m * p.y_lead + n; }

// Eight results of which the first is (m, n), to y, or where sums are cut to their split's partial sums; what lies outside
// is left out.
DEVICE void store_vec8(const Product& p, u32 z, u32 split, u32 m, u32 n, const float* from, const Epilogue& e, Seen& seen) {
    if (m >= p.m || n >= p.n) return;
    const bool whole = p.splits == 1;
    const u64 at = y_at(p, z, m, n);
    if (whole && p.wide) {
        float v[8];
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = from[j];
        // Asked once for all eight.
        if (p.bias != 0) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] += bias_at(p, z, n + j);
        }
        put8(p.y, e, seen, at, v);
        return;
    }
    float* partials = p.partials + (((u64)split * p.batch + z) * p.m + m) * p.n + n;
    const u32 there = p.n - n < 8 ? p.n - n : 8;
    if (!whole && p.n % 4 == 0) {
        // Aligned fours: a warp's lines fill their sectors.
#pragma unroll 1
        for (u32 j = 0; j < there; j += 4) {
            const Words4 four = {bits_of(from[j]), bits_of(from[j + 1]), bits_of(from[j + 2]), bits_of(from[j + 3])};
            *(Words4*)(partials + j) = four;
        }
        return;
    }
#pragma unroll 1
    for (u32 j = 0; j < there; j++) {
        if (whole) {
            put(p.y, e, seen, at + j, from[j] + bias_at(p, z, n + j));
        } else {
            partials[j] = from[j];
        }
    }
}

// Two such, the second so many rows further down, and so much further in memory. Where both go to y whole they go
// together: a warp that has its scheduler for itself then waits half as often.
DEVICE void store_two_vec8s(const Product& p, u32 z, u32 split, u32 m, u32 n, const float* from, u32 down, u32 further,
                            const Epilogue& e, Seen& seen) {
    if (p.splits == 1 && p.wide && m + down < p.m && n < p.n) {
        float v[16];
#pragma unroll
        for (u32 j = 0; j < 16; j++) v[j] = from[j / 8 * further + j % 8];
        if (p.bias != 0) {
#pragma unroll
            for (u32 j = 0; j < 16; j++) v[j] += bias_at(p, z, n + j % 8);
        }
        const u64 at[2] = {y_at(p, z, m, n), y_at(p, z, m + down, n)};
        put8s(p.y, e, seen, at, v);
        return;
    }
#pragma unroll 1
    for (u32 i = 0; i < 2; i++) store_vec8(p, z, split, m + i * down, n, from + i * further, e, seen);
}

// Results of a warp on their way out: `rows` lines of `vec8s` times eight, from (m0, n0) on.
DEVICE void store_epilogue_tile(const Product& p, u32 z, u32 split, u32 m0, u32 n0, const float* tile, u32 line, u32 rows,
                                u32 vec8s, const Epilogue& e, Seen& seen) {
#pragma unroll 1
    for (u32 i = thread_index() % 32; i < rows * vec8s; i += 32) {
        const u32 row = i / vec8s, column = i % vec8s * 8;
        store_vec8(p, z, split, m0 + row, n0 + column, tile + row * line + column, e, seen);
    }
}
