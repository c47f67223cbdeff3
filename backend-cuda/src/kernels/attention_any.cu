// Attention and its gradient with operands of any type, of which none is rounded. A warp has a row of queries or of keys and takes
// the rows of the other operand one by one; each lane has four elements of a row.

#define LANE_ELEMENTS (ATTENTION_MAX_HEAD / 32)
#define WARPS (THREADS / 32)

// Elements of a row that a lane has: every 32nd one, and zeros after the last.
struct LaneRow {
    float v[LANE_ELEMENTS];
    static DEVICE_MEMBER LaneRow load_row(const void* x, u32 type, u32 row, u32 width) {
        LaneRow y;
#pragma unroll
        for (u32 j = 0; j < LANE_ELEMENTS; j++) {
            const u32 column = 32 * j + thread_index() % 32;
            y.v[j] = column < width ? load(x, type, row * width + column) : 0.0f;
        }
        return y;
    }
    DEVICE_MEMBER void scale(float factor) {
#pragma unroll
        for (u32 j = 0; j < LANE_ELEMENTS; j++) v[j] *= factor;
    }
    DEVICE_MEMBER void add(float factor, const LaneRow& row) {
#pragma unroll
        for (u32 j = 0; j < LANE_ELEMENTS; j++) v[j] = fma_rn(factor, row.v[j], v[j]);
    }
    DEVICE_MEMBER void store(const Store& s, const Epilogue& e, StatsAccumulator& stats, u32 row, u32 width) const {
#pragma unroll
        for (u32 j = 0; j < LANE_ELEMENTS; j++) {
            const u32 column = 32 * j + thread_index() % 32;
            if (column < width) store_scalar(s, e, stats, row * width + column, v[j]);
        }
    }
};

// Returns the product of two rows in all lanes of the warp.
DEVICE float multiply(const LaneRow& a, const LaneRow& b) {
    float sum = 0.0f;
#pragma unroll
    for (u32 j = 0; j < LANE_ELEMENTS; j++) sum = fma_rn(a.v[j], b.v[j], sum);
    for (u32 mask = 16; mask != 0; mask /= 2) sum += shuffle_xor(sum, mask);
    return sum;
}

// Calls `compute` for each row of this warp. Rows may exceed 2^31, but not 2^32 together with those of a round.
template <class Compute>
DEVICE void for_rows(u32 rows, const Compute& compute) {
    const u32 step = blocks_x() * WARPS;
    for (u32 row = block_x() * WARPS + thread_index() / 32; row < rows; row += step) {
        compute(row);
        if (rows - row <= step) break;
    }
}

KERNEL(attention_any, AttentionParams) {
    const Attention& x = p.x;
    const Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    for_rows(x.batch * x.queries, [&](u32 row) {
        const u32 z = row / x.queries, columns = columns_of_row(x, columns_of_matrix(x, z), row % x.queries);
        const LaneRow q = LaneRow::load_row(x.q, x.q_type, row, x.depth);
        LaneRow y = {};
        RowSum sum = {bits_as_float(0xFF800000u), 0.0f};
        for (u32 column = 0; column < columns; column++) {
            const u32 key = z * x.keys + column;
            const float score = multiply(q, LaneRow::load_row(x.k, x.k_type, key, x.depth));
            y.scale(sum.raise(score));
            const float weight = weight_of(score, sum.base());
            sum.sum += weight;
            y.add(weight, LaneRow::load_row(x.v, x.v_type, key, x.width));
        }
        if (thread_index() % 32 == 0) p.log_sums[row] = sum.log_sum(columns);
        y.scale(sum.inverse(columns));
        y.store(p.y, e, stats, row, x.width);
    });
    end_epilogue(p.y, e, stats);
}

