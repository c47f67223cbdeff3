// Sums on their way from the warps that multiply to a group of warps that only stores.
//
// Each warp that multiplies leaves its 16 rows of a tile in shared memory, where the storing warp of the same place in its
// group finds them. They speak through two barriers for each warp that multiplies: `left` is complete when all its lanes
// have written, `taken` when all lanes of the other have read. Both have phases by turns, one for each tile. Every lane
// arrives for itself: one that arrived for all, after a barrier of the warp, would do, but compute-sanitizer's racecheck
// does not follow that.

struct EpiloguePipeline {
    // Of each warp that multiplies: EPILOGUE_TILE_FLOATS(TILE_N), and two barriers.
    float* tiles;
    u32 full, empty;
};

DEVICE void init_pipeline(const EpiloguePipeline& h) {
    for (u32 warp = 0; warp < CONSUMER_THREADS / 32; warp++) {
        mbarrier_init(h.full + 8 * warp, 32);
        mbarrier_init(h.empty + 8 * warp, 32);
    }
}

// Called by all lanes of a warp that multiplies, as the two that follow: until the sums of the tile before have been read.
DEVICE void producer_acquire(const EpiloguePipeline& h, u32 warp, u32 phase) {
    // Before the first tile the phase counts as complete.
    mbarrier_wait(h.empty + 8 * warp, phase ^ 1);
}

// Leaves sums, or adds them to those that lie there.
DEVICE void producer_write(const EpiloguePipeline& h, u32 warp, const float (&sums)[TILE_N / 8][4], bool accumulates) {
    float* const tile = h.tiles + warp * EPILOGUE_TILE_FLOATS(TILE_N);
    if (accumulates) {
#pragma unroll
        for (u32 j = 0; j < TILE_N / 8; j++) smem_accumulate<TILE_N>(tile, j * 8, sums[j]);
    } else {
#pragma unroll
        for (u32 j = 0; j < TILE_N / 8; j++) smem_write<TILE_N>(tile, j * 8, sums[j]);
    }
}

DEVICE void producer_commit(const EpiloguePipeline& h, u32 warp) {
    mbarrier_arrive(h.full + 8 * warp);
}

// Called by all lanes of a warp that stores: a tile's rows of the warps that are its partners.
DEVICE void consumer_store(const EpiloguePipeline& h, const GemmParams& p, const TileCoord& block, u32 phase, const Epilogue& e, StatsAccumulator& stats) {
#pragma unroll 1
    for (u32 warp = thread_index() / 32; warp < CONSUMER_THREADS / 32; warp += EPILOGUE_THREADS / 32) {
        const float* const tile = h.tiles + warp * EPILOGUE_TILE_FLOATS(TILE_N);
        mbarrier_wait(h.full + 8 * warp, phase);
        smem_store<TILE_N>(p, block, block.m + warp * 16, block.n, tile, e, stats);
        mbarrier_arrive(h.empty + 8 * warp);
    }
}
