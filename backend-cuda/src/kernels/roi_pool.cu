// RoI max pooling and its gradient (`core::ops::RoiPool`). Channels are innermost, so eight of them are results of one bin.

struct RoiPoolParams {
    Store y;
    const void* x;
    // Five values for each box: image, left, top, right, bottom.
    const float* boxes;
    // Index of the maximum of each bin in its image.
    u32* indices;
    u32 type;
    u32 len;
    // Height and width of the images, rows and columns of bins.
    u32 x_size[2], y_size[2];
    u32 images, count, channels;
    float scale;
};

// Index of the maximum of an empty bin.
constexpr u32 NO_ELEMENT = 0xFFFFFFFF;

struct Region {
    bool is_valid;
    u32 image;
    // First and last pixel along rows and along columns.
    int edges[2][2];
};

// Returns the nearest integer, ties away from 0, limited to ±2^20 so that products of bins and lengths fit 32 bits.
DEVICE int round_half_away(float at) {
    const float MAX_COORDINATE = 1048576.0f;
    const float clamped = at < -MAX_COORDINATE ? -MAX_COORDINATE : at > MAX_COORDINATE ? MAX_COORDINATE : at;
    const int truncated = (int)clamped;
    const float rest = clamped - (float)truncated;
    return truncated + (rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0);
}

DEVICE Region load_region(const RoiPoolParams& p, u32 number) {
    const float* box = p.boxes + 5 * (u64)number;
    Region b = {box[0] >= 0.0f && box[0] < (float)p.images, 0, {}};
#pragma unroll
    for (u32 i = 1; i < 5; i++) b.is_valid = b.is_valid && box[i] == box[i];
    if (!b.is_valid) return b;
    b.image = (u32)box[0];
#pragma unroll
    for (u32 axis = 0; axis < 2; axis++) {
        b.edges[axis][0] = round_half_away(box[2 - axis] * p.scale);
        b.edges[axis][1] = round_half_away(box[4 - axis] * p.scale);
    }
    return b;
}

// First pixel of a bin along an axis, and the one after its last.
struct BinRange {
    u32 first, end;
};

DEVICE u32 clamp_to_image(int at, u32 size) { return at < 0 ? 0 : (u32)at > size ? size : (u32)at; }

DEVICE BinRange bin_range(const RoiPoolParams& p, const Region& b, u32 axis, u32 bin) {
    const int first = b.edges[axis][0], last = b.edges[axis][1];
    const u32 len = last < first ? 1 : (u32)(last - first) + 1, bins = p.y_size[axis], size = p.x_size[axis];
    const int start = first + (int)(bin * len / bins), end = first + (int)(((bin + 1) * len + bins - 1) / bins);
    return BinRange{clamp_to_image(start, size), clamp_to_image(end, size)};
}

struct RoiPoolOf {
    const RoiPoolParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.channels, channel = i - pixel * p.channels, line = pixel / p.y_size[1];
        const Region b = load_region(p, line / p.y_size[0]);
        u32 chosen[N];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f, chosen[j] = NO_ELEMENT;
        if (b.is_valid) {
            const BinRange rows = bin_range(p, b, 0, line % p.y_size[0]), columns = bin_range(p, b, 1, pixel % p.y_size[1]);
            for (u32 row = rows.first; row < rows.end; row++) {
                for (u32 column = columns.first; column < columns.end; column++) {
                    const u32 index = row * p.x_size[1] + column;
                    float x[N];
                    load_vec(p.x, p.type, ((u64)b.image * p.x_size[0] * p.x_size[1] + index) * p.channels + channel, x);
#pragma unroll
                    for (int j = 0; j < N; j++) {
                        const bool wins = chosen[j] == NO_ELEMENT || x[j] > v[j] || (x[j] != x[j] && v[j] == v[j]);
                        v[j] = wins ? x[j] : v[j];
                        chosen[j] = wins ? index : chosen[j];
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++) p.indices[i + j] = chosen[j];
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(roi_pool, RoiPoolParams) { store_elementwise(p.y, p.len, RowWise<RoiPoolOf>{{p}}); }

// Adds the gradients of all bins whose maximum is a pixel, box by box.
struct RoiUnpoolOf {
    const RoiPoolParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const u32 pixel = i / p.channels, channel = i - pixel * p.channels, line = pixel / p.x_size[1];
        const u32 image = line / p.x_size[0], row = line % p.x_size[0], column = pixel % p.x_size[1];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        for (u32 number = 0; number < p.count; number++) {
            const Region b = load_region(p, number);
            if (!b.is_valid || b.image != image) continue;
            for (u32 r = 0; r < p.y_size[0]; r++) {
                const BinRange rows = bin_range(p, b, 0, r);
                if (row < rows.first || row >= rows.end) continue;
                for (u32 s = 0; s < p.y_size[1]; s++) {
                    const BinRange columns = bin_range(p, b, 1, s);
                    if (column < columns.first || column >= columns.end) continue;
                    const u64 bin = (((u64)number * p.y_size[0] + r) * p.y_size[1] + s) * p.channels + channel;
                    float x[N];
                    load_vec(p.x, p.type, bin, x);
#pragma unroll
                    for (int j = 0; j < N; j++) v[j] += p.indices[bin + j] == row * p.x_size[1] + column ? x[j] : 0.0f;
                }
            }
        }
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(roi_unpool, RoiPoolParams) { store_elementwise(p.y, p.len, RowWise<RoiUnpoolOf>{{p}}); }
