// Warp-specialized, persistent GEMM of f16 operands on sm_90a, with TMA loads and wgmma: one block for each
// multiprocessor, which goes from tile to tile of TILE_M × TILE_N results, in K tiles of 64.
//
// The last warpgroup is the producer: one of its threads issues TMA loads of whole tiles (tma.cuh). They arrive in shared
// memory with the 128-byte swizzle that tensor cores read, with zeros outside the tensor. The consumer warpgroups before
// it multiply 64 rows each. Each stage has two mbarriers: `full` (all bytes arrived) and `empty` (all consumers have read
// them).
//
// If shared memory can hold the accumulators of a tile, the first warpgroup is the epilogue: it stores a tile while the
// consumers multiply the next one (epilogue_pipeline.cuh). Otherwise the consumers store, with registers that the producer
// has released, and tensor cores wait.
//
// Operands of eight bits have pairs in the place of halves, so a K tile has 128 terms. Tensor cores keep about 14 bits of
// their sums. So the consumers add the sums of each K tile in registers, of which the producer releases some. While one
// warpgroup adds, the tensor cores multiply for the other.
//
// f32 operands are three bfloat16 each, of which six products are multiplied (wgmma.cuh). Their sums are added in registers,
// as those of eight bits are: one of the small products and of the first 32 terms of both hi, and one of the other 32. So
// an accumulator truncates four times or less what it holds of whole products. The consumers store.
//
// An infinity times a part that is 0 would be NaN, so the hi of infinities and NaN takes part in the product of both hi
// alone. If an operand has any, each K tile is first multiplied by this product, of which only infinities and NaN are kept.
// Then they are replaced by zeros in shared memory, and all six products are those of finite values. Results are
// therefore infinite or NaN where a sum of f32 products is.
//
// A cluster of CLUSTER blocks works on consecutive rows of tiles. Each block loads its own rows, and multicasts its part of
// the columns to all blocks, so that L2 delivers the columns once. A stage is empty when the consumers of all blocks have
// read it.

#define CONSUMER_WARPS (CONSUMER_THREADS / 32)
// 1 if a separate warpgroup stores results; otherwise the consumers do.
#define WARP_SPECIALIZED_EPILOGUE (THREADS > CONSUMER_THREADS + 128)
#define FIRST_CONSUMER_THREAD (WARP_SPECIALIZED_EPILOGUE ? EPILOGUE_THREADS : 0)
#define FIRST_PRODUCER_THREAD (FIRST_CONSUMER_THREAD + CONSUMER_THREADS)
// 1 if sums of tensor cores are added to others in registers after each K tile.
#if defined(PROMOTION_PAIRS)
#define PROMOTES_SUMS 1
static_assert(PROMOTION_PAIRS == K_TILE && WARP_SPECIALIZED_EPILOGUE, "a stage is what tensor cores add");
#else
#define PROMOTES_SUMS (OPERAND_PARTS > 1)
#endif
// 1 if consumers take registers that the producer releases: without epilogue warps a consumer holds 128 accumulators, and
// so it does with promoted sums.
#define HANDS_REGISTERS_OVER (PROMOTES_SUMS || !WARP_SPECIALIZED_EPILOGUE)
// Registers of a thread at launch, of a producer and of a consumer. 40 and 232 are what 168 at launch allow in multiples of
// 8; for promoted sums 40 and 168 are what 128 at launch allow. The producer of six parts keeps more addresses.
#define LAUNCH_REGISTERS (65536 / THREADS / 8 * 8)
#if !defined(PRODUCER_REGISTERS)
#define PRODUCER_REGISTERS 40
#endif
#if !defined(CONSUMER_REGISTERS)
#define CONSUMER_REGISTERS 232
#endif
// Columns of a tile that are in shared memory at a time during the epilogue.
#define EPILOGUE_COLUMNS (WARP_SPECIALIZED_EPILOGUE ? TILE_N : STORE_COLUMNS)
#define EPILOGUE_BYTES (CONSUMER_WARPS * EPILOGUE_TILE_FLOATS(EPILOGUE_COLUMNS) * 4)
// K tiles after which accumulators are added to shared memory. Tensor cores truncate, so long sums of one sign drift;
// threads round to nearest, as split_k_reduce.cu does. Used only with epilogue warps.
#define MAX_ACCUMULATION_K_TILES (MAX_ACCUMULATION_K / K_TILE)

static_assert(FIRST_PRODUCER_THREAD + 128 == THREADS, "a group that brings comes last");
static_assert(!HANDS_REGISTERS_OVER || CONSUMER_THREADS * CONSUMER_REGISTERS + 128 * PRODUCER_REGISTERS <= (CONSUMER_THREADS + 128) * LAUNCH_REGISTERS,
              "nobody waits for registers for ever");
