// Gradient of a normalisation: dx = (u − mean(u) − x̂ · mean(u · x̂)) / σ with u = dy · scale and means over the group;
// dscale = Σ dy · x̂ and dshift = Σ dy over each channel.

// Terms dy and dy · x̂ of neighbouring channels.
template <int N, bool GROUPED, bool F16>
struct GradientMoments {
    static const u32 LOADS_IN_FLIGHT = F16 ? 4 : 2;
    struct Operands {
        Fragment<N, F16> x, dy;
    };
    const ColumnsParams& p;
    u32 channel;
    float means[N], inv_stds[N];
    DEVICE_MEMBER GradientMoments(const ColumnsParams& p, u32 channel) : p(p), channel(channel) {
        if (GROUPED) return;
        load_vec(p.saved, TYPE_F32, channel, means);
        load_inv_stds(p.saved + p.shape.channels, p.eps, channel, inv_stds);
    }
    DEVICE_MEMBER Operands load_operands(u32 pixel) const {
        const u32 at = pixel * p.shape.channels + channel;
        return Operands{Fragment<N, F16>::load(p.x, p.type, at), Fragment<N, F16>::load(p.dy, p.dy_type, at)};
    }
    DEVICE_MEMBER void add(u32 pixel, const Operands& read, float (&sums)[2][N]) const {
        float x[N], dy[N];
        read.x.unpack_into(x);
        read.dy.unpack_into(dy);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const u32 group = GROUPED ? group_index(p.shape, pixel, channel + i) : 0;
            const float mean = GROUPED ? p.saved[group] : means[i], inv_std = GROUPED ? p.inv_stds[group] : inv_stds[i];
            sums[0][i] += dy[i], sums[1][i] += dy[i] * ((x[i] - mean) * inv_std);
        }
    }
};

// Terms dy and dy · x̂ of neighbouring channels, if each pixel is a group.
template <int N, bool F16>
struct RowGradientMoments {
    static const u32 LOADS_IN_FLIGHT = F16 ? 4 : 2;
    struct Operands {
        Fragment<N, F16> x, dy;
        float mean, inv_std;
    };
    const ColumnsParams& p;
    u32 channel;
    DEVICE_MEMBER RowGradientMoments(const ColumnsParams& p, u32 channel) : p(p), channel(channel) {}
    DEVICE_MEMBER Operands load_operands(u32 pixel) const {
        const u32 at = pixel * p.shape.channels + channel;
        return Operands{Fragment<N, F16>::load(p.x, p.type, at), Fragment<N, F16>::load(p.dy, p.dy_type, at), p.saved[pixel],
                        inv_std_of(p.saved[p.shape.pixels + pixel], p.eps)};
    }
    DEVICE_MEMBER void add(u32, const Operands& read, float (&sums)[2][N]) const {
        float x[N], dy[N];
        read.x.unpack_into(x);
        read.dy.unpack_into(dy);
#pragma unroll
        for (int i = 0; i < N; i++) sums[0][i] += dy[i], sums[1][i] += dy[i] * ((x[i] - read.mean) * read.inv_std);
    }
};

struct TotalsParams {
    // Gradients of scale and shift, if they are to be stored.
    Store scale_gradient, shift_gradient;
    ColumnsParams columns;
    const float* scale;
    // Output: means of u and of u · x̂.
    float* means[2];
    float size;
    u32 stores_affine;
};

// Stores one of the sums of each channel of a tile. One block of each tile calls it.
DEVICE void store_totals(const Store& s, const Totals& totals, u32 which) {
    Epilogue e = begin_epilogue(s);
    StatsAccumulator stats = {};
    for (u32 i = thread_index(); i < totals.channels; i += THREADS) store_scalar(s, e, stats, totals.first_channel + i, (float)totals.sum(which, i));
    end_epilogue(s, e, stats, StoringBlocks{blocks_x(), block_x()});
}

