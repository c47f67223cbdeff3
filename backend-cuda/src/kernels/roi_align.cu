// RoIAlign and its gradient (`core::ops::RoiAlign`). Channels are innermost, so eight of them are results of one bin.

struct RoiAlignParams {
    Store y;
    const void* x;
    // Five values for each box: image, left, top, right, bottom.
    const float* boxes;
    u32 type;
    u32 len;
    // Height and width of the images, rows and columns of bins.
    u32 x_size[2], y_size[2];
    u32 images, count, channels, samples;
    float scale;
    u32 unused;
};

struct Box {
    bool is_valid;
    u32 image;
    // First and last coordinate along rows and along columns, in pixels.
    float edges[2][2];
};

DEVICE Box load_box(const RoiAlignParams& p, u32 number) {
    const float* box = p.boxes + 5 * (u64)number;
    const bool is_valid = box[0] >= 0.0f && box[0] < (float)p.images;
    Box b = {is_valid, is_valid ? (u32)box[0] : 0, {}};
#pragma unroll
    for (u32 axis = 0; axis < 2; axis++) {
        b.edges[axis][0] = box[2 - axis] * p.scale - 0.5f;
        b.edges[axis][1] = box[4 - axis] * p.scale - 0.5f;
    }
    return b;
}

// Pixels on both sides of a sample point along one axis, and the weight of the second.
struct SamplePoint {
    bool is_valid;
    u32 low, high;
    float weight;
};

DEVICE SamplePoint sample_point(const RoiAlignParams& p, const Box& b, u32 axis, u32 bin, u32 sample) {
    const u32 size = p.x_size[axis];
    const float start = b.edges[axis][0];
    const float width = (b.edges[axis][1] - start) / (float)p.y_size[axis];
    const float at = start + (float)bin * width + ((float)sample + 0.5f) * width / (float)p.samples;
    if (size == 0 || !(at >= -1.0f && at <= (float)size)) return SamplePoint{false, 0, 0, 0.0f};
    const float inside = at > 0.0f ? at : 0.0f;
    const u32 low = (u32)inside;
    if (low >= size - 1) return SamplePoint{true, size - 1, size - 1, 0.0f};
    return SamplePoint{true, low, low + 1, inside - (float)low};
}

struct RoiAlignOf {
    const RoiAlignParams& p;
    template <int N>
    DEVICE_MEMBER void add(u32 line, u32 column, u32 channel, float weight, float (&v)[N]) const {
        float x[N];
        load_vec(p.x, p.type, ((u64)line * p.x_size[1] + column) * p.channels + channel, x);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] += weight * x[j];
    }
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.channels, channel = i - pixel * p.channels, line = pixel / p.y_size[1];
        const u32 row = line % p.y_size[0], column = pixel % p.y_size[1];
        const Box b = load_box(p, line / p.y_size[0]);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        if (!b.is_valid) return;
        const u32 first = b.image * p.x_size[0];
        for (u32 r = 0; r < p.samples; r++) {
            const SamplePoint row_point = sample_point(p, b, 0, row, r);
            if (!row_point.is_valid) continue;
            for (u32 s = 0; s < p.samples; s++) {
                const SamplePoint column_point = sample_point(p, b, 1, column, s);
                if (!column_point.is_valid) continue;
                add(first + row_point.low, column_point.low, channel, (1.0f - row_point.weight) * (1.0f - column_point.weight), v);
                add(first + row_point.low, column_point.high, channel, (1.0f - row_point.weight) * column_point.weight, v);
                add(first + row_point.high, column_point.low, channel, row_point.weight * (1.0f - column_point.weight), v);
                add(first + row_point.high, column_point.high, channel, row_point.weight * column_point.weight, v);
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++) v[j] /= (float)(p.samples * p.samples);
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(roi_align, RoiAlignParams) { store_elementwise(p.y, p.len, RowWise<RoiAlignOf>{{p}}); }

// Adds the gradients of all bins that sampled a pixel, box by box.
struct RoiAlignVjpOf {
    const RoiAlignParams& p;
    // Returns the weight of a pixel in a bin, times the number of points along the axis.
    DEVICE_MEMBER float bin_weight(const Box& b, u32 axis, u32 bin, u32 place) const {
        float weight = 0.0f;
        for (u32 sample = 0; sample < p.samples; sample++) {
            const SamplePoint at = sample_point(p, b, axis, bin, sample);
            if (!at.is_valid) continue;
            if (at.low == place) weight += 1.0f - at.weight;
            if (at.high == place && at.high != at.low) weight += at.weight;
        }
        return weight;
    }
    // Returns whether points of the box may be less than one pixel away.
    DEVICE_MEMBER bool may_touch(const Box& b, u32 axis, u32 place) const {
        const float from = b.edges[axis][0], to = b.edges[axis][1];
        return (from < to ? from : to) <= (float)place + 1.0f && (from < to ? to : from) >= (float)place - 1.0f;
    }
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.channels, channel = i - pixel * p.channels, line = pixel / p.x_size[1];
        const u32 image = line / p.x_size[0], row = line % p.x_size[0], column = pixel % p.x_size[1];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        for (u32 box = 0; box < p.count; box++) {
            const Box b = load_box(p, box);
            if (!b.is_valid || b.image != image || !may_touch(b, 0, row) || !may_touch(b, 1, column)) continue;
            for (u32 r = 0; r < p.y_size[0]; r++) {
                const float row_point = bin_weight(b, 0, r, row);
                if (row_point == 0.0f) continue;
                for (u32 s = 0; s < p.y_size[1]; s++) {
                    const float column_point = bin_weight(b, 1, s, column);
                    if (column_point == 0.0f) continue;
                    float x[N];
                    const u64 bin = ((u64)box * p.y_size[0] + r) * p.y_size[1] + s;
                    load_vec(p.x, p.type, bin * p.channels + channel, x);
#pragma unroll
                    for (int j = 0; j < N; j++) v[j] += row_point * column_point * x[j];
                }
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++) v[j] /= (float)(p.samples * p.samples);
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(roi_align_vjp, RoiAlignParams) { store_elementwise(p.y, p.len, RowWise<RoiAlignVjpOf>{{p}}); }
