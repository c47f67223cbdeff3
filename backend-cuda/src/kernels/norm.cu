// Normalisation. One pass computes mean and variance of x − k, where k is the first element of the group. The shifted mean
// is then small compared with the deviation, so little is lost by cancellation.

// Terms of the shifted moments, x − k and its square, for neighbouring channels.
template <int N, bool F16>
struct ShiftedMoments {
    static const u32 LOADS_IN_FLIGHT = F16 ? 8 : 4;
    typedef Fragment<N, F16> Operands;
    const ColumnsParams& p;
    u32 channel;
    float first[N];
    DEVICE_MEMBER ShiftedMoments(const ColumnsParams& p, u32 channel) : p(p), channel(channel) {
        load_vec(p.x, p.type, channel, first);
    }
    DEVICE_MEMBER Operands load_operands(u32 pixel) const { return Operands::load(p.x, p.type, pixel * p.shape.channels + channel); }
    DEVICE_MEMBER void add(u32, const Operands& read, float (&sums)[2][N]) const {
        float x[N];
        read.unpack_into(x);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float d = x[i] - first[i];
            sums[0][i] += d, sums[1][i] += d * d;
        }
    }
};

struct MomentsParams {
    ColumnsParams columns;
    // Output: means of all channels, then their variances.
    float* saved;
    float* inv_stds;
    float size;
    u32 unused;
};

struct Moments {
    float mean, variance;
};

DEVICE Moments moments(const double (&sums)[2], float first, float size) {
    const double shift = sums[0] / size, variance = sums[1] / size - shift * shift;
    return Moments{(float)(first + shift), variance < 0 ? 0.0f : (float)variance};
}

// Sums the shifted moments of a tile of channels. The block that adds those of all parts computes the channels' mean, variance
// and 1 / σ.
template <int N, bool F16>
DEVICE void compute_moments(const MomentsParams& p, double (*block_sums)[THREADS]) {
    sum_columns<N, ShiftedMoments<N, F16>>(p.columns, block_x(), block_y(), block_sums);
    const Totals totals = reduce_parts<N>(p.columns, block_x(), block_y(), block_sums);
    for (u32 i = thread_index(); i < totals.channels; i += THREADS) {
        const u32 channel = totals.first_channel + i;
        const double sums[2] = {totals.sum(0, i), totals.sum(1, i)};
        const Moments m = moments(sums, load(p.columns.x, p.columns.type, channel), p.size);
        p.saved[channel] = m.mean;
        p.saved[p.columns.shape.channels + channel] = m.variance;
        p.inv_stds[channel] = inv_std_of(m.variance, p.columns.eps);
    }
}

KERNEL(norm_moments, MomentsParams) {
    SHARED double block_sums[16][THREADS];
    if (p.columns.shape.channels % 8 == 0 && p.columns.type == TYPE_F16) {
        compute_moments<8, true>(p, block_sums);
    } else if (p.columns.shape.channels % 8 == 0) {
        compute_moments<8, false>(p, block_sums);
    } else {
        compute_moments<1, false>(p, block_sums);
    }
}

struct InvStdParams {
    const float* variances;
    float* inv_stds;
    u32 len;
    float eps;
};

KERNEL(norm_inv_std, InvStdParams) {
    for (u64 i = (u64)block_x() * THREADS + thread_index(); i < p.len; i += (u64)blocks_x() * THREADS) {
        p.inv_stds[i] = inv_std_of(p.variances[i], p.eps);
    }
}

struct NormParams {
    Store y;
    const void* x;
    float* saved;
    const float* inv_stds;
    // Learned scale of each channel, or null.
    const float* scale;
    const float* shift;
    u32 type;
    u32 len;
    NormLayout shape;
    // Number of groups of the tensor.
    u32 group_count;
    // Threads for one group: a power of two up to 32, or the whole block.
    u32 lanes;
    u32 centered;
    float eps;
};

template <int N>
DEVICE void apply_affine(const NormParams& p, u32 channel, float (&v)[N]) {
    if (p.scale == 0) return;
    float scale[N], shift[N];
    load_vec(p.scale, TYPE_F32, channel, scale);
    load_vec(p.shift, TYPE_F32, channel, shift);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = v[i] * scale[i] + shift[i];
}