// Sums the terms of a tile of channels. The block that adds those of all parts computes the channels' means, and stores
// the gradients of scale and shift.
template <int N, class Terms>
DEVICE void compute_totals(const TotalsParams& p, double (*block_sums)[THREADS]) {
    sum_columns<N, Terms>(p.columns, block_x(), block_y(), block_sums);
    const Totals totals = reduce_parts<N>(p.columns, block_x(), block_y(), block_sums);
    if (totals.channels == 0) return;
    for (u32 i = thread_index(); i < totals.channels; i += THREADS) {
        const u32 channel = totals.first_channel + i;
        const double scale = p.scale == 0 ? 1.0 : (double)p.scale[channel];
#pragma unroll
        for (u32 which = 0; which < 2; which++) p.means[which][channel] = (float)(totals.sum(which, i) * scale / p.size);
    }
    if (!p.stores_affine) return;
    store_totals(p.scale_gradient, totals, 1);
    // Both stores use the block's shared row.
    barrier();
    store_totals(p.shift_gradient, totals, 0);
}

KERNEL(norm_vjp_totals, TotalsParams) {
    SHARED double block_sums[16][THREADS];
    const ColumnsParams& columns = p.columns;
    if (columns.shape.groups != 0) {
        compute_totals<1, GradientMoments<1, true, false>>(p, block_sums);
    } else if (columns.shape.channels % 8 == 0 && columns.type == TYPE_F16 && columns.dy_type == TYPE_F16) {
        compute_totals<8, GradientMoments<8, false, true>>(p, block_sums);
    } else if (columns.shape.channels % 8 == 0) {
        compute_totals<8, GradientMoments<8, false, false>>(p, block_sums);
    } else {
        compute_totals<1, GradientMoments<1, false, false>>(p, block_sums);
    }
}

struct NormVjpParams {
    Store dx;
    const void* x;
    const void* dy;
    const float* saved;
    const float* inv_stds;
    const float* scale;
    // Means of u and of u · x̂ of each channel, or null if the statistics are constants.
    const float* mean_u;
    const float* mean_u_xhat;
    u32 type, dy_type;
    u32 len;
    NormLayout shape;
    // Number of groups of the tensor, and of threads for one group.
    u32 group_count;
    u32 lanes;
    u32 centered;
    float eps;
    u32 unused;
};

// Multiplies dy by the scale of its channels, which gives u.
template <int N>
DEVICE void multiply_by_scale(const NormVjpParams& p, u32 channel, float (&u)[N]) {
    if (p.scale == 0) return;
    float scale[N];
    load_vec(p.scale, TYPE_F32, channel, scale);
#pragma unroll
    for (int j = 0; j < N; j++) u[j] *= scale[j];
}

// Loads u and x of neighbouring channels. They are loaded twice, so L1 keeps them.
template <int N>
DEVICE void load_u_and_x(const NormVjpParams& p, u32 i, u32 channel, float (&u)[N], float (&x)[N]) {
    load_vec(p.dy, p.dy_type, i, u);
    load_vec(p.x, p.type, i, x);
    multiply_by_scale(p, channel, u);
}

struct NormGradient {
    const NormVjpParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.shape.channels, channel = i - pixel * p.shape.channels;
        float x[N], mean_u[N], mean_u_xhat[N];
        load_vec_streaming(p.dy, p.dy_type, i, v);
        load_vec_streaming(p.x, p.type, i, x);
        multiply_by_scale(p, channel, v);
#pragma unroll
        for (int j = 0; j < N; j++) mean_u[j] = mean_u_xhat[j] = 0.0f;
        if (p.mean_u != 0) {
            load_vec(p.mean_u, TYPE_F32, channel, mean_u);
            load_vec(p.mean_u_xhat, TYPE_F32, channel, mean_u_xhat);
        }
        float means[N], inv_stds[N];
        load_group_stats(p.shape, p.saved, p.inv_stds, pixel, channel, means, inv_stds);
#pragma unroll
        for (int j = 0; j < N; j++) {
            v[j] = (v[j] - mean_u[j] - (x[j] - means[j]) * inv_stds[j] * mean_u_xhat[j]) * inv_stds[j];
        }
    }
    DEVICE_MEMBER u32 width() const { return p.shape.channels; }
};

KERNEL(norm_vjp_apply, NormVjpParams) { store_elementwise(p.dx, p.len, RowWise<NormGradient>{{p}}); }

