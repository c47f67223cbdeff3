// Attention: y = softmax(q · kᵀ) · v, with scores and weights in registers alone. A block has 64 queries of a matrix and steps
// over its keys.
//
// Maximum and sum of a row are running ones: where a step raises the maximum, what was summed before is multiplied by
// e^(former − new). Weights are relative to it, so at most 1, and are rounded to halves for the product with v. The sum is that
// of the unrounded ones.

KERNEL(attention, AttentionParams) {
    SHARED_BYTES(bytes);
    const Attention& x = p.x;
    u16* const q_tile = (u16*)bytes;
    u16* const stages = q_tile + ROWS * PITCH;
    const u32 lane = thread_index() % 32, warp_row = thread_index() / 32 * 16;
    // The last rows come first, since they read most columns if attention is causal.
    const u32 tiles = (x.queries + ROWS - 1) / ROWS, z = block_x() / tiles, q0 = (tiles - 1 - block_x() % tiles) * ROWS;
    const u32 columns = columns_of_matrix(x, z), rows = x.queries - q0 < ROWS ? x.queries - q0 : ROWS;
    u32 ends[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        const u32 row = warp_row + row_of(2 * i);
        ends[i] = row < rows ? columns_of_row(x, columns, q0 + row) : 0;
    }

    RowSum sums[2];
#pragma unroll
    for (u32 i = 0; i < 2; i++) sums[i].max = bits_as_float(0xFF800000u), sums[i].sum = 0.0f;
    float y[HEAD / 8][4] = {};
    copy_rows<ROWS>(q_tile, x.q, z * x.queries + q0, rows, x.depth);
    auto copy = [&](u32 step) {
        u16* const stage = stages + step % STAGES * STAGE_ELEMENTS;
        const u32 first = step * STEP;
        copy_rows<STEP>(stage, x.k, z * x.keys + first, x.keys - first, x.depth);
        copy_rows<STEP>(stage + STEP * PITCH, x.v, z * x.keys + first, x.keys - first, x.width);
    };
    auto multiply = [&](u32 step) {
        const u16* const stage = stages + step % STAGES * STAGE_ELEMENTS;
        float scores[STEP / 8][4] = {};
        multiply_rows(scores, q_tile + warp_row * PITCH, stage);
        // The first row of a warp reads the fewest columns.
        if ((step + 1) * STEP > columns_of_row(x, columns, q0 + warp_row)) {
#pragma unroll
            for (u32 j = 0; j < STEP / 8; j++) {
#pragma unroll
                for (u32 i = 0; i < 4; i++) {
                    if (step * STEP + j * 8 + column_of(i) >= ends[i / 2]) scores[j][i] = bits_as_float(0xFF800000u);
                }
            }
        }
        float factors[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            // A NaN is never the maximum, but its weight is in the sum.
            float max = bits_as_float(0xFF800000u);
#pragma unroll
            for (u32 j = 0; j < STEP / 4; j++) {
                max = fmaxf(max, scores[j / 2][2 * i + j % 2]);
            }
#pragma unroll
            for (u32 mask = 1; mask <= 2; mask *= 2) {
                max = fmaxf(max, shuffle_xor(max, mask));
            }
            factors[i] = sums[i].raise(max);
        }
        u32 weights[STEP / 16][4];
#pragma unroll
        for (u32 n = 0; n < STEP / 16; n++) {
            float v[8];
#pragma unroll
            for (u32 i = 0; i < 8; i++) {
                RowSum& row = sums[i % 4 / 2];
                v[i] = weight_of(scores[2 * n + i / 4][i % 4], row.base());
                row.sum += v[i];
            }
            pack_left(weights[n], v);
        }
#pragma unroll
        for (u32 j = 0; j < HEAD / 8; j++) {
#pragma unroll
            for (u32 i = 0; i < 4; i++) y[j][i] *= factors[i / 2];
        }
        multiply_columns(y, weights, stage + STEP * PITCH);
    };
    const u32 last = columns_of_row(x, columns, q0 + rows - 1);
    for_steps(0, (last + STEP - 1) / STEP, copy, multiply);

    // Each of the four lanes of a row has a sum of its own columns.
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
#pragma unroll
        for (u32 mask = 1; mask <= 2; mask *= 2) sums[i].sum += shuffle_xor(sums[i].sum, mask);
        const u32 row = warp_row + row_of(2 * i);
        if (row < rows && lane % 4 == 0) p.log_sums[z * x.queries + q0 + row] = sums[i].log_sum(ends[i]);
        const float inverse = sums[i].inverse(ends[i]);
#pragma unroll
        for (u32 j = 0; j < HEAD / 8; j++) y[j][2 * i] *= inverse, y[j][2 * i + 1] *= inverse;
    }
    const Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    const u32 stored = rows < warp_row ? 0 : rows - warp_row < 16 ? rows - warp_row : 16;
    store_rows(p.y, e, stats, bytes, y, z * x.queries + q0 + warp_row, stored, x.width);
    end_epilogue(p.y, e, stats);
}
