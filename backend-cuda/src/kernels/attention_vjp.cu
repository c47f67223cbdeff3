// Gradient of attention, from its result and the logarithms of its rows' sums. Weights, gradients of weights and gradients of
// scores are computed again on the chip:
//
//   P = e^(q · kᵀ − log_sum)    dP = dy · vᵀ    δ = Σ dy · y    dS = P ∘ (dP − δ)
//   dq = dS · k                 dk = dSᵀ · q    dv = Pᵀ · dy
//
// One kernel has 64 queries of a block and steps over keys: it computes δ and dq, and observes dP and dS at their sites. The
// other one has 64 keys and steps over queries: it computes dk and dv. So no sum is divided between blocks. Both compute dP and
// dS by the same function from the same products, with exchanged operands.

// Returns a thread's part of Σ dy · y of a row, which four lanes share.
DEVICE float partial_delta(const AttentionVjpParams& p, u32 row) {
    const u32 width = p.x.width, lane = thread_index() % 4;
    float sum = 0.0f;
    if (width % 8 == 0) {
        for (u32 column = 8 * lane; column < width; column += 32) {
            float y[8], dy[8];
            load_vec8(p.y, p.y_type, row * width + column, y);
            load_vec8(p.dy, p.dy_type, row * width + column, dy);
#pragma unroll
            for (u32 j = 0; j < 8; j++) sum += dy[j] * y[j];
        }
        return sum;
    }
    for (u32 column = lane; column < width; column += 4) {
        sum += load(p.dy, p.dy_type, row * width + column) * load(p.y, p.y_type, row * width + column);
    }
    return sum;
}