static_assert(STAGES * (STAGE_ELEMENTS * 2 + 16) + EPILOGUE_BYTES + WARP_SPECIALIZED_EPILOGUE * CONSUMER_WARPS * 16 <= SHARED_TOTAL, "what the host gives is enough");
static_assert(OPERAND_PARTS == 1 || (!WARP_SPECIALIZED_EPILOGUE && CLUSTER == 1), "barrier() is that of the consumers, who alone read a stage");
static_assert(WARP_SPECIALIZED_EPILOGUE || 32 * sizeof(StatsAccumulator) <= EPILOGUE_TILE_FLOATS(EPILOGUE_COLUMNS) * sizeof(float), "room for what 32 threads have seen");

#if PROMOTES_SUMS
// Adds sums of tensor cores to those in registers.
DEVICE void promote(float (&sums)[TILE_N / 8][4], const float (&partial)[TILE_N / 8][4]) {
#pragma unroll
    for (u32 j = 0; j < TILE_N / 8; j++) {
#pragma unroll
        for (u32 c = 0; c < 4; c++) sums[j][c] += partial[j][c];
    }
}
#endif

#if OPERAND_PARTS > 1
#define EXPONENT_MASK 0x7F80u
// Returns two bfloat16 with zeros in the place of infinities and NaN.
DEVICE u32 clear_nonfinite(u32 pair) {
    const u32 low = (pair & EXPONENT_MASK) == EXPONENT_MASK ? 0 : pair & 0xFFFF;
    const u32 high = (pair >> 16 & EXPONENT_MASK) == EXPONENT_MASK ? 0 : pair & 0xFFFF0000;
    return high | low;
}

// Replaces infinities and NaN in a tile of hi by zeros. All consumers call it, numbered from 0.
DEVICE void clear_nonfinite_tile(u16* tile, u32 elements, u32 consumer) {
#pragma unroll 1
    for (u32 i = consumer; i < elements / 8; i += CONSUMER_THREADS) {
        Words4& words = ((Words4*)tile)[i];
        words = Words4{clear_nonfinite(words.x), clear_nonfinite(words.y), clear_nonfinite(words.z), clear_nonfinite(words.w)};
    }
}

#define LARGEST_F32 3.4028234664e38f
// Adds the infinities and NaN of a stage's products to sums, without finite values, and replaces them in the stage by zeros.
DEVICE void add_nonfinite_products(float (&sums)[TILE_N / 8][4], float (&partial)[TILE_N / 8][4], const OperandDescriptors& descriptors,
                                   u16* stages, u32 stage) {
    multiply_stage<STEPS - K_STEPS, STEPS, false>(partial, descriptors, stage);
    wgmma_wait(partial);
#pragma unroll
    for (u32 j = 0; j < TILE_N / 8; j++) {
#pragma unroll
        for (u32 c = 0; c < 4; c++) partial[j][c] -= fminf(fmaxf(partial[j][c], -LARGEST_F32), LARGEST_F32);
    }
    promote(sums, partial);
    barrier();
    u16* const a_hi = stages + stage * STAGE_ELEMENTS;
    clear_nonfinite_tile(a_hi, A_TILE_ELEMENTS, thread_index());
    clear_nonfinite_tile(a_hi + A_STAGE_ELEMENTS, B_TILE_ELEMENTS, thread_index());
    fence_proxy_async();
    barrier();
}
#endif

KERNEL_WITH_PREAMBLE(wgmma_tma, TmaGemmParams) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    float* const epilogue_tiles = (float*)(bytes + STAGES * STAGE_ELEMENTS * 2);
    // Addresses of mbarriers, eight bytes each.
    const u32 full = shared_address(bytes) + STAGES * STAGE_ELEMENTS * 2 + EPILOGUE_BYTES, empty = full + 8 * STAGES;
#if WARP_SPECIALIZED_EPILOGUE
    const EpiloguePipeline pipeline = {epilogue_tiles, empty + 8 * STAGES, empty + 8 * (STAGES + CONSUMER_WARPS)};
#endif
    const GemmParams& gemm = p.gemm;
    const u32 t = thread_index(), warp = warp_uniform(t / 32), lane = t % 32;
    // A cluster takes CLUSTER tiles below each other.
    const u32 cluster_rows = TILE_M * CLUSTER;
    const u32 tiles = (gemm.ROWS + cluster_rows - 1) / cluster_rows * ((gemm.COLUMNS + TILE_N - 1) / TILE_N) * gemm.batch * gemm.splits;
#if OPERAND_PARTS > 1
    SHARED u32 nonfinite_seen;
    if (t == 0) nonfinite_seen = 0;
#endif
    if (t == 0) {
        for (u32 i = 0; i < STAGES; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, CONSUMER_WARPS * CLUSTER);
        }
