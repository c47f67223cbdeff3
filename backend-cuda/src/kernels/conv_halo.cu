// Warp-specialized, persistent convolutions of stride 1 and up to 64 summed channels on sm_90a, from halo tiles: one block for
// each multiprocessor, which goes from tile to tile of 16 × 16 pixels × 64 results.
//
// wgmma_tma.cu loads each pixel once for each tap. With 64 results of a pixel, that is more than L2 and shared memory
// deliver. Here TMA loads the pixels of a tile once, with those around it that taps reach, and zeros outside the image. In
// pseudo-code:
//
//     for each tile:
//         load its halo: [plane of 8 channels][row][column][8 channels]
//         for each tap, and each 16 channels:
//             sums[64 results][256 pixels] += weights[64 results][16] * halo[16][256 pixels, shifted by the tap]
//         store sums
//
// 1. **Pixels are columns of a product.** A warpgroup multiplies 64 results by 16 × 8 pixels (m64n128k16), so one read of the
//    weights serves 128 pixels.
// 2. **A tap is a start address.** Without a swizzle a core matrix is eight lines of 16 bytes, 128 contiguous bytes: eight
//    neighbouring pixels of a row. A tap moves all of them by the same number of 16-byte lines, at every multiple of which a
//    matrix may start. The next eight pixels are a row further ("stride byte offset": the pitch of the halo). The next eight
//    channels are a plane further ("leading byte offset").
// 3. **A K step is two slices** of eight channels of a tap, in the order of the weights' K. With 16 channels or more they are
//    neighbouring planes. With eight they are successive taps, also of two rows, whose distance is positive, too. An odd
//    number of them, for example of 7 × 7 taps, has zeros as the last one, because a value that is not finite would
//    not vanish beside a weight of zero.
// 4. **DATA** is the convolution of dy with the taps in reverse order. They are loaded in that order, 16 outputs (8, if there
//    are no more) of a tap at a time.
// 5. **Two buffers.** One producer thread loads halos, and another one weights, so that the next halo arrives
//    while this one is multiplied.
//
// Weights come in stages of four K steps, with the 128-byte swizzle (wgmma.cuh). The epilogue is that of wgmma_tma.cu.

#define CONSUMER_WARPS (CONSUMER_THREADS / 32)
#define FIRST_CONSUMER_THREAD EPILOGUE_THREADS
#define FIRST_PRODUCER_THREAD (FIRST_CONSUMER_THREAD + CONSUMER_THREADS)
#define STAGE_STEPS (K_TILE / 16)
#define STAGE_BYTES (A_STAGE_ELEMENTS * 2)
#define EPILOGUE_BYTES (CONSUMER_WARPS * EPILOGUE_TILE_FLOATS(TILE_N) * 4)
// Two barriers for each stage, each halo and each warp's sums, and what aligns the halos to 128 bytes.
#define BARRIER_BYTES 256

static_assert(FIRST_PRODUCER_THREAD + 128 == THREADS, "a warpgroup of producers comes last");
static_assert(TILE_M == 64 && TILE_N == HALO_TILE_SIDE * GROUP_COLUMNS, "a warpgroup multiplies its columns of a tile");
static_assert(16 * (STAGES + 2 + CONSUMER_WARPS) <= BARRIER_BYTES, "room for the barriers");
static_assert(STAGES * STAGE_BYTES + EPILOGUE_BYTES + BARRIER_BYTES + HALO_BYTES == SHARED_TOTAL, "what the host gives is what is used");

// Returns the matrix descriptor of a K step's pixels: eight pixels to the next eight are a row; no swizzle.
DEVICE u64 pixel_descriptor(u32 low, u32 pitch) { return (u64)pitch << 32 | low; }

