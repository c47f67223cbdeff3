// Boxes of images, resampled to one size, and the vjp of that (`core::ops::RoiAlign`). Channels lie innermost: eight of
// them are one result each.

struct RoiAlignParams {
    Store y;
    const void* x;
    // Five numbers of each: image, left, top, right, bottom.
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
    bool there;
    u32 image;
    // By rows and by columns, in places.
    float ends[2][2];
};

DEVICE Box box_of(const RoiAlignParams& p, u32 number) {
    const float* box = p.boxes + 5 * (u64)number;
    const bool there = box[0] >= 0.0f && box[0] < (float)p.images;
    Box b = {there, there ? (u32)box[0] : 0, {}};
#pragma unroll
    for (u32 axis = 0; axis < 2; axis++) {
        b.ends[axis][0] = box[2 - axis] * p.scale - 0.5f;
        b.ends[axis][1] = box[4 - axis] * p.scale - 0.5f;
    }
    return b;
}

// The two places that a point lies between, and the share of the second.
struct Point {
    bool there;
    u32 low, high;
    float share;
};

DEVICE Point point_of(const RoiAlignParams& p, const Box& b, u32 axis, u32 bin, u32 sample) {
    const u32 size = p.x_size[axis];
    const float start = b.ends[axis][0];
    const float width = (b.ends[axis][1] - start) / (float)p.y_size[axis];
    const float at = start + (float)bin * width + ((float)sample + 0.5f) * width / (float)p.samples;
    if (size == 0 || !(at >= -1.0f && at <= (float)size)) return Point{false, 0, 0, 0.0f};
    const float inside = at > 0.0f ? at : 0.0f;
    const u32 low = (u32)inside;
    if (low >= size - 1) return Point{true, size - 1, size - 1, 0.0f};
    return Point{true, low, low + 1, inside - (float)low};
}

struct RoiAlignOf {
    const RoiAlignParams& p;
    template <int N>
    DEVICE_MEMBER void add(u32 line, u32 column, u32 channel, float share, float (&v)[N]) const {
        float x[N];
        load_some(p.x, p.type, ((u64)line * p.x_size[1] + column) * p.channels + channel, x);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] += share * x[j];
    }
    template <int N>
    DEVICE_MEMBER void some(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.channels, channel = i - pixel * p.channels, line = pixel / p.y_size[1];
        const u32 row = line % p.y_size[0], column = pixel % p.y_size[1];
        const Box b = box_of(p, line / p.y_size[0]);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        if (!b.there) return;
        const u32 first = b.image * p.x_size[0];
        for (u32 r = 0; r < p.samples; r++) {
            const Point down = point_of(p, b, 0, row, r);
            if (!down.there) continue;
            for (u32 s = 0; s < p.samples; s++) {
                const Point right = point_of(p, b, 1, column, s);
                if (!right.there) continue;
                add(first + down.low, right.low, channel, (1.0f - down.share) * (1.0f - right.share), v);
                add(first + down.low, right.high, channel, (1.0f - down.share) * right.share, v);
                add(first + down.high, right.low, channel, down.share * (1.0f - right.share), v);
                add(first + down.high, right.high, channel, down.share * right.share, v);
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++) v[j] /= (float)(p.samples * p.samples);
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(roi_align, RoiAlignParams) { dense(p.y, p.len, InRows<RoiAlignOf>{{p}}); }

// What the bins send to a place, box by box.
struct RoiAlignVjpOf {
    const RoiAlignParams& p;
    // The share of a place in a bin, times the points along the axis.
    DEVICE_MEMBER float share_of(const Box& b, u32 axis, u32 bin, u32 place) const {
        float share = 0.0f;
        for (u32 sample = 0; sample < p.samples; sample++) {
            const Point at = point_of(p, b, axis, bin, sample);
            if (!at.there) continue;
            if (at.low == place) share += 1.0f - at.share;
            if (at.high == place && at.high != at.low) share += at.share;
        }
        return share;
    }
    // Whether points of the box may lie less than one place from this one.
    DEVICE_MEMBER bool reaches(const Box& b, u32 axis, u32 place) const {
        const float from = b.ends[axis][0], to = b.ends[axis][1];
        return (from < to ? from : to) <= (float)place + 1.0f && (from < to ? to : from) >= (float)place - 1.0f;
    }
    template <int N>
    DEVICE_MEMBER void some(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.channels, channel = i - pixel * p.channels, line = pixel / p.x_size[1];
        const u32 image = line / p.x_size[0], row = line % p.x_size[0], column = pixel % p.x_size[1];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        for (u32 box = 0; box < p.count; box++) {
            const Box b = box_of(p, box);
            if (!b.there || b.image != image || !reaches(b, 0, row) || !reaches(b, 1, column)) continue;
            for (u32 r = 0; r < p.y_size[0]; r++) {
                const float down = share_of(b, 0, r, row);
                if (down == 0.0f) continue;
                for (u32 s = 0; s < p.y_size[1]; s++) {
                    const float right = share_of(b, 1, s, column);
                    if (right == 0.0f) continue;
                    float x[N];
                    const u64 bin = ((u64)box * p.y_size[0] + r) * p.y_size[1] + s;
                    load_some(p.x, p.type, bin * p.channels + channel, x);
#pragma unroll
                    for (int j = 0; j < N; j++) v[j] += down * right * x[j];
                }
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++) v[j] /= (float)(p.samples * p.samples);
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(roi_align_vjp, RoiAlignParams) { dense(p.y, p.len, InRows<RoiAlignVjpOf>{{p}}); }