#if WARP_SPECIALIZED_EPILOGUE
        init_pipeline(pipeline);
#endif
        fence_mbarrier_init();
#pragma unroll
        for (u32 part = 0; part < OPERAND_PARTS; part++) {
            prefetch_tensor_map(p.a[part]);
            prefetch_tensor_map(p.b[part]);
        }
    }
#if CLUSTER > 1
    const u32 rank = cluster_rank();
    cluster_barrier();
#else
    const u32 rank = 0;
    block_barrier();
#endif
    synchronize_grid_dependency();
#if OPERAND_PARTS > 1
    for (u32 i = t; i < p.nonfinite_count; i += THREADS) {
        if (p.nonfinite[i] != 0) nonfinite_seen = 1;
    }
    block_barrier();
    const bool has_nonfinite = nonfinite_seen != 0;
#endif
    const u32 first = block_x() / CLUSTER, clusters = blocks_x() / CLUSTER;
    auto tile_at = [&](u32 tile) {
        TileCoord block = tile_coord(gemm, tile, cluster_rows, TILE_N);
        block.m += rank * TILE_M;
        return block;
    };
    // Signals that a stage has been read. All lanes of a warp call it.
    auto release_stage = [&](u32 stage) {
#if CLUSTER > 1
        if (lane < CLUSTER) mbarrier_arrive_remote(empty + 8 * stage, lane);
#else
        if (lane == 0) mbarrier_arrive(empty + 8 * stage);
#endif
    };

    // Stages form a ring; the phase of their barriers changes in each round.
    u32 stage = 0, phase = 0;
    auto advance_stage = [&] {
        stage += 1;
        if (stage == STAGES) stage = 0, phase ^= 1;
    };
    auto k_tiles_in_split = [&](u32 split) {
        const u32 rest = gemm.k - split * gemm.split_len;
        return ((rest < gemm.split_len ? rest : gemm.split_len) + K_TILE - 1) / K_TILE;
    };

    if (warp >= FIRST_PRODUCER_THREAD / 32) {
#if HANDS_REGISTERS_OVER
        setmaxnreg_dec<PRODUCER_REGISTERS>();
#endif
        if (t != FIRST_PRODUCER_THREAD) return;
        for (u32 tile = first; tile < tiles; tile += clusters) {
            CopyPosition position = copy_position(gemm, tile_at(tile));
            const u32 k_tiles = k_tiles_in_split(position.block.split);
#pragma unroll 1
            for (u32 k_tile = 0; k_tile < k_tiles; k_tile++, advance_stage(), advance_k(gemm, position)) {
                u16* const a = stages + stage * STAGE_ELEMENTS;
                // Does not wait in the first round, because the preceding phase counts as complete.
                mbarrier_wait(empty + 8 * stage, phase ^ 1);
                mbarrier_arrive_expect_tx(full + 8 * stage, STAGE_ELEMENTS * 2);
#pragma unroll
                for (u32 part = 0; part < OPERAND_PARTS; part++) {
                    load_a_tile(a + part * A_TILE_ELEMENTS, p, part, position, full + 8 * stage);
                    load_b_tile(a + A_STAGE_ELEMENTS + part * B_TILE_ELEMENTS, p, part, position, rank, full + 8 * stage);
                }
            }
        }
        return;
    }

    const bool is_unsplit = gemm.splits == 1;
    Epilogue e;
#if WARP_SPECIALIZED_EPILOGUE
    if (warp < EPILOGUE_THREADS / 32) {
        if (is_unsplit) e = begin_epilogue(gemm.y);
        StatsAccumulator stats = {};
        u32 epilogue_phase = 0;
#pragma unroll 1
        for (u32 tile = first; tile < tiles; tile += clusters, epilogue_phase ^= 1) {
            const TileCoord block = tile_at(tile);
            consumer_store(pipeline, epilogue_phase, [&](u32 producing_warp, const float* sums) {
                smem_store<TILE_N>(gemm, block, block.m + producing_warp * 16, block.n, sums, e, stats);
            });
        }
        if (is_unsplit) end_epilogue(gemm.y, e, stats);
        return;
    }
    // Phase of the epilogue's barriers.
    u32 epilogue_phase = 0;
#endif

    const u32 consumer_warp = warp - FIRST_CONSUMER_THREAD / 32;
    const OperandDescriptors descriptors = operand_descriptors(stages, consumer_warp / 4);
#if HANDS_REGISTERS_OVER
    setmaxnreg_inc<CONSUMER_REGISTERS>();
#endif
#if !WARP_SPECIALIZED_EPILOGUE
    if (is_unsplit) e = begin_epilogue(gemm.y);
    float* const epilogue_tile = epilogue_tiles + consumer_warp * EPILOGUE_TILE_FLOATS(EPILOGUE_COLUMNS);
    // Statistics are in the epilogue's shared memory during the main loop, because registers are scarce.
    StatsAccumulator* const saved_stats = (StatsAccumulator*)epilogue_tile + lane;
    *saved_stats = StatsAccumulator{};