// Normalisation by statistics that are already computed.
struct ApplyNorm {
    const NormParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.shape.channels, channel = i - pixel * p.shape.channels;
        load_vec_streaming(p.x, p.type, i, v);
        float means[N], inv_stds[N];
        load_group_stats(p.shape, p.saved, p.inv_stds, pixel, channel, means, inv_stds);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = (v[j] - means[j]) * inv_stds[j];
        apply_affine(p, channel, v);
    }
    DEVICE_MEMBER u32 width() const { return p.shape.channels; }
};

KERNEL(norm_apply, NormParams) { store_elementwise(p.y, p.len, RowWise<ApplyNorm>{{p}}); }

struct ApplyNormByChannel {
    static const u32 LOADS_IN_FLIGHT = 4;
    typedef Fragment<8, true> Operands;
    struct ThreadParams {
        float means[8], inv_stds[8], scale[8], shift[8];
        DEVICE_MEMBER ThreadParams(const NormParams& p, u32 first) {
            const u32 channel = first % p.shape.channels;
            load_vec8(p.saved, TYPE_F32, channel, means);
            load_inv_stds(p.saved + p.shape.channels, p.eps, channel, inv_stds);
            if (p.scale == 0) return;
            load_vec8(p.scale, TYPE_F32, channel, scale);
            load_vec8(p.shift, TYPE_F32, channel, shift);
        }
    };
    const NormParams& p;
    DEVICE_MEMBER Operands load_operands(u32 i) const { return Operands::load(p.x, p.type, i); }
    DEVICE_MEMBER void compute_results(const Operands& read, const ThreadParams& c, float (&v)[8]) const {
        read.unpack_into(v);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            v[j] = (v[j] - c.means[j]) * c.inv_stds[j];
            if (p.scale != 0) v[j] = v[j] * c.scale[j] + c.shift[j];
        }
    }
};

KERNEL(norm_apply_by_channel, NormParams) { store_elementwise_by_channel(p.y, p.len, ApplyNormByChannel{p}); }

// Computes statistics and results of groups of an image.
template <int N>
DEVICE void normalise_groups(const NormParams& p, const Epilogue& e, StatsAccumulator& stats) {
    const u32 groups_per_block = THREADS / p.lanes, lane = thread_index() % p.lanes;
    for (u32 tile = block_x(); tile < (p.group_count + groups_per_block - 1) / groups_per_block; tile += blocks_x()) {
        const u32 number = tile * groups_per_block + thread_index() / p.lanes;
        const bool is_live = number < p.group_count;
        const Group g = group_at(p.shape, is_live ? number : 0);
        const float first = p.centered ? load(p.x, p.type, g.first) : 0.0f;
        double sums[2] = {0, 0};
        for (u32 i = N * lane; is_live && i < g.size; i += N * p.lanes) {
            float x[N], partial_f32[2] = {0.0f, 0.0f};
            load_vec(p.x, p.type, g.at(i), x);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float d = x[j] - first;
                partial_f32[0] += d, partial_f32[1] += d * d;
            }
            sums[0] += partial_f32[0], sums[1] += partial_f32[1];
        }
        lane_group_reduce(sums, p.lanes);
        if (!p.centered) sums[0] = 0;
        const Moments m = moments(sums, first, (float)g.size);
        if (!is_live) continue;
        if (lane == 0) p.saved[number] = m.mean, p.saved[p.group_count + number] = m.variance;
        const float inv_std = inv_std_of(m.variance, p.eps);
        for (u32 i = N * lane; i < g.size; i += N * p.lanes) {
            float v[N];
            const u32 at = g.at(i);
            load_vec(p.x, p.type, at, v);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = (v[j] - m.mean) * inv_std;
            apply_affine(p, g.channel(i), v);
            store_vec(p.y, e, stats, at, v);
        }
    }
}

KERNEL(norm_groups, NormParams) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    if (p.shape.channels / p.shape.groups % 8 == 0) {
        normalise_groups<8>(p, e, stats);
    } else {
        normalise_groups<1>(p, e, stats);
    }
    end_epilogue(p.y, e, stats);
}
