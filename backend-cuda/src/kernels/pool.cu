// Pooling and unpooling with any windows.

// Computes the maximum or the mean of each window.
struct PoolOf {
    const PoolParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const Pixel at = pixel_of(i, p.rows, p.cols, p.channels);
        u32 offsets[N];
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f, offsets[j] = 256;
        for (u32 a = 0; a < p.window[0]; a++) {
            // After the image, or before it, where the difference wraps.
            const u32 row = at.row * p.stride[0] + a - p.pad[0];
            if (row >= p.image_height) continue;
            for (u32 b = 0; b < p.window[1]; b++) {
                const u32 col = at.col * p.stride[1] + b - p.pad[1];
                if (col >= p.image_width) continue;
                float x[N];
                load_vec(p.x, p.type, element_index(p, at.image, row, col, at.channel), x);
#pragma unroll
                for (int j = 0; j < N; j++) {
                    if (p.max) {
                        const bool wins = offsets[j] == 256 || x[j] > v[j] || (x[j] != x[j] && v[j] == v[j]);
                        v[j] = wins ? x[j] : v[j];
                        offsets[j] = wins ? a * p.window[1] + b : offsets[j];
                    } else {
                        v[j] += x[j];
                    }
                }
            }
        }
        if (p.max) {
            if (p.at != 0) store_offsets(p.at, i, offsets);
            return;
        }
#pragma unroll
        for (int j = 0; j < N; j++) v[j] /= (float)(p.window[0] * p.window[1]);
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(pool, PoolParams) { store_elementwise(p.y, p.len, RowWise<PoolOf>{{p}}); }

// Windows along an axis that contain a position.
struct WindowRange {
    u32 first, last, end;
};

DEVICE WindowRange windows_over(const PoolParams& p, u32 axis, u32 place, u32 windows) {
    const u32 end = place + p.pad[axis], window = p.window[axis], stride = p.stride[axis];
    const u32 first = end < window ? 0 : (end - window) / stride + 1, last = end / stride + 1;
    return WindowRange{first, last < windows ? last : windows, end};
}

// Adds the gradients of all windows that contain a pixel, in their order.
struct ScatterOf {
    const PoolParams& p;
    template <int N>
    DEVICE_MEMBER void compute_vec(u32 i, float (&v)[N]) const {
        const Pixel at = pixel_of(i, p.image_height, p.image_width, p.channels);
        const WindowRange rows = windows_over(p, 0, at.row, p.rows), cols = windows_over(p, 1, at.col, p.cols);
#pragma unroll
        for (int j = 0; j < N; j++) v[j] = 0.0f;
        for (u32 row = rows.first; row < rows.last; row++) {
            for (u32 col = cols.first; col < cols.last; col++) {
                const u32 from = ((at.image * p.rows + row) * p.cols + col) * p.channels + at.channel;
                const u32 offset = (rows.end - row * p.stride[0]) * p.window[1] + cols.end - col * p.stride[1];
                float x[N];
                load_vec(p.x, p.type, from, x);
                if (p.max) {
                    u32 offsets[N];
                    load_offsets(p.at, from, offsets);
#pragma unroll
                    for (int j = 0; j < N; j++) v[j] += offsets[j] == offset ? x[j] : 0.0f;
                } else {
#pragma unroll
                    for (int j = 0; j < N; j++) v[j] += x[j] / (float)(p.window[0] * p.window[1]);
                }
            }
        }
    }
    DEVICE_MEMBER u32 width() const { return p.channels; }
};

KERNEL(unpool_scatter, PoolParams) { store_elementwise(p.y, p.len, RowWise<ScatterOf>{{p}}); }

// Reads the pixel of each window that was its maximum.
struct GatherOf {
    const PoolParams& p;
    DEVICE_MEMBER float compute_scalar(u32 i) const {
        const Pixel at = pixel_of(i, p.rows, p.cols, p.channels);
        const u32 offset = p.at[i];
        const u32 row = at.row * p.stride[0] + offset / p.window[1] - p.pad[0];
        const u32 col = at.col * p.stride[1] + offset % p.window[1] - p.pad[1];
        if (row >= p.image_height || col >= p.image_width) return 0.0f;
        return load(p.x, p.type, element_index(p, at.image, row, col, at.channel));
    }
    DEVICE_MEMBER void compute_vec8(u32 i, float (&v)[8]) const {
        if (p.channels % 8 != 0 || p.window[0] * p.window[1] > 8) {
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] = compute_scalar(i + j);
            return;
        }
        // A small window is read as a whole, eight channels at a time, and each channel selects its pixel.
        const Pixel at = pixel_of(i, p.rows, p.cols, p.channels);
        u32 offsets[8];
        load_offsets(p.at, i, offsets);
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = 0.0f;
        for (u32 a = 0; a < p.window[0]; a++) {
            const u32 row = at.row * p.stride[0] + a - p.pad[0];
            for (u32 b = 0; b < p.window[1]; b++) {
                const u32 col = at.col * p.stride[1] + b - p.pad[1];
                if (row >= p.image_height || col >= p.image_width) continue;
                float x[8];
                load_vec8(p.x, p.type, element_index(p, at.image, row, col, at.channel), x);
#pragma unroll
                for (u32 j = 0; j < 8; j++) v[j] = offsets[j] == a * p.window[1] + b ? x[j] : v[j];
            }
        }
    }
};

KERNEL(unpool_gather, PoolParams) { store_elementwise(p.y, p.len, GatherOf{p}); }
