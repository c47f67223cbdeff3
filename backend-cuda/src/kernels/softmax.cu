// Softmax of rows, its logarithm, and their gradients (`core::ops::Softmax`).
//
// A power of two of threads, the lanes, share a row: up to a warp, or the whole block. A thread keeps its part of a row in
// registers, so that memory is read once and written once. Rows that are too long for the registers of a block are read
// again for each pass, from L2. The order of a sum depends on the shape alone.
//
// N is the number of neighbouring columns of a load, and K the number of loads of a part. Bits say which of its columns a
// row reads: for hidden ones, x is −∞ and the result 0.

// Loads of a part: 32 values in loads of eight, as many as fit the registers. Single ones take more instructions.
#define PART_LOADS(N) (N == 8 ? 4 : 8)

// Rows of a softmax, and how threads share them.
struct SoftmaxRows {
    // Rows of all matrices, and of one matrix.
    u32 rows, matrix_rows;
    u32 columns;
    u32 lanes;
};

DEVICE u32 rows_per_block(const SoftmaxRows& s) { return THREADS / s.lanes; }
DEVICE u32 tile_count(const SoftmaxRows& s) { return s.rows / rows_per_block(s) + (s.rows % rows_per_block(s) != 0); }

DEVICE void load_columns(const void* x, u32 type, u32 i, float (&v)[1]) { v[0] = load(x, type, i); }
DEVICE void load_columns(const void* x, u32 type, u32 i, float (&v)[8]) { load_vec8(x, type, i, v); }
DEVICE void store_columns(const Store& s, const Epilogue& e, StatsAccumulator& stats, u32 i, float (&v)[1]) { store_scalar(s, e, stats, i, v[0]); }
DEVICE void store_columns(const Store& s, const Epilogue& e, StatsAccumulator& stats, u32 i, float (&v)[8]) { store_vec8(s, e, stats, i, v); }

struct SoftmaxParams {
    Store y;
    const void* x;
    // Lengths of the sequences, or the mask, or null.
    const void* selection;
    u32 type, selection_type;
    SoftmaxRows shape;
    // Columns that a row reads: one of SOFTMAX_*.
    u32 reads;
    u32 is_logarithm;
};

// Returns the number of columns up to the last that a row may read.
DEVICE u32 end_of_row(const SoftmaxParams& p, u32 row) {
    u32 end = p.shape.columns;
    if (p.reads == SOFTMAX_CAUSAL) end = row % p.shape.matrix_rows + 1;
    if (p.reads == SOFTMAX_WITHIN) {
        const u32 sequence = row / p.shape.matrix_rows;
        end = p.selection_type == TYPE_U8 ? ((const u8*)p.selection)[sequence] : ((const u32*)p.selection)[sequence];
    }
    return end < p.shape.columns ? end : p.shape.columns;
}

// A thread's part of a row of scores, and a bit for each column that the row reads.
template <int N, int K>
struct Scores {
    float x[K][N];
    u32 read;
    static DEVICE_MEMBER u32 bits_of_mask(const SoftmaxParams& p, u32 i) {
        float mask[N];
        load_columns(p.selection, p.selection_type, i, mask);
        u32 bits = 0;
#pragma unroll
        for (u32 j = 0; j < N; j++) bits |= (u32)(mask[j] > 0.0f) << j;
        return bits;
    }
    DEVICE_MEMBER void load(const SoftmaxParams& p, u32 first, u32 start, u32 end, u32 lane) {
        read = 0;
#pragma unroll
        for (u32 k = 0; k < K; k++) {
            const u32 c = start + N * (k * p.shape.lanes + lane);
#pragma unroll
            for (u32 j = 0; j < N; j++) x[k][j] = bits_as_float(0xFF800000u);
            if (c >= end) continue;
            float v[N];
            load_columns(p.x, p.type, first + c, v);
            u32 bits = end - c < N ? (1u << (end - c)) - 1 : (1u << N) - 1;
            if (p.reads == SOFTMAX_MASKED) bits &= bits_of_mask(p, first + c);
#pragma unroll
            for (u32 j = 0; j < N; j++) {
                if (bits & 1u << j) x[k][j] = v[j];
            }
            read |= bits << (k * N);
        }
    }
};