KERNEL(attention_vjp_queries, AttentionVjpParams) {
    SHARED_BYTES(bytes);
    SHARED Row dp_row, ds_row;
    // In shared memory, since registers are few.
    SHARED Factor factors[2];
    const Attention& x = p.x;
    u16* const q_tile = (u16*)bytes;
    u16* const dy_tile = q_tile + ROWS * PITCH;
    u16* const stages = dy_tile + ROWS * PITCH;
    const u32 lane = thread_index() % 32, warp_row = thread_index() / 32 * 16;
    // The last rows come first, since they read most columns if attention is causal.
    const u32 tiles = (x.queries + ROWS - 1) / ROWS, z = block_x() / tiles, q0 = (tiles - 1 - block_x() % tiles) * ROWS;
    const u32 columns = columns_of_matrix(x, z), rows = x.queries - q0 < ROWS ? x.queries - q0 : ROWS;

    copy_rows<ROWS>(q_tile, x.q, z * x.queries + q0, rows, x.depth);
    copy_rows<ROWS>(dy_tile, p.dy, z * x.queries + q0, rows, x.width);
    const Epilogue dp = begin_observation(p.dp, dp_row), ds = begin_observation(p.ds, ds_row);
    StatsAccumulator dp_stats = {}, ds_stats = {};
    if (thread_index() == 0) factors[0] = dp.factor, factors[1] = ds.factor;
    barrier();
    float log_sums[2], deltas[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        const u32 row = warp_row + row_of(2 * i), at = z * x.queries + q0 + row;
        const bool is_inside = row < rows;
        log_sums[i] = is_inside ? p.log_sums[at] : 0.0f;
        float delta[1] = {is_inside ? partial_delta(p, at) : 0.0f};
#pragma unroll
        for (u32 mask = 1; mask <= 2; mask *= 2) delta[0] += shuffle_xor(delta[0], mask);
        apply_factor(factors[0], delta);
        if (is_inside && lane % 4 == 0) p.deltas[at] = delta[0];
        deltas[i] = delta[0];
    }

    float dq[HEAD / 8][4] = {};
    auto copy = [&](u32 step) {
        u16* const stage = stages + step % STAGES * STAGE_ELEMENTS;
        const u32 first = step * STEP;
        copy_rows<STEP>(stage, x.k, z * x.keys + first, x.keys - first, x.depth);
        copy_rows<STEP>(stage + STEP * PITCH, x.v, z * x.keys + first, x.keys - first, x.width);
    };
    auto multiply = [&](u32 step) {
        const u16* const stage = stages + step % STAGES * STAGE_ELEMENTS;
        float scores[STEP / 8][4] = {}, gradients[STEP / 8][4] = {};
        multiply_rows(scores, q_tile + warp_row * PITCH, stage);
        multiply_rows(gradients, dy_tile + warp_row * PITCH, stage + STEP * PITCH);
        // The first row of a warp reads the fewest columns, and rows that do not exist read none.
        const bool is_visible = (step + 1) * STEP <= columns_of_row(x, columns, q0 + warp_row) && warp_row + 16 <= rows;
        u32 left[STEP / 16][4];
#pragma unroll
        for (u32 n = 0; n < STEP / 16; n++) {
            float weights[8], delta[8], v[8];
            u32 hidden = 0;
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                weights[i] = weight_of(scores[2 * n + i / 4][i % 4], log_sums[i % 4 / 2]);
                delta[i] = deltas[i % 4 / 2];
                v[i] = gradients[2 * n + i / 4][i % 4];
            }
            if (!is_visible) {
#pragma unroll
                for (u32 i = 0; i < 8; i++) {
                    const u32 row = warp_row + row_of(i), key = step * STEP + n * 16 + column_of(i);
                    if (row < rows && key < columns_of_row(x, columns, q0 + row)) continue;
                    weights[i] = v[i] = 0.0f;
                    hidden += 1;
                }
            }
            // Zeros of hidden pairs are observed, too, and what they add to the counters is subtracted.
            auto observe_visible = [&](const Epilogue& e, StatsAccumulator& stats) {
                return [&, hidden](const float(&u)[8]) {
                    if (e.detail == 0) return;
                    observe(e, stats, u);
                    stats.count -= hidden;
                    stats.zeros -= hidden;
                    stats.below_flush -= hidden;
                    stats.below_normal -= hidden;
                };
            };
            differentiate_scores(factors[0], factors[1], weights, delta, v, observe_visible(dp, dp_stats), observe_visible(ds, ds_stats));
            pack_left(left[n], v);
        }
        // Observing may have separated the lanes.
        warp_barrier();
        multiply_columns(dq, left, stage);
    };
    const u32 last = columns_of_row(x, columns, q0 + rows - 1);
    for_steps(0, (last + STEP - 1) / STEP, copy, multiply);

    end_epilogue(p.dp, dp, dp_stats);
    end_epilogue(p.ds, ds, ds_stats);
    const Epilogue e = begin_epilogue(p.dq);
    StatsAccumulator stats = {};
    const u32 stored = rows < warp_row ? 0 : rows - warp_row < 16 ? rows - warp_row : 16;
    store_rows(p.dq, e, stats, bytes, dq, z * x.queries + q0 + warp_row, stored, x.depth);
    end_epilogue(p.dq, e, stats);
}

