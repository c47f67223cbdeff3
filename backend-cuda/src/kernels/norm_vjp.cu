// The vjp of a normalisation: dx = (u − mean(u) − x̂ · mean(u · x̂)) / σ with u = dy · scale and means over the group;
// dscale = Σ dy · x̂ and dshift = Σ dy over each channel.

// dy and dy · x̂, for neighbouring channels.
template <int N, bool grouped, bool halves>
struct Products {
    static const u32 AHEAD = halves ? 4 : 2;
    struct Operands {
        Read<N, halves> x, dy;
    };
    const ColumnsParams& p;
    u32 channel;
    float means[N], inverses[N];
    DEVICE_MEMBER Products(const ColumnsParams& p, u32 channel) : p(p), channel(channel) {
        if (grouped) return;
        load_some(p.saved, TYPE_F32, channel, means);
        inverses_of(p.saved + p.shape.channels, p.eps, channel, inverses);
    }
    DEVICE_MEMBER Operands read(u32 pixel) const {
        const u32 at = pixel * p.shape.channels + channel;
        return Operands{Read<N, halves>::of(p.x, p.type, at), Read<N, halves>::of(p.dy, p.dy_type, at)};
    }
    DEVICE_MEMBER void add(u32 pixel, const Operands& read, float (&sums)[2][N]) const {
        float x[N], dy[N];
        read.x.to(x);
        read.dy.to(dy);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const u32 group = grouped ? group_of(p.shape, pixel, channel + i) : 0;
            const float mean = grouped ? p.saved[group] : means[i], inverse = grouped ? p.inverses[group] : inverses[i];
            sums[0][i] += dy[i], sums[1][i] += dy[i] * ((x[i] - mean) * inverse);
        }
    }
};

KERNEL(norm_vjp_columns, ColumnsParams) {
    SHARED double all[16][THREADS];
    if (p.shape.groups != 0) {
        columns<1, Products<1, true, false>>(p, all);
    } else if (p.shape.channels % 8 == 0 && p.type == TYPE_F16 && p.dy_type == TYPE_F16) {
        columns<8, Products<8, false, true>>(p, all);
    } else if (p.shape.channels % 8 == 0) {
        columns<8, Products<8, false, false>>(p, all);
    } else {
        columns<1, Products<1, false, false>>(p, all);
    }
}

struct TotalsParams {
    const double* sums;
    const float* scale;
    // Σ dy and Σ dy · x̂ of each channel.
    float* totals[2];
    // Means of u and of u · x̂.
    float* means[2];
    u32 parts, channels;
    float size;
    u32 unused;
};

// A block for each channel.
KERNEL(norm_vjp_totals, TotalsParams) {
    const u32 channel = block_x();
    double sums[2];
    over_parts(p.sums, p.parts, p.channels, channel, sums);
    if (thread_index() != 0) return;
    const double scale = p.scale == 0 ? 1.0 : (double)p.scale[channel];
#pragma unroll
    for (u32 i = 0; i < 2; i++) {
        p.totals[i][channel] = (float)sums[i];
        p.means[i][channel] = (float)(sums[i] * scale / p.size);
    }
}

struct NormVjpParams {
    Store dx;
    const void* x;
    const void* dy;
    const float* saved;
    const float* inverses;
    const float* scale;
    // Means of u and of u · x̂ in each channel; null where statistics are given.
    const float* plain;
    const float* weighted;
    u32 type, dy_type;
    u32 len;
    Layout shape;
    // Groups in all, and threads for one.
    u32 total;
    u32 lanes;
    u32 centered;
    float eps;
    u32 unused;
};

// dy as u, by the weights of its channels.
template <int N>
DEVICE void weigh(const NormVjpParams& p, u32 channel, float (&u)[N]) {
    if (p.scale == 0) return;
    float scale[N];
    load_some(p.scale, TYPE_F32, channel, scale);
#pragma unroll
    for (int j = 0; j < N; j++) u[j] *= scale[j];
}

// u and x of neighbouring channels, which are read twice.
template <int N>
DEVICE void operands(const NormVjpParams& p, u32 i, u32 channel, float (&u)[N], float (&x)[N]) {
    load_some(p.dy, p.dy_type, i, u);
    load_some(p.x, p.type, i, x);
    weigh(p, channel, u);
}