// Starts the multiplications of K steps from `step` on as one group of asynchronous instructions. `weights` and `halo` are
// low words of matrix descriptors.
template <u32 COUNT>
DEVICE void multiply_steps(float (&sums)[TILE_N / 8][4], u32 weights, u32 halo, const HaloParams& p, u32 step) {
    const u32 k_stride = A_K_CONTIGUOUS ? 2 : 128;
    wgmma_fence();
#pragma unroll
    for (u32 k = 0; k < COUNT; k++) {
        const u64 pixels = pixel_descriptor(halo + p.step_offsets[step + k], p.pitch);
        wgmma_mma_async<!A_K_CONTIGUOUS, false>(sums, matrix_descriptor(weights + k * k_stride), pixels);
    }
    wgmma_commit();
}

// Loads the weights of a stage for the results from n on. `tap` and `channel` are those of its first K step (DATA).
DEVICE void load_weights(u16* stage, const HaloParams& p, u32 n, u32 step, u32& tap, u32& channel, u32 full) {
#if MODE == FORWARD
    tma_load(stage, p.weights, step * 16, n, 0, full);
#else
    const u32 channels = p.gemm.outputs, box = channels < 16 ? channels : 16;
#pragma unroll 1
    for (u32 k = 0; k < K_TILE; k += box) {
        // After the first tap of w, which is the last here, the coordinate is negative: TMA fills zeros.
        tma_load(stage + k * 64, p.weights, n, tap, channel, full);
        channel += box;
        if (channel == channels) channel = 0, tap -= 1;
    }
#endif
}

KERNEL(conv_halo, HaloParams) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    float* const epilogue_tiles = (float*)(bytes + STAGES * STAGE_BYTES);
    u8* const halos = bytes + STAGES * STAGE_BYTES + EPILOGUE_BYTES + BARRIER_BYTES;
    // Addresses of mbarriers, eight bytes each.
    const u32 full = shared_address(bytes) + STAGES * STAGE_BYTES + EPILOGUE_BYTES, empty = full + 8 * STAGES;
    const u32 halo_full = empty + 8 * STAGES, halo_empty = halo_full + 8 * 2;
    const EpiloguePipeline pipeline = {epilogue_tiles, halo_empty + 8 * 2, halo_empty + 8 * (2 + CONSUMER_WARPS)};
    const u32 t = thread_index(), warp = warp_uniform(t / 32), lane = t % 32;
    if (t == 0) {
        for (u32 i = 0; i < STAGES; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, CONSUMER_WARPS);
        }
        for (u32 i = 0; i < 2; i++) {
            mbarrier_init(halo_full + 8 * i, 1);
            mbarrier_init(halo_empty + 8 * i, CONSUMER_WARPS);
        }
        init_pipeline(pipeline);
        fence_mbarrier_init();
    }
