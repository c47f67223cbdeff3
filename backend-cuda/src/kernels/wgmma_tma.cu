// Products of halves on sm_90a: TILE_M × TILE_N results at a time, 64 of k, as many blocks as the device has
// multiprocessors, each of which goes from tile to tile.
//
// The last four warps of a block only bring operands: one thread asks TMA for whole tiles (tma.cuh), which lie in shared
// memory with the 128-byte swizzle that the tensor cores read, and zeros where they leave their tensor. Before them are
// groups of four that multiply (wgmma), 64 rows each. They speak through two barriers for each stage: `full` is complete
// when its bytes are there, `empty` when all groups have read them.
//
// Where shared memory has room for a tile's sums, the first four warps only store: those that multiply leave their sums
// there and go on with the next tile (epilogue_pipeline.cuh). Elsewhere they store themselves, with registers that those hand to
// them who bring, and the tensor cores wait.
//
// CLUSTER blocks work side by side on rows below each other: each brings its own rows, and its share of the columns to
// all of them, so that the second cache gives columns once. A stage is empty when the groups of all have read it.

#define WARPS (MULTIPLIERS / 32)
// Whether those that store are a group of their own; else they are those that multiply.
#define APART (THREADS > MULTIPLIERS + 128)
#define FIRST_MULTIPLIER (APART ? STORERS : 0)
#define FIRST_BRINGER (FIRST_MULTIPLIER + MULTIPLIERS)
// Registers of a thread where they are not the same for all. All begin with as many as the multiprocessor has for each.
#define START_REGISTERS (65536 / THREADS / 8 * 8)
#define BRING_REGISTERS 40
#define MULTIPLY_REGISTERS 232
// Columns of a tile that lie in shared memory at once on their way out.
#define EPILOGUE_COLUMNS (APART ? TILE_N : STORE_COLUMNS)
#define EPILOGUE_BYTES (WARPS * EPILOGUE_FLOATS(EPILOGUE_COLUMNS) * 4)
// Tensor cores cut what does not fit an accumulator, so that long sums of one sign drift: where sums are left in shared
// memory, those of LONGEST terms are added there by threads, which round to nearest, as split_k_reduce.cu adds parts.
#define CHUNK (LONGEST / DEPTH)

static_assert(FIRST_BRINGER + 128 == THREADS, "a group that brings comes last");
static_assert(APART || MULTIPLIERS * MULTIPLY_REGISTERS + 128 * BRING_REGISTERS <= THREADS * START_REGISTERS,
              "nobody waits for registers for ever");
static_assert(STAGES * (STAGE * 2 + 16) + EPILOGUE_BYTES + APART * WARPS * 16 <= SHARED_TOTAL, "what the host gives is enough");
static_assert(APART || 32 * sizeof(Seen) <= EPILOGUE_FLOATS(EPILOGUE_COLUMNS) * sizeof(float), "room for what 32 threads have seen");

