// TMA loads of the operands of a K tile of 64 into the layout of wgmma.cuh.
//
// Pixels of a convolution are consecutive in y (FORWARD, WEIGHT) or in x (DATA, stride 1 only), shifted by a kernel
// offset ("tap"). TMA's im2col mode finds them in the other tensor and fills zeros outside. The host rounds channels up
// to a multiple of 64, so 64 of k or of n belong to one tap: TMA fills zeros for channels that a tensor does not have. One
// thread issues all loads. It advances positions instead of dividing,
// because divisions would take longer than the multiplications.

struct TmaGemmParams {
    // GEMM: a as [z][m][k] or [z][k][m], b as [z][n][k] or [z][k][n], the last contiguous. Convolutions: pixels of x or dy
    // for the operand with taps; w as [z, output][tap][input] (FORWARD, DATA); dy as
    // [pixel][output] for WEIGHT.
    // One for each part of an operand.
    TensorMap a[OPERAND_PARTS], b[OPERAND_PARTS];
    GemmParams gemm;
#if OPERAND_PARTS > 1
    // A word for each block of split_bf16.cu, other than 0 if the block has seen an infinity or NaN.
    const u32* nonfinite;
    u32 nonfinite_count;
#endif
};

#if MODE != GEMM
// Position of a pixel in its image.
struct Pixel {
    u32 column, row, image;
};
// Position in the convolution kernel, and the first of 64 channels.
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

DEVICE Pixel pixel_at(const GemmParams& p, u32 index) {
    u32 rest = index / p.WIDTH;
    return Pixel{index - rest * p.WIDTH, rest % p.HEIGHT, rest / p.HEIGHT};
}
DEVICE void advance_k(const GemmParams& p, Pixel& pixel_position) {
    pixel_position.column += K_TILE;
    while (pixel_position.column >= p.WIDTH) {
        pixel_position.column -= p.WIDTH;
        pixel_position.row += 1;
        if (pixel_position.row == p.HEIGHT) pixel_position.row = 0, pixel_position.image += 1;
    }
}

DEVICE Tap tap_at(const GemmParams& p, u32 index) {
    u32 position = index / p.CHANNELS, i = position / p.kernel_w;
    return Tap{index - position * p.CHANNELS, position - i * p.kernel_w, i};
}
DEVICE void advance_k(const GemmParams& p, Tap& tap) {
    tap.channel += K_TILE;
    if (tap.channel != p.CHANNELS) return;
    tap.channel = 0, tap.j += 1;
    if (tap.j == p.kernel_w) tap.j = 0, tap.i += 1;
}

// Loads the elements that a tap reads for the pixels from `pixel_position` on.
DEVICE void load_im2col(u16* smem, const GemmParams& p, const TensorMap& map, const Pixel& pixel_position, const Tap& tap, u32 z, u32 full) {
#if MODE == DATA
    // dx(u) reads dy(u + pad − tap). Taps count from the last, because offsets of TMA are not negative.
    const u32 i = p.kernel_h - 1 - tap.i, j = p.kernel_w - 1 - tap.j;
    const int row = (int)(pixel_position.row + p.pad_h) - (int)((p.kernel_h - 1) * p.dilation_h);
    const int column = (int)(pixel_position.column + p.pad_w) - (int)((p.kernel_w - 1) * p.dilation_w);
#else
    const u32 i = tap.i, j = tap.j;
    const int row = (int)(pixel_position.row * p.stride_h) - (int)p.pad_h, column = (int)(pixel_position.column * p.stride_w) - (int)p.pad_w;
#endif
    tma_load_im2col(smem, map, z * p.CHANNELS + tap.channel, column, row, pixel_position.image, j * p.dilation_w, i * p.dilation_h, full);
}
#endif

#define TAPS_PER_TILE ((SWAP_AB ? TILE_M : TILE_N) / 64)

// Position of the loads of a tile along k.
struct CopyPosition {
    TileCoord block;
    u32 k;
#if MODE == FORWARD || MODE == DATA
    Pixel pixel;
    Tap tap;
#elif MODE == WEIGHT
    Pixel pixel;
    // Position in the kernel for each 64 rows (SWAP_AB) or columns of a tile.
    Tap taps[TAPS_PER_TILE];
#endif
};