KERNEL(attention_any_vjp_queries, AttentionVjpParams) {
    SHARED Row dp_row, ds_row;
    const Attention& x = p.x;
    const Epilogue dp = begin_observation(p.dp, dp_row), ds = begin_observation(p.ds, ds_row), e = begin_epilogue(p.dq);
    StatsAccumulator dp_stats = {}, ds_stats = {}, stats = {};
    // Values are those of all lanes, and one of them observes.
    auto observe_in_lane = [](const Epilogue& e, StatsAccumulator& stats) {
        return [&](const float(&u)[1]) {
            if (e.detail != 0 && thread_index() % 32 == 0) observe(e, stats, u);
        };
    };
    for_rows(x.batch * x.queries, [&](u32 row) {
        const u32 z = row / x.queries, columns = columns_of_row(x, columns_of_matrix(x, z), row % x.queries);
        const LaneRow q = LaneRow::load_row(x.q, x.q_type, row, x.depth), dy = LaneRow::load_row(p.dy, p.dy_type, row, x.width);
        float delta[1] = {multiply(dy, LaneRow::load_row(p.y, p.y_type, row, x.width))};
        apply_factor(dp.factor, delta);
        if (thread_index() % 32 == 0) p.deltas[row] = delta[0];
        const float log_sum = p.log_sums[row];
        LaneRow dq = {};
        for (u32 column = 0; column < columns; column++) {
            const u32 key = z * x.keys + column;
            const LaneRow k = LaneRow::load_row(x.k, x.k_type, key, x.depth), v = LaneRow::load_row(x.v, x.v_type, key, x.width);
            const float weight[1] = {weight_of(multiply(q, k), log_sum)};
            float gradient[1] = {multiply(dy, v)};
            differentiate_scores(dp.factor, ds.factor, weight, delta, gradient, observe_in_lane(dp, dp_stats), observe_in_lane(ds, ds_stats));
            round_to_halves(gradient);
            dq.add(gradient[0], k);
        }
        dq.store(p.dq, e, stats, row, x.depth);
    });
    end_epilogue(p.dq, e, stats);
    end_epilogue(p.dp, dp, dp_stats);
    end_epilogue(p.ds, ds, ds_stats);
}

KERNEL(attention_any_vjp_keys, AttentionVjpParams) {
    SHARED Row dv_row;
    const Attention& x = p.x;
    const Factor dp = scale_factor(p.dp.exponents[p.dp.from], p.dp.exponents[p.dp.to]);
    const Factor ds = scale_factor(p.ds.exponents[p.ds.from], p.ds.exponents[p.ds.to]);
    const Epilogue e = begin_epilogue(p.dk), dv_e = begin_observation(p.dv, dv_row);
    StatsAccumulator stats = {}, dv_stats = {};
    const auto observe_nothing = [](const float(&)[1]) {};
    for_rows(x.batch * x.keys, [&](u32 row) {
        const u32 z = row / x.keys, column = row % x.keys, columns = columns_of_matrix(x, z);
        const LaneRow k = LaneRow::load_row(x.k, x.k_type, row, x.depth), v = LaneRow::load_row(x.v, x.v_type, row, x.width);
        LaneRow dk = {}, dv = {};
        for (u32 query = 0; query < x.queries; query++) {
            if (column >= columns_of_row(x, columns, query)) continue;
            const u32 at = z * x.queries + query;
            const LaneRow q = LaneRow::load_row(x.q, x.q_type, at, x.depth), dy = LaneRow::load_row(p.dy, p.dy_type, at, x.width);
            const float delta[1] = {p.deltas[at]}, weight[1] = {weight_of(multiply(q, k), p.log_sums[at])};
            float gradient[1] = {multiply(dy, v)};
            differentiate_scores(dp, ds, weight, delta, gradient, observe_nothing, observe_nothing);
            round_to_halves(gradient);
            dk.add(gradient[0], q);
            float rounded[1] = {weight[0]};
            round_to_halves(rounded);
            dv.add(rounded[0], dy);
        }
        dk.store(p.dk, e, stats, row, x.depth);
        dv.store(p.dv, dv_e, dv_stats, row, x.width);
    });
    end_epilogue(p.dk, e, stats);
    end_epilogue(p.dv, dv_e, dv_stats);
}