KERNEL(attention_vjp_keys, AttentionVjpParams) {
    SHARED_BYTES(bytes);
    const Attention& x = p.x;
    u16* const k_tile = (u16*)bytes;
    u16* const v_tile = k_tile + ROWS * PITCH;
    u16* const stages = v_tile + ROWS * PITCH;
    // Logarithms of sums and δ of the queries of a step, and of the next one.
    float* const row_values = (float*)(stages + STAGES * STAGE_ELEMENTS);
    const u32 t = thread_index(), warp_row = t / 32 * 16;
    const u32 tiles = (x.keys + ROWS - 1) / ROWS, z = block_x() / tiles, k0 = block_x() % tiles * ROWS;
    const u32 columns = columns_of_matrix(x, z), rows = x.keys - k0 < ROWS ? x.keys - k0 : ROWS;
    const Factor dp = scale_factor(p.dp.exponents[p.dp.from], p.dp.exponents[p.dp.to]);
    const Factor ds = scale_factor(p.ds.exponents[p.ds.from], p.ds.exponents[p.ds.to]);

    float dk[HEAD / 8][4] = {}, dv[HEAD / 8][4] = {};
    copy_rows<ROWS>(k_tile, x.k, z * x.keys + k0, rows, x.depth);
    copy_rows<ROWS>(v_tile, x.v, z * x.keys + k0, rows, x.width);
    // Causal attention hides these keys from earlier queries. Keys after the end of a sequence are hidden from all.
    const u32 first_step = x.reads == SOFTMAX_CAUSAL ? k0 / STEP : 0, end_step = k0 < columns ? (x.queries + STEP - 1) / STEP : 0;
    float next[2];
    auto load_row_values = [&](u32 step) {
        const u32 row = step * STEP + t, at = z * x.queries + row;
        const bool is_inside = t < STEP && row < x.queries;
        next[0] = is_inside ? p.log_sums[at] : 0.0f;
        next[1] = is_inside ? p.deltas[at] : 0.0f;
    };
    auto write_row_values = [&](u32 step) {
        float* const values = row_values + step % 2 * 2 * STEP;
        if (t < STEP) values[t] = next[0], values[STEP + t] = next[1];
    };
    auto copy = [&](u32 step) {
        u16* const stage = stages + step % STAGES * STAGE_ELEMENTS;
        const u32 first = step * STEP;
        copy_rows<STEP>(stage, x.q, z * x.queries + first, x.queries - first, x.depth);
        copy_rows<STEP>(stage + STEP * PITCH, p.dy, z * x.queries + first, x.queries - first, x.width);
    };
    auto multiply = [&](u32 step) {
        const u16* const stage = stages + step % STAGES * STAGE_ELEMENTS;
        const float* const values = row_values + step % 2 * 2 * STEP;
        // Loads of the next step's values take as long as this step's products.
        load_row_values(step + 1);
        float weights[STEP / 8][4] = {};
        multiply_rows(weights, k_tile + warp_row * PITCH, stage);
        // The first query reads the fewest columns, and a warp's last key is read by the fewest queries.
        const bool is_visible = k0 + warp_row + 16 <= columns_of_row(x, columns, step * STEP) && (step + 1) * STEP <= x.queries;
        u32 left[STEP / 16][4];
#pragma unroll
        for (u32 n = 0; n < STEP / 16; n++) {
            float v[8];
#pragma unroll
            for (u32 i = 0; i < 8; i++) v[i] = weight_of(weights[2 * n + i / 4][i % 4], values[n * 16 + column_of(i)]);
            if (!is_visible) {
#pragma unroll
                for (u32 i = 0; i < 8; i++) {
                    const u32 query = step * STEP + n * 16 + column_of(i), key = k0 + warp_row + row_of(i);
                    if (query >= x.queries || key >= columns_of_row(x, columns, query)) v[i] = 0.0f;
                }
            }
#pragma unroll
            for (u32 i = 0; i < 8; i++) weights[2 * n + i / 4][i % 4] = v[i];
            pack_left(left[n], v);
        }
        multiply_columns(dv, left, stage + STEP * PITCH);
        float gradients[STEP / 8][4] = {};
        multiply_rows(gradients, v_tile + warp_row * PITCH, stage + STEP * PITCH);
#pragma unroll
        for (u32 n = 0; n < STEP / 16; n++) {
            float weight[8], delta[8], v[8];
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                weight[i] = weights[2 * n + i / 4][i % 4];
                delta[i] = values[STEP + n * 16 + column_of(i)];
                v[i] = gradients[2 * n + i / 4][i % 4];
            }
            // The kernel of the queries observes them.
            const auto observe_nothing = [](const float(&)[8]) {};
            differentiate_scores(dp, ds, weight, delta, v, observe_nothing, observe_nothing);
            pack_left(left[n], v);
        }
        multiply_columns(dk, left, stage);
        write_row_values(step + 1);
    };
    load_row_values(first_step);
    write_row_values(first_step);
    for_steps(first_step, end_step, copy, multiply);

    const u32 stored = rows < warp_row ? 0 : rows - warp_row < 16 ? rows - warp_row : 16;
    const u32 first = z * x.keys + k0 + warp_row;
    Epilogue e = begin_epilogue(p.dk);
    StatsAccumulator stats = {};
    store_rows(p.dk, e, stats, bytes, dk, first, stored, x.depth);
    end_epilogue(p.dk, e, stats);
    // Both stores use the block's shared row.
    barrier();
    e = begin_epilogue(p.dv);
    stats = StatsAccumulator{};
    store_rows(p.dv, e, stats, bytes, dv, first, stored, x.width);
    end_epilogue(p.dv, e, stats);
}
