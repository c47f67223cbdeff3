// Sums on their way from the warps that multiply to a group of warps that only stores.
//
// Each warp that multiplies leaves its 16 rows of a tile in shared memory, where the storing warp of the same place in its
// group finds them. They speak through two barriers for each warp that multiplies: `left` is complete when all its lanes
// have written, `taken` when all lanes of the other have read. Both have phases by turns, one for each tile. Every lane
// arrives for itself: one that arrived for all, after a barrier of the warp, would do, but compute-sanitizer's racecheck
// does not follow that.

struct HandOver {
    // Of each warp that multiplies: EPILOGUE_FLOATS(TILE_N), and two barriers.
    float* tiles;
    u32 left, taken;
};

DEVICE void init(const HandOver& h) {
    for (u32 warp = 0; warp < MULTIPLIERS / 32; warp++) {
        mbarrier_init(h.left + 8 * warp, 32);
        mbarrier_init(h.taken + 8 * warp, 32);
    }
}

// Called by all lanes of a warp that multiplies, as the two that follow: until the sums of the tile before have been read.
DEVICE void wait_taken(const HandOver& h, u32 warp, u32 turn) {
    // Before the first tile the phase counts as complete.
    mbarrier_wait(h.taken + 8 * warp, turn ^ 1);
}

// Leaves sums, or adds them to those that lie there.
DEVICE void leave(const HandOver& h, u32 warp, const float (&sums)[TILE_N / 8][4], bool add) {
    float* const tile = h.tiles + warp * EPILOGUE_FLOATS(TILE_N);
    if (add) {
#pragma unroll
        for (u32 j = 0; j < TILE_N / 8; j++) add_kept<TILE_N>(tile, j * 8, sums[j]);
    } else {
#pragma unroll
        for (u32 j = 0; j < TILE_N / 8; j++) keep<TILE_N>(tile, j * 8, sums[j]);
    }
}

DEVICE void say_left(const HandOver& h, u32 warp) {
    mbarrier_arrive(h.left + 8 * warp);
}

// Called by all lanes of a warp that stores: a tile's rows of the warps that are its partners.
DEVICE void store_left(const HandOver& h, const Product& p, const Block& block, u32 turn, const Epilogue& e, Seen& seen) {
#pragma unroll 1
    for (u32 warp = thread_index() / 32; warp < MULTIPLIERS / 32; warp += STORERS / 32) {
        const float* const tile = h.tiles + warp * EPILOGUE_FLOATS(TILE_N);
        mbarrier_wait(h.left + 8 * warp, turn);
        store_kept<TILE_N>(p, block, block.m + warp * 16, block.n, tile, e, seen);
        mbarrier_arrive(h.taken + 8 * warp);
    }
}
