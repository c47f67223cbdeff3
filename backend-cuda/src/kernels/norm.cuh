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
    u32 type, dy_type;
    NormLayout shape;
    // Number of pixels that a block sums for each of its channels.
    u32 pixels_per_part;
    // Number of threads that sum one column of channels, a power of two.
    u32 lanes;
    float eps;
    u32 unused;
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

// Adds the sums of a channel over all parts. A block calls it.
DEVICE void reduce_partials(const double* partials, u32 parts, u32 channels, u32 channel, double (&sums)[2]) {
    sums[0] = sums[1] = 0;
    for (u32 pixels_per_part = thread_index(); pixels_per_part < parts; pixels_per_part += THREADS) {
        sums[0] += partials[(u64)pixels_per_part * 2 * channels + channel];
        sums[1] += partials[((u64)pixels_per_part * 2 + 1) * channels + channel];
    }
    block_reduce(sums);
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
