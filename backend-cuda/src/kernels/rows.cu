// Gather and scatter of table rows (embedding lookup). The scatter adds in the order of the indices. For this, a counting
// sort puts the positions of the indices that select a row next to each other:
//
//   count   each index takes the next free place of its row, in any order
//   start   each row with indices takes a range of as many positions, in any order
//   place   positions are written to the ranges of their rows
//   rank    positions of a range are sorted: each counts the smaller ones
//
// So the order in which blocks run has no influence on a sum. Ranking compares each pair of a row's positions. If one of
// 16 384 tokens is as frequent as all others together, that is 67 million comparisons, less than a launch takes.

struct RowsParams {
    Store y;
    const void* x;
    const u32* index;
    // For each row of the table: its number of indices, and the start of its range.
    u32* counts;
    u32* starts;
    // Positions in all ranges so far.
    u32* total;
    // For each index: its place in the range of its row.
    u32* places;
    // Positions of indices by ranges, first in any order, then sorted.
    u32* unsorted;
    u32* sorted;
    u32 type;
    u32 count, table;
    u32 row;
    u32 len;
    u32 unused;
};

// Rows that a thread loads before it adds the first. Only additions depend on each other, not loads.
#define ROWS_IN_FLIGHT 3

struct Gather {
    const RowsParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const u32 row = p.index[i / p.row];
        if (row < p.table) {
            load_vec(p.x, p.type, row * p.row + i % p.row, v);
            return;
        }
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
    }
    DEVICE_MEMBER u32 width() const { return p.row; }
};

KERNEL(rows_gather, RowsParams) { store_elementwise(p.y, p.len, RowWise<Gather>{{p}}); }

KERNEL(rows_clear, RowsParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 row = (u64)block_x() * thread_count() + thread_index(); row < p.table; row += step) p.counts[row] = 0;
    if (block_x() == 0 && thread_index() == 0) *p.total = 0;
}

KERNEL(rows_count, RowsParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        const u32 row = p.index[i];
        if (row < p.table) p.places[i] = atomic_add(&p.counts[row], 1u);
    }
}

KERNEL(rows_start, RowsParams) {
    SHARED u32 block_count, block_start;
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 first = (u64)block_x() * thread_count(); first < p.table; first += step) {
        if (thread_index() == 0) block_count = 0;
        barrier();
        const u64 row = first + thread_index();
        const u32 count = row < p.table ? p.counts[row] : 0;
        const u32 before = count != 0 ? atomic_add(&block_count, count) : 0;
        barrier();
        // One addition to the total for each block.
        if (thread_index() == 0 && block_count != 0) block_start = atomic_add(p.total, block_count);
        barrier();
        if (count != 0) p.starts[row] = block_start + before;
        barrier();
    }
}

KERNEL(rows_place, RowsParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        const u32 row = p.index[i];
        if (row < p.table) p.unsorted[p.starts[row] + p.places[i]] = (u32)i;
    }
}

KERNEL(rows_rank, RowsParams) {
    const u64 step = (u64)blocks_x() * thread_count();
    for (u64 i = (u64)block_x() * thread_count() + thread_index(); i < p.count; i += step) {
        const u32 row = p.index[i];
        if (row >= p.table) continue;
        const u32 start = p.starts[row], count = p.counts[row];
        u32 rank = 0;
#pragma unroll 4
        for (u32 j = 0; j < count; j++) rank += p.unsorted[start + j] < (u32)i;
        p.sorted[start + rank] = (u32)i;
    }
}

struct Scatter {
    const RowsParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        const u32 row = i / p.row, column = i - row * p.row, count = p.counts[row];
        const u32* positions = p.sorted + (count != 0 ? p.starts[row] : 0);
#pragma unroll 1
        for (u32 first = 0; first < count; first += ROWS_IN_FLIGHT) {
            float x[ROWS_IN_FLIGHT][N];
#pragma unroll
            for (u32 k = 0; k < ROWS_IN_FLIGHT; k++) {
                if (first + k < count) load_vec(p.x, p.type, positions[first + k] * p.row + column, x[k]);
            }
#pragma unroll
            for (u32 k = 0; k < ROWS_IN_FLIGHT; k++) {
                if (first + k >= count) continue;
#pragma unroll
                for (int j = 0; j < N; j++) v[j] += x[k][j];
            }
        }
    }
    DEVICE_MEMBER u32 width() const { return p.row; }
};

KERNEL(rows_scatter, RowsParams) { store_elementwise(p.y, p.len, RowWise<Scatter>{{p}}); }
