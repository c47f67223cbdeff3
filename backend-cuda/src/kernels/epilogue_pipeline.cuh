// Producer/consumer pipeline between the warps that multiply and the epilogue warps (CUTLASS: PipelineAsync).
//
// A warp that multiplies produces 16 rows of accumulators of a tile in shared memory, in the layout of operand_swap.cuh or
// of conv_halo.cu. An epilogue warp consumes them.
// Each producing warp has two mbarriers: `full` (accumulators written) and `empty` (accumulators read). Their phases
// alternate from tile to tile. Every lane arrives for itself. One arrival for a warp, after a barrier of the warp, would
// suffice, but compute-sanitizer's racecheck does not understand it.

struct EpiloguePipeline {
    // Accumulators in shared memory: EPILOGUE_TILE_FLOATS(TILE_N) floats for each producing warp.
    float* tiles;
    // Shared addresses of the first mbarriers, eight bytes for each producing warp.
    u32 full, empty;
};

DEVICE void init_pipeline(const EpiloguePipeline& h) {
    for (u32 warp = 0; warp < CONSUMER_THREADS / 32; warp++) {
        mbarrier_init(h.full + 8 * warp, 32);
        mbarrier_init(h.empty + 8 * warp, 32);
    }
}

// Waits until the accumulators of the previous tile have been read. All lanes of a producing warp call this, write
// their accumulators, and call producer_commit.
DEVICE void producer_acquire(const EpiloguePipeline& h, u32 warp, u32 phase) {
    // Before the first tile, the preceding phase counts as complete.
    mbarrier_wait(h.empty + 8 * warp, phase ^ 1);
}

// Returns the shared memory for the accumulators of a producing warp.
DEVICE float* producer_tile(const EpiloguePipeline& h, u32 warp) { return h.tiles + warp * EPILOGUE_TILE_FLOATS(TILE_N); }

// Signals that all accumulators of a tile are written.
DEVICE void producer_commit(const EpiloguePipeline& h, u32 warp) {
    mbarrier_arrive(h.full + 8 * warp);
}

// Stores what each producing warp has written, by a function of that warp and its accumulators. All lanes of an epilogue
// warp call it; each warp serves one or more producing warps.
template <class StoreTile>
DEVICE void consumer_store(const EpiloguePipeline& h, u32 phase, const StoreTile& store_tile) {
#pragma unroll 1
    for (u32 warp = thread_index() / 32; warp < CONSUMER_THREADS / 32; warp += EPILOGUE_THREADS / 32) {
        mbarrier_wait(h.full + 8 * warp, phase);
        store_tile(warp, producer_tile(h, warp));
        mbarrier_arrive(h.empty + 8 * warp);
    }
}