template <int N>
DEVICE void weigh_rows(const SoftmaxParams& p, const Epilogue& e, StatsAccumulator& stats) {
    const int K = PART_LOADS(N);
    const u32 columns = p.shape.columns, lanes = p.shape.lanes, lane = thread_index() % lanes, span = N * K * lanes;
    const bool is_whole = columns <= span;
    for (u32 tile = block_x(); tile < tile_count(p.shape); tile += blocks_x()) {
        const u32 row = tile * rows_per_block(p.shape) + thread_index() / lanes;
        const bool is_live = row < p.shape.rows;
        const u32 first = is_live ? row * columns : 0, end = is_live ? end_of_row(p, row) : 0;
        Scores<N, K> part;
        float max_score = bits_as_float(0xFF800000u), sum = 0.0f;
        for (u32 start = 0;; start += span) {
            part.load(p, first, start, end, lane);
#pragma unroll
            for (u32 k = 0; k < K; k++) {
#pragma unroll
                for (u32 j = 0; j < N; j++) max_score = Larger()(max_score, part.x[k][j]);
            }
            if (columns - start <= span) break;
        }
        max_score = reduce_lanes(max_score, lanes, Larger());
        for (u32 start = 0;; start += span) {
            if (!is_whole) part.load(p, first, start, end, lane);
            float partial = 0.0f;
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                if (k * N * lanes >= columns) continue;
#pragma unroll
                for (u32 j = 0; j < N; j++) {
                    const float below = part.x[k][j] - max_score, exponential = expf(below);
                    // Columns that are not read have −∞, and so a result of 0 in any row that reads a number.
                    partial += exponential;
                    part.x[k][j] = p.is_logarithm ? below : exponential;
                }
            }
            sum += partial;
            if (columns - start <= span) break;
        }
        sum = reduce_lanes(sum, lanes, Plus());
        const float number = p.is_logarithm ? logf(sum) : 1.0f / sum;
        for (u32 start = 0;; start += span) {
            if (!is_whole) part.load(p, first, start, end, lane);
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                const u32 c = start + N * (k * lanes + lane);
                if (!is_live || c >= columns) continue;
                float v[N];
#pragma unroll
                for (u32 j = 0; j < N; j++) {
                    v[j] = part.x[k][j];
                    if (!is_whole) {
                        v[j] -= max_score;
                        if (!p.is_logarithm) v[j] = expf(v[j]);
                    }
                    v[j] = p.is_logarithm ? v[j] - number : v[j] * number;
                    v[j] = part.read & 1u << (k * N + j) ? v[j] : 0.0f;
                }
                store_columns(p.y, e, stats, first + c, v);
            }
            if (columns - start <= span) break;
        }
    }
}

KERNEL(softmax, SoftmaxParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    if (p.shape.columns % 8 == 0) {
        weigh_rows<8>(p, e, stats);
    } else {
        weigh_rows<1>(p, e, stats);
    }
    end_epilogue(p.y, e, stats);
}

struct SoftmaxVjpParams {
    Store dx;
    // Result of the softmax, and its gradient.
    const void* y;
    const void* dy;
    u32 type, dy_type;
    SoftmaxRows shape;
    u32 is_causal;
    u32 is_logarithm;
};

// A thread's part of a row of results and their gradients. Where nothing is loaded, both are 0.
template <int N, int K>
struct Results {
    float y[K][N], dy[K][N];
    DEVICE_MEMBER void load(const SoftmaxVjpParams& p, u32 first, u32 start, u32 end, u32 lane) {
#pragma unroll
        for (u32 k = 0; k < K; k++) {
            const u32 c = start + N * (k * p.shape.lanes + lane);
#pragma unroll
            for (u32 j = 0; j < N; j++) y[k][j] = dy[k][j] = 0.0f;
            if (c >= end) continue;
            load_columns(p.y, p.type, first + c, y[k]);
            load_columns(p.dy, p.dy_type, first + c, dy[k]);
        }
    }
};

template <int N>
DEVICE void differentiate_rows(const SoftmaxVjpParams& p, const Epilogue& e, StatsAccumulator& stats) {
    const int K = PART_LOADS(N);
    const u32 columns = p.shape.columns, lanes = p.shape.lanes, lane = thread_index() % lanes, span = N * K * lanes;
    const bool is_whole = columns <= span;
    for (u32 tile = block_x(); tile < tile_count(p.shape); tile += blocks_x()) {
        const u32 row = tile * rows_per_block(p.shape) + thread_index() / lanes;
        const bool is_live = row < p.shape.rows;
        const u32 first = is_live ? row * columns : 0, causal_end = p.is_causal ? row % p.shape.matrix_rows + 1 : columns;
        const u32 end = is_live ? (causal_end < columns ? causal_end : columns) : 0;
        Results<N, K> part;
        float sum = 0.0f;
        for (u32 start = 0;; start += span) {
            part.load(p, first, start, end, lane);
            float partial = 0.0f;
#pragma unroll
            for (u32 k = 0; k < K; k++) {
#pragma unroll
                for (u32 j = 0; j < N; j++) {
                    const float y = part.y[k][j], dy = part.dy[k][j];
                    if (p.is_logarithm) {
                        partial += dy;
                    } else {
                        // A gradient of weight 0 may be anything.
                        partial += y == 0.0f ? 0.0f : y * dy;
                    }
                }
            }
            sum += partial;
            if (columns - start <= span) break;
        }
        sum = reduce_lanes(sum, lanes, Plus());
        for (u32 start = 0;; start += span) {
            if (!is_whole) part.load(p, first, start, end, lane);
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                const u32 c = start + N * (k * lanes + lane);
                if (!is_live || c >= columns) continue;
                float v[N];
#pragma unroll
                for (u32 j = 0; j < N; j++) {
                    const float y = part.y[k][j], dy = part.dy[k][j];
                    if (p.is_logarithm) {
                        v[j] = dy - expf(y) * sum;
                    } else {
                        v[j] = y == 0.0f ? 0.0f : y * (dy - sum);
                    }
                }
                store_columns(p.dx, e, stats, first + c, v);
            }
            if (columns - start <= span) break;
        }
    }
}

KERNEL(softmax_vjp, SoftmaxVjpParams) {
    Epilogue e = begin_epilogue(p.dx);
    StatsAccumulator stats = {};
    if (p.shape.columns % 8 == 0) {
        differentiate_rows<8>(p, e, stats);
    } else {
        differentiate_rows<1>(p, e, stats);
    }
    end_epilogue(p.dx, e, stats);
}