DEVICE CopyPosition copy_position(const GemmParams& p, const TileCoord& block) {
    CopyPosition position;
    position.block = block;
    position.k = block.split * p.split_len;
#if MODE == FORWARD || MODE == DATA
    position.pixel = pixel_at(p, block.m);
    position.tap = tap_at(p, position.k);
#elif MODE == WEIGHT
    position.pixel = pixel_at(p, position.k);
#pragma unroll
    for (u32 i = 0; i < TAPS_PER_TILE; i++) {
        // After the last one any tap is valid, because its results are not stored.
        const u32 n = (SWAP_AB ? block.m : block.n) + i * 64;
        position.taps[i] = tap_at(p, n < p.n ? n : 0);
    }
#endif
    return position;
}

DEVICE void advance_k(const GemmParams& p, CopyPosition& position) {
    position.k += K_TILE;
#if MODE == FORWARD || MODE == DATA
    advance_k(p, position.tap);
#elif MODE == WEIGHT
    advance_k(p, position.pixel);
#endif
}

// Loads a tile of a part of operand a by TMA into shared memory.
DEVICE void load_a_tile(u16* smem, const TmaGemmParams& p, u32 part, const CopyPosition& position, u32 full) {
    const TileCoord& block = position.block;
#if MODE == FORWARD || MODE == DATA
    load_im2col(smem, p.gemm, p.a[part], position.pixel, position.tap, block.z, full);
#elif A_K_CONTIGUOUS
    tma_load(smem, p.a[part], position.k, block.m, block.z, full);
#else
#pragma unroll
    for (u32 panel = 0; panel < TILE_M; panel += 64) {
#if SWAP_AB
        load_im2col(smem + panel * K_TILE, p.gemm, p.b[part], position.pixel, position.taps[panel / 64], block.z, full);
#elif MODE == WEIGHT
        tma_load(smem + panel * K_TILE, p.a[part], block.z * p.gemm.outputs + block.m + panel, position.k, 0, full);
#else
        tma_load(smem + panel * K_TILE, p.a[part], block.m + panel, position.k, block.z, full);
#endif
    }
#endif
}

// Loads the columns of a tile, of a part of their operand. In a cluster, block `rank` loads its share for all blocks.
DEVICE void load_b_tile(u16* smem, const TmaGemmParams& p, u32 part, const CopyPosition& position, u32 rank, u32 full) {
    const TileCoord& block = position.block;
#if CLUSTER > 1
    const u32 columns_per_block = TILE_N / CLUSTER;
#if B_K_CONTIGUOUS
    tma_load_multicast(smem + rank * columns_per_block * K_TILE, p.b[part], position.k, block.n + rank * columns_per_block, block.z, full);
#else
#pragma unroll
    for (u32 i = 0; i < columns_per_block; i += 64) {
        const u32 panel = rank * columns_per_block + i;
        tma_load_multicast(smem + panel * K_TILE, p.b[part], block.n + panel, position.k, block.z, full);
    }
#endif
#elif MODE == FORWARD
    const Tap& tap = position.tap;
    tma_load(smem, p.b[part], tap.channel, tap.i * p.gemm.kernel_w + tap.j, block.z * p.gemm.outputs + block.n, full);
#elif B_K_CONTIGUOUS
    tma_load(smem, p.b[part], position.k, block.n, block.z, full);
#else
#pragma unroll
    for (u32 panel = 0; panel < TILE_N; panel += 64) {
#if MODE == DATA
        const Tap& tap = position.tap;
        tma_load(smem + panel * K_TILE, p.b[part], block.n + panel, tap.i * p.gemm.kernel_w + tap.j,
                 block.z * p.gemm.outputs + tap.channel, full);
#elif SWAP_AB
        tma_load(smem + panel * K_TILE, p.a[part], block.z * p.gemm.outputs + block.n + panel, position.k, 0, full);
#elif MODE == WEIGHT
        load_im2col(smem + panel * K_TILE, p.gemm, p.b[part], position.pixel, position.taps[panel / 64], block.z, full);
#else
        tma_load(smem + panel * K_TILE, p.b[part], block.n + panel, position.k, block.z, full);
#endif
    }
#endif
}
