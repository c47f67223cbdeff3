// Products of halves on sm_90a: TILE_M × TILE_N results at a time, 64 of k, as many blocks as the device has
// multiprocessors, each of which goes from tile to tile.
//
// The last four warps of a block only bring operands, and hand their registers to the others: one thread asks TMA for
// whole tiles (tma.cuh), which lie in shared memory with the 128-byte swizzle that the tensor cores read, and zeros
// where they leave their tensor. The other warps are groups of four that multiply (wgmma), 64 rows each. They
// speak through two barriers for each stage: `full` is complete when its bytes are there, `empty` when all groups have
// read them.
//
// CLUSTER blocks work side by side on rows below each other: each brings its own rows, and its share of the columns to
// all of them, so that the second cache gives columns once. A stage is empty when the groups of all have read it.

#define EPILOGUE_COLUMNS 32
#define WARPS (CONSUMERS / 32)
#define EPILOGUE_BYTES (WARPS * EPILOGUE_FLOATS(EPILOGUE_COLUMNS) * 4)
// Tensor cores cut what does not fit an accumulator, so that long sums of one sign drift: where registers allow it, sums
// of LONGEST terms are added by threads, which round to nearest, as finish.cu adds parts.
#define ADDS (TILE_N <= 128)
#define CHUNK (LONGEST / DEPTH)

static_assert(32 * sizeof(Seen) <= EPILOGUE_FLOATS(EPILOGUE_COLUMNS) * sizeof(float), "room for what 32 threads have seen");

KERNEL(wgmma_tma, TmaProduct) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    u64* const full = (u64*)(bytes + STAGES * STAGE * 2 + EPILOGUE_BYTES);
    u64* const empty = full + STAGES;
    const Product& q = p.product;
    const u32 t = thread_index(), warp = t / 32, lane = t % 32;
    // Tiles of a cluster.
    const u32 height = TILE_M * CLUSTER;
    const u32 tiles = (q.ROWS + height - 1) / height * ((q.COLUMNS + TILE_N - 1) / TILE_N) * q.batch * q.splits;
    if (t == 0) {
        for (u32 i = 0; i < STAGES; i++) {
            mbarrier_init(&full[i], 1);
            mbarrier_init(&empty[i], WARPS * CLUSTER);
        }
        fence_mbarrier_init();
    }
#if CLUSTER > 1
    const u32 rank = cluster_rank();
    cluster_barrier();
#else
    const u32 rank = 0;
    block_barrier();
#endif
    const u32 first = block_x() / CLUSTER, clusters = blocks_x() / CLUSTER;
    auto block_at = [&](u32 tile) {
        Block block = tile_of(q, tile, height, TILE_N);
        block.m += rank * TILE_M;
        return block;
    };
    // Called by all lanes of a warp.
    auto release = [&](u32 stage) {
#if CLUSTER > 1
        if (lane < CLUSTER) mbarrier_arrive_in(&empty[stage], lane);
#else
        if (lane == 0) mbarrier_arrive(&empty[stage]);
#endif
    };

    // Stages are used in turn; each time around, the phase of their barriers is the other.
    u32 stage = 0, phase = 0;
    auto next = [&] {
        stage += 1;
        if (stage == STAGES) stage = 0, phase ^= 1;
    };
    auto steps_of = [&](const Block& block) {
        const u32 rest = q.k - block.split * q.depth;
        return ((rest < q.depth ? rest : q.depth) + DEPTH - 1) / DEPTH;
    };

    if (warp >= WARPS) {
        setmaxnreg_dec();
        if (t != CONSUMERS) return;
        for (u32 tile = first; tile < tiles; tile += clusters) {
            Place place = place_of(q, block_at(tile));
            const u32 steps = steps_of(place.block);
#pragma unroll 1
            for (u32 step = 0; step < steps; step++, next(), next_64(q, place)) {
                u16* const a = stages + stage * STAGE;
                // In the first round nobody has to be waited for: the phase before the first counts as complete.
                mbarrier_wait(&empty[stage], phase ^ 1);
                mbarrier_arrive_expect_tx(&full[stage], STAGE * 2);
                bring_a(a, p, place, &full[stage]);
                bring_b(a + A_HALVES, p, place, rank, &full[stage]);
            }
        }
        return;
    }

    setmaxnreg_inc();
    const Operands operands = operands_of(stages);
    float* const epilogue_tile = (float*)(bytes + STAGES * STAGE * 2) + warp * EPILOGUE_FLOATS(EPILOGUE_COLUMNS);
    const bool whole = q.splits == 1;
    Epilogue e;
    if (whole) e = begin(q.y);
    // What a thread has seen waits where results go out, while these are being summed: registers are scarce.
    Seen* const kept = (Seen*)epilogue_tile + lane;
    *kept = Seen{};
#pragma unroll 1
    for (u32 tile = first; tile < tiles; tile += clusters) {
        const Block block = block_at(tile);
        const u32 steps = steps_of(block);
        float sums[TILE_N / 8][4] = {};
        u32 before = 0, step = 0;
        auto multiply_to = [&](u32 end) {
#pragma unroll 1
            for (; step < end; step++, next()) {
                mbarrier_wait(&full[stage], phase);
                multiply_stage(sums, operands, stage);
                // The products of the step before are done, while these run: its stage is free.
                wgmma_wait_but_one();
                if (step != 0) release(before);
                before = stage;
            }
            wgmma_wait(sums);
        };
#if ADDS
        float total[TILE_N / 8][4] = {};
#pragma unroll 1
        while (steps - step > CHUNK) {
            multiply_to(step + CHUNK);
#pragma unroll
            for (u32 j = 0; j < TILE_N / 2; j++) total[j / 4][j % 4] += sums[j / 4][j % 4], sums[j / 4][j % 4] = 0.0f;
        }
#endif
        multiply_to(steps);
#if ADDS
#pragma unroll
        for (u32 j = 0; j < TILE_N / 2; j++) sums[j / 4][j % 4] = total[j / 4][j % 4] + sums[j / 4][j % 4];
#endif
        if (steps != 0) release(before);

        Seen seen = *kept;
        warp_barrier();
        // Each warp has 16 rows; eight results side by side meet in one lane, EPILOGUE_COLUMNS columns at a time. One round
        // of instructions for all: eight times as many would not fit the instruction cache.
#pragma unroll 1
        for (u32 c = 0; c < TILE_N / EPILOGUE_COLUMNS; c++) {
            // Registers have no index: a branch finds them.
#pragma unroll
            for (u32 j = 0; j < TILE_N / 8; j++) {
                if (j * 8 / EPILOGUE_COLUMNS == c) keep<EPILOGUE_COLUMNS>(epilogue_tile, j * 8 % EPILOGUE_COLUMNS, sums[j]);
            }
            warp_barrier();
            store_kept<EPILOGUE_COLUMNS>(q, block, block.m + warp * 16, block.n + c * EPILOGUE_COLUMNS, epilogue_tile, e, seen);
            warp_barrier();
        }
        *kept = seen;
    }
    if (whole) end(q.y, e, *kept);
#if CLUSTER > 1
    // A block's memory lasts until nobody arrives at its barriers any more.
    cluster_barrier();
#endif
}
