// Which tiles TMA brings for 64 of k, and where they land: lines of 64 halves along k, or panels of 64 of m
// or n with a line for each k, as wgmma.cuh has them.
//
// A convolution's pixels come as they follow each other in y (FORWARD, WEIGHT) or in x (DATA, stride 1 alone), moved by
// a tap; TMA finds them in the other tensor (im2col) and puts zeros where they leave it. Channels come in 64, so 64 of
// k or of n are of one tap. One thread asks for everything: it counts along where dividing would take longer than the
// products.

struct TmaProduct {
    // Matrices: a as [z][m][k] or [z][k][m], b as [z][n][k] or [z][k][n], the last along memory. Convolutions: pixels of
    // x or of dy for what has taps; of w [z][output][tap, input] (FORWARD) or [output][tap][input] (DATA); of dy for a
    // of WEIGHT [pixel][output].
    TensorMap a, b;
    Product product;
};

#if MODE != GEMM
// A pixel's place in its image.
struct Pixel {
    u32 column, row, image;
};
// A tap and the first of 64 channels.
struct Tap {
    u32 channel, j, i;
};

#if MODE == DATA
#define WIDTH w
#define HEIGHT h
#define CHANNELS outputs
#else
#define WIDTH ow
#define HEIGHT oh
#define CHANNELS inputs
#endif

DEVICE Pixel pixel_of(const Product& p, u32 number) {
    u32 rest = number / p.WIDTH;
    return Pixel{number - rest * p.WIDTH, rest % p.HEIGHT, rest / p.HEIGHT};
}
DEVICE void next_64(const Product& p, Pixel& at) {
    at.column += DEPTH;
    while (at.column >= p.WIDTH) {
        at.column -= p.WIDTH;
        at.row += 1;
        if (at.row == p.HEIGHT) at.row = 0, at.image += 1;
    }
}

DEVICE Tap tap_of(const Product& p, u32 number) {
    u32 place = number / p.CHANNELS, i = place / p.kernel_w;
    return Tap{number - place * p.CHANNELS, place - i * p.kernel_w, i};
}
DEVICE void next_64(const Product& p, Tap& tap) {
    tap.channel += DEPTH;
    if (tap.channel != p.CHANNELS) return;
    tap.channel = 0, tap.j += 1;
    if (tap.j == p.kernel_w) tap.j = 0, tap.i += 1;
}

// What a tap reads for pixels from `at` on.
DEVICE void load_taps(u16* to, const Product& p, const TensorMap& from, const Pixel& at, const Tap& tap, u32 z, u32 full) {
#if MODE == DATA
    // dx(u) takes dy(u + pad − tap); taps count from the last, because TMA moves only forward.
    const u32 i = p.kernel_h - 1 - tap.i, j = p.kernel_w - 1 - tap.j;
    const int row = (int)(at.row + p.pad_h) - (int)((p.kernel_h - 1) * p.dilation_h);
    const int column = (int)(at.column + p.pad_w) - (int)((p.kernel_w - 1) * p.dilation_w);
#else
    const u32 i = tap.i, j = tap.j;
    const int row = (int)(at.row * p.stride_h) - (int)p.pad_h, column = (int)(at.column * p.stride_w) - (int)p.pad_w;
#endif
    tma_load_im2col(to, from, z * p.CHANNELS + tap.channel, column, row, at.image, j * p.dilation_w, i * p.dilation_h, full);
}
#endif

#define TAPS ((TRANSPOSED ? TILE_M : TILE_N) / 64)

// Where the copies of a tile are along k.
struct Place {
    Block block;
    u32 k;
#if MODE == FORWARD || MODE == DATA
    Pixel pixel;
    Tap tap;
#elif MODE == WEIGHT
    Pixel pixel;
    // Of a tile, each with 64 inputs.
    Tap taps[TAPS];
#endif
};

DEVICE Place place_of(const Product& p, const Block& block) {
    Place place;
    place.block = block;
    place.k = block.split * p.depth;
#if MODE == FORWARD || MODE == DATA
    place.pixel = pixel_of(p, block.m);
    place.tap = tap_of(p, place.k);
#elif MODE == WEIGHT
    place.pixel = pixel_of(p, place.k);
#pragma unroll
    for (u32 i = 0; i < TAPS; i++) {
        // Behind the last any tap will do.
        const u32 n = (TRANSPOSED ? block.m : block.n) + i * 64;
        place.taps[i] = tap_of(p, n < p.n ? n : 0);
    }
#endif
    return place;
}

DEVICE void next_64(const Product& p, Place& place) {
    place.k += DEPTH;
#if MODE == FORWARD || MODE == DATA
    next_64(p, place.tap);
#elif MODE == WEIGHT
    next_64(p, place.pixel);
#endif
}

// The rows of a tile.
DEVICE void bring_a(u16* to, const TmaProduct& p, const Place& place, u32 full) {
    const Block& block = place.block;
#if MODE == FORWARD || MODE == DATA
    load_taps(to, p.product, p.a, place.pixel, place.tap, block.z, full);
#elif A_ALONG_K
    tma_load(to, p.a, place.k, block.m, block.z, full);
#else
#pragma unroll
    for (u32 panel = 0; panel < TILE_M; panel += 64) {
#if TRANSPOSED
        load_taps(to + panel * DEPTH, p.product, p.b, place.pixel, place.taps[panel / 64], block.z, full);
#elif MODE == WEIGHT
        tma_load(to + panel * DEPTH, p.a, block.z * p.product.outputs + block.m + panel, place.k, 0, full);
#else
        tma_load(to + panel * DEPTH, p.a, block.m + panel, place.k, block.z, full);
#endif
    }
#endif
}

// The columns of a tile; in a cluster the share of block `rank`, to all.
DEVICE void bring_b(u16* to, const TmaProduct& p, const Place& place, u32 rank, u32 full) {
    const Block& block = place.block;
#if CLUSTER > 1
    const u32 share = TILE_N / CLUSTER;
#if B_ALONG_K
    tma_load_multicast(to + rank * share * DEPTH, p.b, place.k, block.n + rank * share, block.z, full);
#else
#pragma unroll
    for (u32 i = 0; i < share; i += 64) {
        const u32 panel = rank * share + i;
        tma_load_multicast(to + panel * DEPTH, p.b, block.n + panel, place.k, block.z, full);
    }
#endif
#elif B_ALONG_K
    tma_load(to, p.b, place.k, block.n, block.z, full);
#else
#pragma unroll
    for (u32 panel = 0; panel < TILE_N; panel += 64) {
#if MODE == DATA
        const Tap& tap = place.tap;
        tma_load(to + panel * DEPTH, p.b, block.n + panel, tap.i * p.product.kernel_w + tap.j,
                 block.z * p.product.outputs + tap.channel, full);
#elif TRANSPOSED
        tma_load(to + panel * DEPTH, p.a, block.z * p.product.outputs + block.n + panel, place.k, 0, full);
#elif MODE == WEIGHT
        load_taps(to + panel * DEPTH, p.product, p.b, place.pixel, place.taps[panel / 64], block.z, full);
#else
        tma_load(to + panel * DEPTH, p.b, block.n + panel, place.k, block.z, full);
#endif
    }
#endif
}
