// What normalisations share: which numbers belong to which group, and sums by channel.

struct Layout {
    u32 pixels, channels;
    // Pixels of an image, and groups of channels of each; no groups: each channel is one, over all pixels.
    u32 image, groups;
};

DEVICE u32 group_of(const Layout& s, u32 pixel, u32 channel) {
    return s.groups == 0 ? channel : pixel / s.image * s.groups + channel / (s.channels / s.groups);
}

DEVICE float inverse_of(float variance, float eps) { return 1.0f / sqrtf(variance + eps); }

// 1 / σ of a channel and its neighbours.
template <int N>
DEVICE void inverses_of(const float* variances, float eps, u32 channel, float (&inverses)[N]) {
    load_some(variances, TYPE_F32, channel, inverses);
#pragma unroll
    for (int j = 0; j < N; j++) inverses[j] = inverse_of(inverses[j], eps);
}

// What an element's group and its neighbours' are normalised by.
template <int N>
DEVICE void statistics(const Layout& s, const float* saved, const float* inverse, u32 pixel, u32 channel,
                       float (&means)[N], float (&inverses)[N]) {
    if (s.groups == 0) {
        load_some(saved, TYPE_F32, channel, means);
        load_some(inverse, TYPE_F32, channel, inverses);
        return;
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        const u32 group = group_of(s, pixel, channel + j);
        means[j] = saved[group], inverses[j] = inverse[group];
    }
}

struct ColumnsParams {
    const void* x;
    const void* dy;
    // Means, then variances; of groups, what their elements are normalised by.
    const float* saved;
    const float* inverses;
    // Two sums for each part and channel: [parts, 2, channels].
    double* sums;
    u32 type, dy_type;
    Layout shape;
    // Pixels of a part.
    u32 part;
    // Threads for one column of channels, a power of two.
    u32 lanes;
    float eps;
    u32 unused;
};

// Sums two terms of every element by channel. A block takes neighbouring columns, one or N channels wide, and a part of
// the pixels. As many as are read at once are summed in f32, the rest in f64, and over threads in `all`, 2 N rows.
template <int N, class Terms>
DEVICE void columns(const ColumnsParams& p, double (*all)[THREADS]) {
    const u32 t = thread_index(), together = THREADS / p.lanes, lane = t / together;
    const u32 column = block_x() * together + t % together, channels = p.shape.channels;
    double sums[2 * N];
#pragma unroll
    for (int i = 0; i < 2 * N; i++) sums[i] = 0;
    if (column * N < channels) {
        const Terms terms(p, column * N);
        const u32 start = block_y() * p.part;
        const u32 end = p.shape.pixels - start < p.part ? p.shape.pixels : start + p.part;
        for (u32 pixel = start + lane; pixel < end; pixel += Terms::AHEAD * p.lanes) {
            const u32 rest = end - pixel;
            typename Terms::Operands read[Terms::AHEAD];
#pragma unroll
            for (u32 k = 0; k < Terms::AHEAD; k++) {
                if (k * p.lanes < rest) read[k] = terms.read(pixel + k * p.lanes);
            }
            float few[2][N];
#pragma unroll
            for (int i = 0; i < N; i++) few[0][i] = few[1][i] = 0.0f;
#pragma unroll
            for (u32 k = 0; k < Terms::AHEAD; k++) {
                if (k * p.lanes < rest) terms.add(pixel + k * p.lanes, read[k], few);
            }
#pragma unroll
            for (int i = 0; i < N; i++) sums[i] += few[0][i], sums[N + i] += few[1][i];
            // Behind the end, but no further than numbers go.
            if (rest <= Terms::AHEAD * p.lanes) break;
        }
    }
#pragma unroll
    for (int i = 0; i < 2 * N; i++) all[i][t] = sums[i];
    barrier();
    for (u32 i = t; i < 2 * N * together; i += THREADS) {
        const u32 which = i / together, mine = i % together;
        const u32 channel = (block_x() * together + mine) * N + which % N;
        if (channel >= channels) continue;
        double sum = 0;
        for (u32 l = 0; l < p.lanes; l++) sum += all[which][l * together + mine];
        p.sums[((u64)block_y() * 2 + which / N) * channels + channel] = sum;
    }
}

// The sums of a channel over all parts, by a block.
DEVICE void over_parts(const double* of_parts, u32 parts, u32 channels, u32 channel, double (&sums)[2]) {
    sums[0] = sums[1] = 0;
    for (u32 part = thread_index(); part < parts; part += THREADS) {
        sums[0] += of_parts[(u64)part * 2 * channels + channel];
        sums[1] += of_parts[((u64)part * 2 + 1) * channels + channel];
    }
    over_block(sums);
}

// As `dense`, of halves by channel, whose number is a multiple of eight and divides what all blocks take at a time: a thread
// meets the same eight channels again and again, and keeps what belongs to them.
template <class F>
DEVICE void dense_by_channel(const Store& s, u32 len, const F& f) {
    Epilogue e = begin(s);
    Seen seen = {};
    eights_ahead(s, e, seen, len, f);
    end(s, e, seen);
}

// The elements of a group: pixels of one image, some channels of each.
struct Group {
    u32 first, width, step, size;
    DEVICE_MEMBER u32 at(u32 i) const { return first + i / width * step + i % width; }
    DEVICE_MEMBER u32 channel(u32 i) const { return first % step + i % width; }
};

DEVICE Group group(const Layout& s, u32 number) {
    const u32 width = s.channels / s.groups, image = number / s.groups;
    return Group{image * s.image * s.channels + number % s.groups * width, width, s.channels, s.image * width};
}

DEVICE void put_some(const Store& s, const Epilogue& e, Seen& seen, u64 i, float (&v)[1]) { put(s, e, seen, i, v[0]); }
DEVICE void put_some(const Store& s, const Epilogue& e, Seen& seen, u64 i, float (&v)[8]) { put8(s, e, seen, i, v); }
