// Hidden units of recurrent cells. A thread has N neighbouring units of a row: eight, if rows come in eights.

struct Cell {
    // Products with the inputs of all steps, with the hidden state, and the state.
    const void* x;
    const void* h;
    const void* state;
    u32 x_type, h_type, state_type;
    // Numbers of hidden units of all rows, and of a row.
    u32 units, hidden;
    // Step that is read of x, and number of its steps.
    u32 step, steps;
    u32 unused;
};

DEVICE void store_units(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 i, float (&v)[1]) { store_scalar(s, e, stats, i, v[0]); }
DEVICE void store_units(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 i, float (&v)[8]) { store_vec8(s, e, stats, i, v); }

// Writes f32 values without an epilogue.
template <int N>
DEVICE void write_units(float* y, u64 i, const float (&v)[N]) {
#pragma unroll
    for (int j = 0; j < N; j++) y[i + j] = v[j];
}

// Place of the first gate of a unit in the products with h.
template <u32 GATES>
DEVICE u64 gate_of_unit(const Cell& p, u32 i) { return i + (u64)(GATES - 1) * (i / p.hidden) * p.hidden; }

// Place of the first gate of a unit in the products with the inputs of all steps.
template <u32 GATES>
DEVICE u64 gate_of_step(const Cell& p, u32 i) {
    return gate_of_unit<GATES>(p, i) + ((u64)(i / p.hidden) * (p.steps - 1) + p.step) * GATES * p.hidden;
}

// Calls `compute` for the first of each N units of this thread.
template <int N, class Compute>
DEVICE void for_units(const Cell& p, Compute compute) {
    const u32 step = N * blocks_x() * THREADS;
    for (u32 i = N * (block_x() * THREADS + thread_index()); i < p.units; i += step) {
        compute(i);
        // Prevents an overflow of `i` after the last unit.
        if (p.units - i <= step) break;
    }
}