struct NormGradientByChannel {
    static const u32 LOADS_IN_FLIGHT = 2;
    struct Operands {
        Fragment<8, true> x, dy;
    };
    struct ThreadParams {
        float means[8], inv_stds[8], scale[8], mean_u[8], mean_u_xhat[8];
        DEVICE_MEMBER ThreadParams(const NormVjpParams& p, u32 first) {
            const u32 channel = first % p.shape.channels;
            load_vec8(p.saved, TYPE_F32, channel, means);
            load_inv_stds(p.saved + p.shape.channels, p.eps, channel, inv_stds);
            if (p.scale != 0) load_vec8(p.scale, TYPE_F32, channel, scale);
#pragma unroll
            for (u32 j = 0; j < 8; j++) mean_u[j] = mean_u_xhat[j] = 0.0f;
            if (p.mean_u == 0) return;
            load_vec8(p.mean_u, TYPE_F32, channel, mean_u);
            load_vec8(p.mean_u_xhat, TYPE_F32, channel, mean_u_xhat);
        }
    };
    const NormVjpParams& p;
    DEVICE_MEMBER Operands load_operands(u32 i) const {
        return Operands{Fragment<8, true>::load(p.x, p.type, i), Fragment<8, true>::load(p.dy, p.dy_type, i)};
    }
    DEVICE_MEMBER void compute_results(const Operands& read, const ThreadParams& c, float (&v)[8]) const {
        float x[8];
        read.dy.unpack_into(v);
        read.x.unpack_into(x);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            if (p.scale != 0) v[j] *= c.scale[j];
            v[j] = (v[j] - c.mean_u[j] - (x[j] - c.means[j]) * c.inv_stds[j] * c.mean_u_xhat[j]) * c.inv_stds[j];
        }
    }
};

KERNEL(norm_vjp_apply_by_channel, NormVjpParams) { store_elementwise_by_channel(p.dx, p.len, NormGradientByChannel{p}); }

// Computes the gradient of groups before `end`. The block's threads take some at a time, a tile: the first tile, and every
// `step` tiles another.
template <int N>
DEVICE void differentiate_groups(const NormVjpParams& p, const Epilogue& e, StatsAccumulator& stats, u32 first, u32 end, u32 step) {
    const u32 groups_per_block = THREADS / p.lanes, lane = thread_index() % p.lanes;
    for (u32 tile = first; tile < (end + groups_per_block - 1) / groups_per_block; tile += step) {
        const u32 number = tile * groups_per_block + thread_index() / p.lanes;
        const bool is_live = number < p.group_count;
        const Group g = group_at(p.shape, is_live ? number : 0);
        const float mean = is_live ? p.saved[number] : 0.0f;
        const float inv_std = is_live ? inv_std_of(p.saved[p.group_count + number], p.eps) : 0.0f;
        double sums[2] = {0, 0};
        for (u32 i = N * lane; is_live && i < g.size; i += N * p.lanes) {
            float u[N], x[N], partial_f32[2] = {0.0f, 0.0f};
            load_u_and_x(p, g.at(i), g.channel(i), u, x);
#pragma unroll
            for (int j = 0; j < N; j++) partial_f32[0] += u[j], partial_f32[1] += u[j] * ((x[j] - mean) * inv_std);
            sums[0] += partial_f32[0], sums[1] += partial_f32[1];
        }
        lane_group_reduce(sums, p.lanes);
        const float mean_u = p.centered ? (float)(sums[0] / g.size) : 0.0f, mean_u_xhat = (float)(sums[1] / g.size);
        for (u32 i = N * lane; is_live && i < g.size; i += N * p.lanes) {
            float u[N], x[N];
            const u32 at = g.at(i);
            load_u_and_x(p, at, g.channel(i), u, x);
#pragma unroll
            for (int j = 0; j < N; j++) u[j] = (u[j] - mean_u - (x[j] - mean) * inv_std * mean_u_xhat) * inv_std;
            store_vec(p.dx, e, stats, at, u);
        }
    }
}