KERNEL(wgmma_tma, TmaProduct) {
    SHARED_BYTES(bytes);
    u16* const stages = (u16*)bytes;
    float* const epilogue_tiles = (float*)(bytes + STAGES * STAGE * 2);
    // Barriers, of eight bytes each.
    const u32 full = shared_address(bytes) + STAGES * STAGE * 2 + EPILOGUE_BYTES, empty = full + 8 * STAGES;
#if APART
    const HandOver sums_out = {epilogue_tiles, empty + 8 * STAGES, empty + 8 * (STAGES + WARPS)};
#endif
    const Product& q = p.product;
    const u32 t = thread_index(), warp = warp_uniform(t / 32), lane = t % 32;
    // Tiles of a cluster.
    const u32 height = TILE_M * CLUSTER;
    const u32 tiles = (q.ROWS + height - 1) / height * ((q.COLUMNS + TILE_N - 1) / TILE_N) * q.batch * q.splits;
    if (t == 0) {
        for (u32 i = 0; i < STAGES; i++) {
            mbarrier_init(full + 8 * i, 1);
            mbarrier_init(empty + 8 * i, WARPS * CLUSTER);
        }
#if APART
        init(sums_out);
#endif
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
        if (lane < CLUSTER) mbarrier_arrive_in(empty + 8 * stage, lane);
#else
        if (lane == 0) mbarrier_arrive(empty + 8 * stage);
#endif
    };

    // Stages are used in turn; each time around, the phase of their barriers is the other.
    u32 stage = 0, phase = 0;
    auto next = [&] {
        stage += 1;
        if (stage == STAGES) stage = 0, phase ^= 1;
    };
    auto steps_of = [&](u32 split) {
        const u32 rest = q.k - split * q.depth;
        return ((rest < q.depth ? rest : q.depth) + DEPTH - 1) / DEPTH;
    };

    if (warp >= FIRST_BRINGER / 32) {
#if !APART
        setmaxnreg_dec<BRING_REGISTERS>();
#endif
        if (t != FIRST_BRINGER) return;
        for (u32 tile = first; tile < tiles; tile += clusters) {
            Place place = place_of(q, block_at(tile));
            const u32 steps = steps_of(place.block.split);
#pragma unroll 1
            for (u32 step = 0; step < steps; step++, next(), next_64(q, place)) {
                u16* const a = stages + stage * STAGE;
                // In the first round nobody has to be waited for: the phase before the first counts as complete.
                mbarrier_wait(empty + 8 * stage, phase ^ 1);
                mbarrier_arrive_expect_tx(full + 8 * stage, STAGE * 2);
                bring_a(a, p, place, full + 8 * stage);
                bring_b(a + A_HALVES, p, place, rank, full + 8 * stage);
            }
        }
        return;
    }

    const bool whole = q.splits == 1;
    Epilogue e;
#if APART
    if (warp < STORERS / 32) {
        if (whole) e = begin(q.y);
        Seen seen = {};
        u32 turn = 0;
#pragma unroll 1
        for (u32 tile = first; tile < tiles; tile += clusters, turn ^= 1) store_left(sums_out, q, block_at(tile), turn, e, seen);
        if (whole) end(q.y, e, seen);
        return;
    }
    // Of tiles that were left: which phase their barriers are in.
    u32 turn = 0;
#endif

    const u32 own = warp - FIRST_MULTIPLIER / 32;
    const Operands operands = operands_of(stages, own / 4);
#if !APART
    setmaxnreg_inc<MULTIPLY_REGISTERS>();
    if (whole) e = begin(q.y);
    float* const epilogue_tile = epilogue_tiles + own * EPILOGUE_FLOATS(EPILOGUE_COLUMNS);
    // What a thread has seen waits where results go out, while these are being summed: registers are scarce.
    Seen* const kept = (Seen*)epilogue_tile + lane;
    *kept = Seen{};
#endif
#pragma unroll 1
    for (u32 tile = first; tile < tiles; tile += clusters) {
        // Of whole sums all are as long: a block is found by divisions, for which tensor cores would wait.
        const u32 steps = steps_of(whole ? 0 : block_at(tile).split);
        u32 before = 0, step = 0;
        auto multiply_to = [&](float (&sums)[TILE_N / 8][4], u32 end) {
#pragma unroll 1
            for (; step < end; step++, next()) {
                mbarrier_wait(full + 8 * stage, phase);
                multiply_stage(sums, operands, stage);
                // The products of the step before are done, while these run: its stage is free.
                wgmma_wait_but_one();
                if (step != 0) release(before);
                before = stage;
            }
            wgmma_wait(sums);
            if (step == steps && steps != 0) release(before);
        };
#if APART
        bool more = false;
#pragma unroll 1
        do {
            float sums[TILE_N / 8][4] = {};
            multiply_to(sums, steps - step > CHUNK ? step + CHUNK : steps);
            if (!more) wait_taken(sums_out, own, turn);
            leave(sums_out, own, sums, more);
            more = true;
        } while (step < steps);
        say_left(sums_out, own);
        turn ^= 1;
#else
        float sums[TILE_N / 8][4] = {};
        multiply_to(sums, steps);
        const Block block = block_at(tile);
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
            store_kept<EPILOGUE_COLUMNS>(q, block, block.m + own * 16, block.n + c * EPILOGUE_COLUMNS, epilogue_tile, e, seen);
            warp_barrier();
        }
        *kept = seen;
#endif
    }
#if !APART
    if (whole) end(q.y, e, *kept);
#endif
#if CLUSTER > 1
    // A block's memory lasts until nobody arrives at its barriers any more.
    cluster_barrier();
#endif
}
