// Gather and scatter of table rows (embedding lookup). The scatter adds in the order of the indices. For this, each row of
// the table gets a linked list of the indices that refer to it.

struct RowsParams {
    Store y;
    const void* x;
    const u32* index;
    // Lists of indices by table row: for each row the first and the last index that refers to it; for each index the
    // next one of its row.
    u32* head;
    u32* tail;
    u32* next;
    u32 type;
    u32 count, table;
    u32 row;
    u32 len;
    u32 unused;
};

#define END_OF_LIST 0xFFFFFFFFu

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
    for (u64 row = (u64)block_x() * thread_count() + thread_index(); row < p.table; row += step) {
        p.head[row] = END_OF_LIST;
        p.tail[row] = END_OF_LIST;
    }
}

// Builds the lists. One block processes the indices in order, one for each thread at a time.
KERNEL(rows_link, RowsParams) {
    SHARED u32 rows[THREADS];
    const u32 t = thread_index();
    for (u64 start = 0; start < p.count; start += THREADS) {
        const u32 i = (u32)start + t;
        u32 row = start + t < p.count ? p.index[i] : END_OF_LIST;
        if (row >= p.table) row = END_OF_LIST;
        rows[t] = row;
        barrier();
        u32 predecessor = END_OF_LIST;
        bool is_last = true;
        if (row != END_OF_LIST) {
            for (u32 j = 0; j < THREADS; j++) {
                const bool same = rows[j] == row;
                if (same && j < t) predecessor = (u32)start + j;
                if (same && j > t) is_last = false;
            }
            if (predecessor == END_OF_LIST) predecessor = p.tail[row];
            if (predecessor == END_OF_LIST) {
                p.head[row] = i;
            } else {
                p.next[predecessor] = i;
            }
        }
        // All threads have read the ends of their lists.
        barrier();
        if (row != END_OF_LIST && is_last) {
            p.tail[row] = i;
            p.next[i] = END_OF_LIST;
        }
        barrier();
    }
}

struct Scatter {
    const RowsParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        const u32 column = i % p.row;
        for (u32 at = p.head[i / p.row]; at != END_OF_LIST; at = p.next[at]) {
            float x[N];
            load_vec(p.x, p.type, at * p.row + column, x);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] += x[j];
        }
    }
    DEVICE_MEMBER u32 width() const { return p.row; }
};

KERNEL(rows_scatter, RowsParams) { store_elementwise(p.y, p.len, RowWise<Scatter>{{p}}); }
