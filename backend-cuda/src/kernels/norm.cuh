// Shared parts of normalisations: groups, their statistics, sums by channel.

struct NormLayout {
    u32 pixels, channels;
    // Pixels of an image, and groups of channels of each image. Without groups, each channel of all pixels is a group.
    u32 image, groups;
};

DEVICE u32 group_index(const NormLayout& s, u32 pixel, u32 channel) {
    return s.groups == 0 ? channel : pixel / s.image * s.groups + channel / (s.channels / s.groups);
}

DEVICE float inv_std_of(float variance, float eps) { return 1.0f / sqrtf(variance + eps); }

// Loads variances of neighbouring channels and computes 1 / σ.
template <int N>
DEVICE void load_inv_stds(const float* variances, float eps, u32 channel, float (&inv_stds)[N]) {
    load_vec(variances, TYPE_F32, channel, inv_stds);
#pragma unroll
    for (int j = 0; j < N; j++) inv_stds[j] = inv_std_of(inv_stds[j], eps);
}

// Loads means and 1 / σ of the groups of neighbouring elements.
template <int N>
DEVICE void load_group_stats(const NormLayout& s, const float* saved, const float* inv_std, u32 pixel, u32 channel,
                       float (&means)[N], float (&inv_stds)[N]) {
    if (s.groups == 0) {
        load_vec(saved, TYPE_F32, channel, means);
        load_vec(inv_std, TYPE_F32, channel, inv_stds);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        const u32 group = group_index(s, pixel, channel + j);
        means[j] = saved[group], inv_stds[j] = inv_std[group];
    }
}

struct ColumnsParams {
    const void* x;
    const void* dy;
    // Means, then variances, of channels. With groups, means and 1 / σ of groups.
    const float* saved;
    const float* inv_stds;
    // Two sums for each part of the pixels and each channel: [parts, 2, channels].
    double* sums;
    // Numbers of blocks that are done: for each tile of channels those of the groups of parts, then of the groups. They are
    // 0 between launches.
    u32* done;
    u32 type, dy_type;
    NormLayout shape;
    // Number of parts of the pixels, and of pixels that a block sums for each of its channels.
    u32 parts, pixels_per_part;
    // Number of threads that sum one column of channels, a power of two.
    u32 lanes;
    float eps;
};

// Sums two terms of every element by channel, for a tile of neighbouring columns of N channels and a part of the pixels. A
// thread adds the elements of one round of loads in f32, the rounds in f64, and threads add through `block_sums`.
template <int N, class Terms>
DEVICE void sum_columns(const ColumnsParams& p, u32 tile, u32 part, double (*block_sums)[THREADS]) {
    const u32 t = thread_index(), columns_per_block = THREADS / p.lanes, lane = t / columns_per_block;
    const u32 column = tile * columns_per_block + t % columns_per_block, channels = p.shape.channels;
    double sums[2 * N];
#pragma unroll
    for (int i = 0; i < 2 * N; i++) sums[i] = 0;
    if (column * N < channels) {
        const Terms terms(p, column * N);
        const u32 start = part * p.pixels_per_part;
        const u32 end = p.shape.pixels - start < p.pixels_per_part ? p.shape.pixels : start + p.pixels_per_part;
        for (u32 pixel = start + lane; pixel < end; pixel += Terms::LOADS_IN_FLIGHT * p.lanes) {
            const u32 rest = end - pixel;
            typename Terms::Operands read[Terms::LOADS_IN_FLIGHT];
#pragma unroll
            for (u32 k = 0; k < Terms::LOADS_IN_FLIGHT; k++) {
                if (k * p.lanes < rest) read[k] = terms.load_operands(pixel + k * p.lanes);
            }
            float partial_f32[2][N];
#pragma unroll
            for (int i = 0; i < N; i++) partial_f32[0][i] = partial_f32[1][i] = 0.0f;
#pragma unroll
            for (u32 k = 0; k < Terms::LOADS_IN_FLIGHT; k++) {
                if (k * p.lanes < rest) terms.add(pixel + k * p.lanes, read[k], partial_f32);
            }
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += partial_f32[0][i], sums[N + i] += partial_f32[1][i];
            // Prevents an overflow of `pixel` after the last element.
            if (rest <= Terms::LOADS_IN_FLIGHT * p.lanes) break;
        }
    }
#pragma unroll
    for (int i = 0; i < 2 * N; i++) block_sums[i][t] = sums[i];
    barrier();
    for (u32 i = t; i < 2 * N * columns_per_block; i += THREADS) {
        const u32 moment = i / columns_per_block, column_in_block = i % columns_per_block;
        const u32 channel = (tile * columns_per_block + column_in_block) * N + moment % N;
        if (channel >= channels) continue;
        double sum = 0;
        for (u32 lane_of_column = 0; lane_of_column < p.lanes; lane_of_column++) sum += block_sums[moment][lane_of_column * columns_per_block + column_in_block];
        p.sums[((u64)part * 2 + moment / N) * channels + channel] = sum;
    }
}