#endif
#pragma unroll 1
    for (u32 tile = first; tile < tiles; tile += clusters) {
        // Without splits all sums are equally long. Finding the tile needs divisions, for which tensor cores would wait.
        const u32 k_tiles = k_tiles_in_split(is_unsplit ? 0 : tile_at(tile).split);
#if OPERAND_PARTS > 1
        // One array for all partial sums, since registers have no room for two.
        float sums[TILE_N / 8][4] = {}, partial[TILE_N / 8][4] = {};
#pragma unroll 1
        for (u32 k_tile = 0; k_tile < k_tiles; k_tile++, advance_stage()) {
            mbarrier_wait(full + 8 * stage, phase);
            if (has_nonfinite) add_nonfinite_products(sums, partial, descriptors, stages, stage);
            multiply_stage<0, STEPS - K_STEPS / 2, false>(partial, descriptors, stage);
            wgmma_wait(partial);
            promote(sums, partial);
            multiply_stage<STEPS - K_STEPS / 2, STEPS, false>(partial, descriptors, stage);
            wgmma_wait(partial);
            release_stage(stage);
            promote(sums, partial);
        }
#else
        u32 previous_stage = 0, k_tile = 0;
        auto accumulate_until = [&](float (&sums)[TILE_N / 8][4], u32 end) {
#pragma unroll 1
            for (; k_tile < end; k_tile++, advance_stage()) {
                mbarrier_wait(full + 8 * stage, phase);
                multiply_stage(sums, descriptors, stage);
                // The previous multiplications are complete while these run, so their stage is free.
                wgmma_wait_all_but_last();
                if (k_tile != 0) release_stage(previous_stage);
                previous_stage = stage;
            }
            wgmma_wait(sums);
            if (k_tile == k_tiles && k_tiles != 0) release_stage(previous_stage);
        };
#endif
#if defined(PROMOTION_PAIRS)
        float sums[TILE_N / 8][4] = {};
#pragma unroll 1
        while (k_tile < k_tiles) {
            float partial[TILE_N / 8][4] = {};
            accumulate_until(partial, k_tile + 1);
            promote(sums, partial);
        }
        producer_acquire(pipeline, consumer_warp, epilogue_phase);
        smem_write_all(producer_tile(pipeline, consumer_warp), sums, false);
        producer_commit(pipeline, consumer_warp);
        epilogue_phase ^= 1;
#elif WARP_SPECIALIZED_EPILOGUE
        bool accumulates = false;
#pragma unroll 1
        do {
            float sums[TILE_N / 8][4] = {};
            accumulate_until(sums, k_tiles - k_tile > MAX_ACCUMULATION_K_TILES ? k_tile + MAX_ACCUMULATION_K_TILES : k_tiles);
            if (!accumulates) producer_acquire(pipeline, consumer_warp, epilogue_phase);
            smem_write_all(producer_tile(pipeline, consumer_warp), sums, accumulates);
            accumulates = true;
        } while (k_tile < k_tiles);
        producer_commit(pipeline, consumer_warp);
        epilogue_phase ^= 1;
#else
#if OPERAND_PARTS == 1
        float sums[TILE_N / 8][4] = {};
        accumulate_until(sums, k_tiles);
#endif
        const TileCoord block = tile_at(tile);
        StatsAccumulator stats = *saved_stats;
        warp_barrier();
        // Shared memory gathers eight neighbouring results in one lane, EPILOGUE_COLUMNS columns at a time. The loop is not
        // unrolled, because eight copies (16 900 instructions in all) do not fit the instruction cache.
#pragma unroll 1
        for (u32 c = 0; c < TILE_N / EPILOGUE_COLUMNS; c++) {
            // Registers cannot be indexed, so a branch selects them.
#pragma unroll
            for (u32 j = 0; j < TILE_N / 8; j++) {
                if (j * 8 / EPILOGUE_COLUMNS == c) smem_write<EPILOGUE_COLUMNS>(epilogue_tile, j * 8 % EPILOGUE_COLUMNS, sums[j]);
            }
            warp_barrier();
            smem_store<EPILOGUE_COLUMNS>(gemm, block, block.m + consumer_warp * 16, block.n + c * EPILOGUE_COLUMNS, epilogue_tile, e, stats);
            warp_barrier();
        }
        *saved_stats = stats;
#endif
    }
#if !WARP_SPECIALIZED_EPILOGUE
    if (is_unsplit) end_epilogue(gemm.y, e, *saved_stats);
#endif
#if CLUSTER > 1
    // Keeps the memory of a block until no other block arrives at its barriers.
    cluster_barrier();
#endif
}