KERNEL(norm_vjp_groups, NormVjpParams) {
    Epilogue e = begin_epilogue(p.dx);
    StatsAccumulator stats = {};
    if (p.shape.channels / p.shape.groups % 8 == 0) {
        differentiate_groups<8>(p, e, stats, block_x(), p.group_count, blocks_x());
    } else {
        differentiate_groups<1>(p, e, stats, block_x(), p.group_count, blocks_x());
    }
    end_epilogue(p.dx, e, stats);
}

struct NormRowsVjpParams {
    NormVjpParams norm;
    ColumnsParams columns;
    // Number of tiles of columns.
    u32 tiles;
    u32 unused;
};

template <int N, bool F16>
DEVICE void differentiate_rows(const NormRowsVjpParams& p, double (*block_sums)[THREADS]) {
    const u32 rows_per_tile = THREADS / p.norm.lanes, part = block_x(), rows = p.norm.group_count;
    const u32 first = part * p.columns.pixels_per_part;
    const u32 end = rows - first < p.columns.pixels_per_part ? rows : first + p.columns.pixels_per_part;
    Epilogue e = begin_epilogue(p.norm.dx);
    StatsAccumulator stats = {};
    differentiate_groups<N>(p.norm, e, stats, first / rows_per_tile, end, 1);
    end_epilogue(p.norm.dx, e, stats);
    // The rows of a part are still in a cache.
    for (u32 tile = 0; tile < p.tiles; tile++) {
        if (tile != 0) barrier();
        sum_columns<N, RowGradientMoments<N, F16>>(p.columns, tile, part, block_sums);
    }
}

// Gradient of x, and sums by channel for the gradients of scale and shift, if each pixel is a group. A block takes a part of
// the pixels, of whole tiles.
KERNEL(norm_vjp_rows, NormRowsVjpParams) {
    SHARED double block_sums[16][THREADS];
    if (p.norm.shape.channels % 8 != 0) {
        differentiate_rows<1, false>(p, block_sums);
    } else if (p.norm.type == TYPE_F16 && p.norm.dy_type == TYPE_F16) {
        differentiate_rows<8, true>(p, block_sums);
    } else {
        differentiate_rows<8, false>(p, block_sums);
    }
}

struct NormAffineVjpParams {
    Store scale, shift;
    const double* sums;
    u32 parts, channels;
};

// Number of channels of a block of `norm_vjp_affine`.
#define AFFINE_CHANNELS 32

// Stores the sum of a channel over all lanes.
DEVICE void store_channel(const Store& s, const double (*lane_sums)[AFFINE_CHANNELS], u32 channels) {
    const u32 t = thread_index(), channel = block_x() * AFFINE_CHANNELS + t;
    Epilogue e = begin_epilogue(s);
    StatsAccumulator stats = {};
    if (t < AFFINE_CHANNELS && channel < channels) {
        double sum = 0;
        for (u32 lane = 0; lane < THREADS / AFFINE_CHANNELS; lane++) sum += lane_sums[lane][t];
        store_scalar(s, e, stats, channel, (float)sum);
    }
    end_epilogue(s, e, stats);
}

// Adds the partial sums of channels, and stores them as the gradients of scale and shift.
KERNEL(norm_vjp_affine, NormAffineVjpParams) {
    SHARED double lane_sums[2][THREADS / AFFINE_CHANNELS][AFFINE_CHANNELS];
    const u32 lane = thread_index() / AFFINE_CHANNELS, in_block = thread_index() % AFFINE_CHANNELS;
    const u32 channel = block_x() * AFFINE_CHANNELS + in_block;
    double sums[2] = {0, 0};
    for (u32 part = lane; channel < p.channels && part < p.parts; part += THREADS / AFFINE_CHANNELS) {
#pragma unroll
        for (u32 i = 0; i < 2; i++) sums[i] += p.sums[((u64)part * 2 + i) * p.channels + channel];
    }
#pragma unroll
    for (u32 i = 0; i < 2; i++) lane_sums[i][lane][in_block] = sums[i];
    barrier();
    store_channel(p.scale, lane_sums[1], p.channels);
    // Both stores use the block's shared row.
    barrier();
    store_channel(p.shift, lane_sums[0], p.channels);
}