#pragma unroll 1
    for (u32 i = t; i < p.zero_vec8s; i += THREADS) {
        const Words4 zeros = {0, 0, 0, 0};
        *(Words4*)(halos + p.load_bytes + 16 * i) = zeros;
        *(Words4*)(halos + p.buffer_bytes + p.load_bytes + 16 * i) = zeros;
    }
    fence_proxy_async();
    block_barrier();

    // Stages and halos form rings; the phase of their barriers changes in each round.
    u32 stage = 0, phase = 0, buffer = 0, halo_phase = 0;
    auto advance_stage = [&] {
        stage += 1;
        if (stage == STAGES) stage = 0, phase ^= 1;
    };
    auto advance_halo = [&] {
        buffer ^= 1;
        if (buffer == 0) halo_phase ^= 1;
    };

    if (t == FIRST_PRODUCER_THREAD) {
#pragma unroll 1
        for (u32 tile = block_x(); tile < p.tiles; tile += blocks_x()) {
            const u32 n = tile % p.result_blocks * TILE_M;
            u32 tap = p.gemm.kernel_h * p.gemm.kernel_w - 1, channel = 0;
#pragma unroll 1
            for (u32 step = 0; step < p.steps; step += STAGE_STEPS, advance_stage()) {
                // Does not wait in the first round, because the preceding phase counts as complete.
                mbarrier_wait(empty + 8 * stage, phase ^ 1);
                mbarrier_arrive_expect_tx(full + 8 * stage, STAGE_BYTES);
                load_weights(stages + stage * A_STAGE_ELEMENTS, p, n, step, tap, channel, full + 8 * stage);
            }
        }
        return;
    }
    if (t == FIRST_PRODUCER_THREAD + 32) {
#pragma unroll 1
        for (u32 tile = block_x(); tile < p.tiles; tile += blocks_x(), advance_halo()) {
            const HaloTile at = halo_tile(p, tile);
            mbarrier_wait(halo_empty + 8 * buffer, halo_phase ^ 1);
            mbarrier_arrive_expect_tx(halo_full + 8 * buffer, p.load_bytes);
            tma_load_planes(halos + buffer * p.buffer_bytes, p.pixels, (int)at.column + p.first_column, (int)at.row + p.first_row, at.image,
                            halo_full + 8 * buffer);
        }
        return;
    }
    if (warp >= FIRST_PRODUCER_THREAD / 32) return;

    // Phase of the epilogue's barriers.
    u32 epilogue_phase = 0;
    if (warp < EPILOGUE_THREADS / 32) {
        const Epilogue e = begin_epilogue(p.gemm.y);
        StatsAccumulator stats = {};
#pragma unroll 1
        for (u32 tile = block_x(); tile < p.tiles; tile += blocks_x(), epilogue_phase ^= 1) {
            const HaloTile at = halo_tile(p, tile);
            consumer_store(pipeline, epilogue_phase, [&](u32 producing_warp, const float* sums) {
                store_pixels(p, at.image, at.row, at.column + producing_warp / 4 * GROUP_COLUMNS, at.n + producing_warp % 4 * 16, sums, e, stats);
            });
        }
        end_epilogue(p.gemm.y, e, stats);
        return;
    }

    const u32 consumer_warp = warp - FIRST_CONSUMER_THREAD / 32;
    // Low words of the matrix descriptors of the first stage's weights, and of the first halo as this warpgroup sees it.
    const u32 weights = operand_descriptors(stages, 0).a;
    const u32 pixels = warp_uniform((shared_address(halos) & 0x3FFFF) / 16 + consumer_warp / 4 * GROUP_COLUMNS);
#pragma unroll 1
    for (u32 tile = block_x(); tile < p.tiles; tile += blocks_x(), advance_halo(), epilogue_phase ^= 1) {
        float sums[TILE_N / 8][4] = {};
        u32 previous_stage = 0;
        const u32 halo = pixels + buffer * (p.buffer_bytes / 16);
        mbarrier_wait(halo_full + 8 * buffer, halo_phase);
        // Waits for the weights of a stage and returns where they are.
        auto begin_stage = [&] {
            mbarrier_wait(full + 8 * stage, phase);
            return weights + stage * (STAGE_BYTES / 16);
        };
        auto end_stage = [&](bool is_first) {
            // The previous multiplications are complete while these run, so their stage is free.
            wgmma_wait_all_but_last();
            if (!is_first && lane == 0) mbarrier_arrive(empty + 8 * previous_stage);
            previous_stage = stage;
            advance_stage();
        };
        const u32 rest = p.steps % STAGE_STEPS, whole = p.steps - rest;
#pragma unroll 1
        for (u32 step = 0; step < whole; step += STAGE_STEPS) {
            multiply_steps<STAGE_STEPS>(sums, begin_stage(), halo, p, step);
            end_stage(step == 0);
        }
        if (rest != 0) {
            const u32 last = begin_stage();
            // Constants, because tensor cores would wait for each product of a loop with an exit.
            if (rest == 1) multiply_steps<1>(sums, last, halo, p, whole);
            if (rest == 2) multiply_steps<2>(sums, last, halo, p, whole);
            if (rest == 3) multiply_steps<3>(sums, last, halo, p, whole);
            end_stage(whole == 0);
        }
        wgmma_wait(sums);
        if (lane == 0) {
            mbarrier_arrive(empty + 8 * previous_stage);
            mbarrier_arrive(halo_empty + 8 * buffer);
        }
        producer_acquire(pipeline, consumer_warp, epilogue_phase);
        write_sums(producer_tile(pipeline, consumer_warp), sums);
        producer_commit(pipeline, consumer_warp);
    }
}