struct Gradient {
    const NormVjpParams& p;
    template <int N>
    DEVICE_MEMBER void some(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.shape.channels, channel = i - pixel * p.shape.channels;
        float x[N], plain[N], weighted[N];
        load_some_once(p.dy, p.dy_type, i, v);
        load_some_once(p.x, p.type, i, x);
        weigh(p, channel, v);
#pragma unroll
        for (int j = 0; j < N; j++) plain[j] = weighted[j] = 0.0f;
        if (p.plain != 0) {
            load_some(p.plain, TYPE_F32, channel, plain);
            load_some(p.weighted, TYPE_F32, channel, weighted);
        }
        float means[N], inverses[N];
        statistics(p.shape, p.saved, p.inverses, pixel, channel, means, inverses);
#pragma unroll
        for (int j = 0; j < N; j++) {
            v[j] = (v[j] - plain[j] - (x[j] - means[j]) * inverses[j] * weighted[j]) * inverses[j];
        }
    }
    DEVICE_MEMBER u32 width() const { return p.shape.channels; }
};

KERNEL(norm_vjp_apply, NormVjpParams) { dense(p.dx, p.len, InRows<Gradient>{{p}}); }

struct GradientByChannel {
    static const u32 AHEAD = 2;
    struct Operands {
        Read<8, true> x, dy;
    };
    struct Kept {
        float means[8], inverses[8], scale[8], plain[8], weighted[8];
        DEVICE_MEMBER Kept(const NormVjpParams& p, u32 first) {
            const u32 channel = first % p.shape.channels;
            load8(p.saved, TYPE_F32, channel, means);
            inverses_of(p.saved + p.shape.channels, p.eps, channel, inverses);
            if (p.scale != 0) load8(p.scale, TYPE_F32, channel, scale);
#pragma unroll
            for (u32 j = 0; j < 8; j++) plain[j] = weighted[j] = 0.0f;
            if (p.plain == 0) return;
            load8(p.plain, TYPE_F32, channel, plain);
            load8(p.weighted, TYPE_F32, channel, weighted);
        }
    };
    const NormVjpParams& p;
    DEVICE_MEMBER Operands read(u32 i) const {
        return Operands{Read<8, true>::of(p.x, p.type, i), Read<8, true>::of(p.dy, p.dy_type, i)};
    }
    DEVICE_MEMBER void results(const Operands& read, const Kept& c, float (&v)[8]) const {
        float x[8];
        read.dy.to(v);
        read.x.to(x);
#pragma unroll
        for (u32 j = 0; j < 8; j++) {
            if (p.scale != 0) v[j] *= c.scale[j];
            v[j] = (v[j] - c.plain[j] - (x[j] - c.means[j]) * c.inverses[j] * c.weighted[j]) * c.inverses[j];
        }
    }
};

KERNEL(norm_vjp_apply_by_channel, NormVjpParams) { dense_by_channel(p.dx, p.len, GradientByChannel{p}); }

template <int N>
DEVICE void derive_groups(const NormVjpParams& p, const Epilogue& e, Seen& seen) {
    const u32 together = THREADS / p.lanes, lane = thread_index() % p.lanes;
    for (u32 tile = block_x(); tile < (p.total + together - 1) / together; tile += blocks_x()) {
        const u32 number = tile * together + thread_index() / p.lanes;
        const bool live = number < p.total;
        const Group g = group(p.shape, live ? number : 0);
        const float mean = live ? p.saved[number] : 0.0f;
        const float inverse = live ? inverse_of(p.saved[p.total + number], p.eps) : 0.0f;
        double sums[2] = {0, 0};
        for (u32 i = N * lane; live && i < g.size; i += N * p.lanes) {
            float u[N], x[N], few[2] = {0.0f, 0.0f};
            operands(p, g.at(i), g.channel(i), u, x);
#pragma unroll
            for (int j = 0; j < N; j++) few[0] += u[j], few[1] += u[j] * ((x[j] - mean) * inverse);
            sums[0] += few[0], sums[1] += few[1];
        }
        over_lanes(sums, p.lanes);
        const float plain = p.centered ? (float)(sums[0] / g.size) : 0.0f, weighted = (float)(sums[1] / g.size);
        for (u32 i = N * lane; live && i < g.size; i += N * p.lanes) {
            float u[N], x[N];
            const u32 at = g.at(i);
            operands(p, at, g.channel(i), u, x);
#pragma unroll
            for (int j = 0; j < N; j++) u[j] = (u[j] - plain - (x[j] - mean) * inverse * weighted) * inverse;
            put_some(p.dx, e, seen, at, u);
        }
    }
}

KERNEL(norm_vjp_groups, NormVjpParams) {
    Epilogue e = begin(p.dx);
    Seen seen = {};
    if (p.shape.channels / p.shape.groups % 8 == 0) {
        derive_groups<8>(p, e, seen);
    } else {
        derive_groups<1>(p, e, seen);
    }
    end(p.dx, e, seen);
}