// Number of parts whose sums one block adds, which is also the number of loads that a thread has in flight.
#define PARTS_PER_GROUP 16

// Returns whether this block is the last of `blocks` to call this with a counter, which is 0 again afterwards. All threads of
// a block call it. The last block sees what the others have written before.
DEVICE bool is_last_block(u32* done, u32 blocks) {
    SHARED u32 last;
    fence();
    barrier();
    if (thread_index() == 0) {
        last = atomic_add(done, 1u) == blocks - 1;
        if (last != 0) *done = 0;
    }
    barrier();
    if (last == 0) return false;
    fence();
    return true;
}

// Adds sums that other blocks have written, `step` apart, in their order.
DEVICE double add_in_order(const double* sums, u32 count, u64 step) {
    const volatile double* const written = sums;
    double sum = 0;
    for (u32 first = 0; first < count; first += PARTS_PER_GROUP) {
        double read[PARTS_PER_GROUP];
#pragma unroll
        for (u32 i = 0; i < PARTS_PER_GROUP; i++) {
            if (first + i < count) read[i] = written[(first + i) * step];
        }
#pragma unroll
        for (u32 i = 0; i < PARTS_PER_GROUP; i++) {
            if (first + i < count) sum += read[i];
        }
    }
    return sum;
}

// Totals of a tile's channels in the block that has added them; in other blocks there are none.
struct Totals {
    // First channel of the tile, and number of channels that a tile has room for and that there are.
    u32 first_channel, tile_channels, channels;
    // [2, tile_channels] in shared memory.
    const double* sums;
    DEVICE_MEMBER double sum(u32 which, u32 channel_in_tile) const { return sums[which * tile_channels + channel_in_tile]; }
};

// Adds the sums of all parts for the channels of a tile. The last block of each group of parts adds those of the group, and
// the last of these adds those of all groups: so a thread waits for memory only a few times. The order of the sums does not
// depend on that of the blocks. All blocks of the tile call it, and one gets the totals, in `block_sums`.
template <int N>
DEVICE Totals reduce_parts(const ColumnsParams& p, u32 tile, u32 part, double (*block_sums)[THREADS]) {
    const u32 channels = p.shape.channels, tile_channels = THREADS / p.lanes * N, first_channel = tile * tile_channels;
    const u32 group = part / PARTS_PER_GROUP, first_part = group * PARTS_PER_GROUP;
    const u32 groups = (p.parts + PARTS_PER_GROUP - 1) / PARTS_PER_GROUP;
    const u32 parts = p.parts - first_part < PARTS_PER_GROUP ? p.parts - first_part : PARTS_PER_GROUP;
    u32* const done = p.done + tile * (groups + 1);
    const u64 part_sums = 2 * (u64)channels;
    Totals totals = {first_channel, tile_channels, 0, block_sums[0]};
    if (!is_last_block(done + group, parts)) return totals;
    // The sums of a group replace those of its first part.
    for (u32 i = thread_index(); i < 2 * tile_channels; i += THREADS) {
        const u32 channel = first_channel + i % tile_channels;
        if (channel >= channels) continue;
        double* const sums = p.sums + first_part * part_sums + i / tile_channels * channels + channel;
        *sums = add_in_order(sums, parts, part_sums);
    }
    if (!is_last_block(done + groups, groups)) return totals;
    for (u32 i = thread_index(); i < 2 * tile_channels; i += THREADS) {
        const u32 channel = first_channel + i % tile_channels;
        if (channel >= channels) continue;
        const double* const sums = p.sums + i / tile_channels * channels + channel;
        block_sums[0][i] = add_in_order(sums, groups, PARTS_PER_GROUP * part_sums);
    }
    barrier();
    totals.channels = channels - first_channel < tile_channels ? channels - first_channel : tile_channels;
    return totals;
}

// Stores elementwise results as `store_elementwise` does, for f16 tensors whose number of channels is a multiple of
// eight and divides the stride of the grid. A thread then always has the same eight channels, so their parameters stay
// in registers.
template <class F>
DEVICE void store_elementwise_by_channel(const Store& s, u32 len, const F& f) {
    Epilogue e = begin_epilogue(s);
    StatsAccumulator stats = {};
    store_elementwise_pipelined(s, e, stats, len, f);
    end_epilogue(s, e, stats);
}

// Elements of a group: some channels of all pixels of an image.
struct Group {
    u32 first, width, step, size;
    DEVICE_MEMBER u32 at(u32 i) const { return first + i / width * step + i % width; }
    DEVICE_MEMBER u32 channel(u32 i) const { return first % step + i % width; }
};

DEVICE Group group_at(const NormLayout& s, u32 number) {
    const u32 width = s.channels / s.groups, image = number / s.groups;
    return Group{image * s.image * s.channels + number % s.groups * width, width, s.channels, s.image * width};
}

DEVICE void store_vec(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 i, float (&v)[1]) { store_scalar(s, e, stats, i, v[0]); }
DEVICE void store_vec(const Store& s, const Epilogue& e, StatsAccumulator& stats, u64 i, float (&v)[8]) { store_vec8(s, e, stats, i, v); }
