// Normalisation. Mean and variance come from one pass over x − k, k the group's first element: what is left of the
// mean is then small beside the spread.

// x − k and its square, for neighbouring channels.
template <int N, bool halves>
struct Distances {
    static const u32 AHEAD = halves ? 8 : 4;
    typedef Read<N, halves> Operands;
    const ColumnsParams& p;
    u32 channel;
    float first[N];
    DEVICE_MEMBER Distances(const ColumnsParams& p, u32 channel) : p(p), channel(channel) {
        load_some(p.x, p.type, channel, first);
    }
    DEVICE_MEMBER Operands read(u32 pixel) const { return Operands::of(p.x, p.type, pixel * p.shape.channels + channel); }
    DEVICE_MEMBER void add(u32, const Operands& read, float (&sums)[2][N]) const {
        float x[N];
        read.to(x);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const float d = x[i] - first[i];
            sums[0][i] += d, sums[1][i] += d * d;
        }
    }
};

KERNEL(norm_columns, ColumnsParams) {
    SHARED double all[16][THREADS];
    if (p.shape.channels % 8 == 0 && p.type == TYPE_F16) {
        columns<8, Distances<8, true>>(p, all);
    } else if (p.shape.channels % 8 == 0) {
        columns<8, Distances<8, false>>(p, all);
    } else {
        columns<1, Distances<1, false>>(p, all);
    }
}

struct MomentsParams {
    const void* x;
    const double* sums;
    // Means, then variances.
    float* saved;
    float* inverses;
    u32 type;
    u32 parts, channels;
    float size;
    float eps;
    u32 unused;
};

struct Moments {
    float mean, variance;
};

DEVICE Moments moments(const double (&sums)[2], float first, float size) {
    const double shift = sums[0] / size, variance = sums[1] / size - shift * shift;
    return Moments{(float)(first + shift), variance < 0 ? 0.0f : (float)variance};
}

// A block for each channel.
KERNEL(norm_moments, MomentsParams) {
    const u32 channel = block_x();
    double sums[2];
    over_parts(p.sums, p.parts, p.channels, channel, sums);
    if (thread_index() != 0) return;
    const Moments m = moments(sums, load(p.x, p.type, channel), p.size);
    p.saved[channel] = m.mean;
    p.saved[p.channels + channel] = m.variance;
    p.inverses[channel] = inverse_of(m.variance, p.eps);
}

struct InversesParams {
    const float* variances;
    float* inverses;
    u32 len;
    float eps;
};

KERNEL(norm_inverses, InversesParams) {
    for (u64 i = (u64)block_x() * THREADS + thread_index(); i < p.len; i += (u64)blocks_x() * THREADS) {
        p.inverses[i] = inverse_of(p.variances[i], p.eps);
    }
}

struct NormParams {
    Store y;
    const void* x;
    float* saved;
    const float* inverses;
    // Of each channel, or null.
    const float* scale;
    const float* shift;
    u32 type;
    u32 len;
    Layout shape;
    // Groups in all.
    u32 total;
    // Threads for one group: a power of two up to 32, or all of the block.
    u32 lanes;
    u32 centered;
    float eps;
};

template <int N>
DEVICE void affine(const NormParams& p, u32 channel, float (&v)[N]) {
    if (p.scale == 0) return;
    float scale[N], shift[N];
    load_some(p.scale, TYPE_F32, channel, scale);
    load_some(p.shift, TYPE_F32, channel, shift);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = v[i] * scale[i] + shift[i];
}

// With statistics that are there.
struct Applied {
    const NormParams& p;
    template <int N>
    DEVICE_MEMBER void some(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.shape.channels, channel = i - pixel * p.shape.channels;
        load_some_once(p.x, p.type, i, v);
        float means[N], inverses[N];
        statistics(p.shape, p.saved, p.inverses, pixel, channel, means, inverses);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = (v[j] - means[j]) * inverses[j];
        affine(p, channel, v);
    }
    DEVICE_MEMBER u32 width() const { return p.shape.channels; }
};

KERNEL(norm_apply, NormParams) { dense(p.y, p.len, InRows<Applied>{{p}}); }

struct AppliedByChannel {
    static const u32 AHEAD = 4;
    typedef Read<8, true> Operands;
    struct Kept {
        float means[8], inverses[8], scale[8], shift[8];
        DEVICE_MEMBER Kept(const NormParams& p, u32 first) {
            const u32 channel = first % p.shape.channels;
            load8(p.saved, TYPE_F32, channel, means);
            inverses_of(p.saved + p.shape.channels, p.eps, channel, inverses);
            if (p.scale == 0) return;
            load8(p.scale, TYPE_F32, channel, scale);
            load8(p.shift, TYPE_F32, channel, shift);
        }
    };
    const NormParams& p;
    DEVICE_MEMBER Operands read(u32 i) const { return Operands::of(p.x, p.type, i); }
    DEVICE_MEMBER void results(const Operands& read, const Kept& c, float (&v)[8]) const {
        read.to(v);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            v[j] = (v[j] - c.means[j]) * c.inverses[j];
            if (p.scale != 0) v[j] = v[j] * c.scale[j] + c.shift[j];
        }
    }
};

KERNEL(norm_apply_by_channel, NormParams) { dense_by_channel(p.y, p.len, AppliedByChannel{p}); }

// Groups of an image: statistics, then results.
template <int N>
DEVICE void normalise_groups(const NormParams& p, const Epilogue& e, Seen& seen) {
    const u32 together = THREADS / p.lanes, lane = thread_index() % p.lanes;
    for (u32 tile = block_x(); tile < (p.total + together - 1) / together; tile += blocks_x()) {
        const u32 number = tile * together + thread_index() / p.lanes;
        const bool live = number < p.total;
        const Group g = group(p.shape, live ? number : 0);
        const float first = p.centered ? load(p.x, p.type, g.first) : 0.0f;
        double sums[2] = {0, 0};
        for (u32 i = N * lane; live && i < g.size; i += N * p.lanes) {
            float x[N], few[2] = {0.0f, 0.0f};
            load_some(p.x, p.type, g.at(i), x);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float d = x[j] - first;
                few[0] += d, few[1] += d * d;
            }
            sums[0] += few[0], sums[1] += few[1];
        }
        over_lanes(sums, p.lanes);
        if (!p.centered) sums[0] = 0;
        const Moments m = moments(sums, first, (float)g.size);
        if (!live) continue;
        if (lane == 0) p.saved[number] = m.mean, p.saved[p.total + number] = m.variance;
        const float inverse = inverse_of(m.variance, p.eps);
        for (u32 i = N * lane; i < g.size; i += N * p.lanes) {
            float v[N];
            const u32 at = g.at(i);
            load_some(p.x, p.type, at, v);
#pragma unroll
            for (int j = 0; j < N; j++) v[j] = (v[j] - m.mean) * inverse;
            affine(p, g.channel(i), v);
            put_some(p.y, e, seen, at, v);
        }
    }
}

KERNEL(norm_groups, NormParams) {
    Epilogue e = begin(p.y);
    Seen seen = {};
    if (p.shape.channels / p.shape.groups % 8 == 0) {
        normalise_groups<8>(p, e, seen);
    } else {
        normalise_groups<1>(p, e, seen);
    }
    end(p.y, e, seen);
}
