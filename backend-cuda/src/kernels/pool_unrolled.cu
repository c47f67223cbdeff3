// Pooling and unpooling of f16 with the windows of most networks: 2 × 2 without padding (SegNet, VGG) and 3 × 3 (ResNet), both
// with a stride of 2, of channels in eights.
//
// Windows are unrolled, and a thread issues all loads of its windows before it uses the first. In pool.cu a thread has one
// load of 16 bytes in flight, here eight or nine. Positions are found by divisions once for each thread and then counted
// along.

// Pixels in which a thread finds its work, and eights of channels of each.
struct PixelGrid {
    u32 rows, cols, eights;
};

// Eight channels of a pixel.
struct Place {
    u32 image, row, col, eight;
};

DEVICE Place place_of(u32 index, const PixelGrid& grid) {
    const u32 pixel = index / grid.eights, line = pixel / grid.cols;
    return Place{line / grid.rows, line % grid.rows, pixel % grid.cols, index - pixel * grid.eights};
}

// Adds a distance, with carries instead of divisions.
DEVICE void advance(Place& at, const Place& distance, const PixelGrid& grid) {
    at.eight += distance.eight, at.col += distance.col, at.row += distance.row, at.image += distance.image;
    if (at.eight >= grid.eights) at.eight -= grid.eights, at.col += 1;
    if (at.col >= grid.cols) at.col -= grid.cols, at.row += 1;
    if (at.row >= grid.rows) at.row -= grid.rows, at.image += 1;
}

// Loads and stores all places of a grid of `count` eights, `F::PLACES` of them at a time.
template <class F>
DEVICE void store_places(const PoolParams& p, const PixelGrid& grid, u32 count) {
    Epilogue e = begin_epilogue(p.y);
    StatsAccumulator stats = {};
    const F f = {p};
    const u32 step = blocks_x() * THREADS, first = block_x() * THREADS + thread_index();
    const Place distance = place_of(step, grid);
    Place next = place_of(first, grid);
    for (u32 index = first; index < count; index += F::PLACES * step) {
        Place at[F::PLACES];
        typename F::Operands read[F::PLACES];
#pragma unroll
        for (u32 k = 0; k < F::PLACES; k++) {
            at[k] = next;
            if (index + k * step < count) read[k] = f.load_operands(next);
            advance(next, distance, grid);
        }
#pragma unroll
        for (u32 k = 0; k < F::PLACES; k++) {
            if (index + k * step < count) f.store(read[k], at[k], e, stats);
        }
    }
    end_epilogue(p.y, e, stats);
}

DEVICE u32 image_eights_at(const PoolParams& p, const Place& at, u32 row, u32 col) {
    return element_index(p, at.image, row, col, at.eight * 8);
}

// First element of a window's eight channels among all windows.
DEVICE u32 window_eights_at(const PoolParams& p, const Place& at, u32 row, u32 col) {
    return ((at.image * p.rows + row) * p.cols + col) * p.channels + at.eight * 8;
}

// Loads eights of halves; `WINDOW` pixels of a row are in one window, and neighbouring windows of 3 share some of them, so
// that L1 keeps these.
template <u32 WINDOW>
DEVICE Words4 load_window(const void* x, u32 i) {
    const u16* const from = (const u16*)x + i;
    return WINDOW == 2 ? load_streaming(from) : *(const Words4*)from;
}

// Halves of a window's pixels, `outside` for those outside of the image.
template <u32 WINDOW>
struct WindowPixels {
    Words4 x[WINDOW][WINDOW];
    DEVICE_MEMBER void load(const PoolParams& p, const Place& at, u32 outside) {
#pragma unroll
        for (u32 a = 0; a < WINDOW; a++) {
#pragma unroll
            for (u32 b = 0; b < WINDOW; b++) {
                // Before the image the difference wraps.
                const u32 row = at.row * 2 + a - (WINDOW == 2 ? 0 : p.pad[0]), col = at.col * 2 + b - (WINDOW == 2 ? 0 : p.pad[1]);
                x[a][b] = Words4{outside, outside, outside, outside};
                if (row < p.image_height && col < p.image_width) x[a][b] = load_window<WINDOW>(p.x, image_eights_at(p, at, row, col));
            }
        }
    }
};

// Bits of two halves −∞, which never exceed a maximum.
#define TWO_LEAST_HALVES 0xFC00FC00u

// Maximum or mean of each window.
template <u32 WINDOW>
struct PoolWindow {
    static const u32 PLACES = WINDOW == 2 ? 2 : 1;
    typedef WindowPixels<WINDOW> Operands;
    const PoolParams& p;
    DEVICE_MEMBER Operands load_operands(const Place& at) const {
        Operands read;
        read.load(p, at, p.max ? TWO_LEAST_HALVES : 0);
        return read;
    }
    DEVICE_MEMBER void store(const Operands& read, const Place& at, const Epilogue& e, StatsAccumulator& stats) const {
        const u32 i = window_eights_at(p, at, at.row, at.col);
        float v[8];
        if (p.max) {
            find_maxima(read, at, i, v);
        } else {
            add_pixels(read, v);
        }
        store_vec8(p.y, e, stats, i, v);
    }

private:
    DEVICE_MEMBER void find_maxima(const Operands& read, const Place& at, u32 i, float (&v)[8]) const {
        // The first pixel inside of the image, which wins if all are −∞.
        const u32 row = at.row * 2, col = at.col * 2;
        const u32 first = WINDOW == 2 ? 0 : (row < p.pad[0] ? p.pad[0] - row : 0) * WINDOW + (col < p.pad[1] ? p.pad[1] - col : 0);
        u32 offsets[8];
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = bits_as_float(0xFF800000u), offsets[j] = first;
#pragma unroll
        for (u32 tap = 0; tap < WINDOW * WINDOW; tap++) {
            float x[8];
            unpack(read.x[tap / WINDOW][tap % WINDOW], x);
#pragma unroll
            for (u32 j = 0; j < 8; j++) {
                // The first NaN wins.
                const bool wins = !(x[j] <= v[j]) && v[j] == v[j];
                v[j] = wins ? x[j] : v[j];
                offsets[j] = wins ? tap : offsets[j];
            }
        }
        if (p.at != 0) store_offsets(p.at, i, offsets);
    }
    DEVICE_MEMBER void add_pixels(const Operands& read, float (&v)[8]) const {
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = 0.0f;
#pragma unroll
        for (u32 tap = 0; tap < WINDOW * WINDOW; tap++) {
            float x[8];
            unpack(read.x[tap / WINDOW][tap % WINDOW], x);
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] += x[j];
        }
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] /= (float)(WINDOW * WINDOW);
    }
};

// Pixel of each 2 × 2 window that was its maximum.
struct GatherWindow {
    static const u32 PLACES = 2;
    struct Operands {
        WindowPixels<2> pixels;
        Words2 offsets;
    };
    const PoolParams& p;
    DEVICE_MEMBER Operands load_operands(const Place& at) const {
        Operands read;
        read.offsets = *(const Words2*)(p.at + window_eights_at(p, at, at.row, at.col));
        read.pixels.load(p, at, 0);
        return read;
    }
    DEVICE_MEMBER void store(const Operands& read, const Place& at, const Epilogue& e, StatsAccumulator& stats) const {
        u32 offsets[8];
        float v[8];
        unpack_offsets(read.offsets, offsets);
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] = 0.0f;
#pragma unroll
        for (u32 tap = 0; tap < 4; tap++) {
            float x[8];
            unpack(read.pixels.x[tap / 2][tap % 2], x);
#pragma unroll
            for (u32 j = 0; j < 8; j++) v[j] = offsets[j] == tap ? x[j] : v[j];
        }
        store_vec8(p.y, e, stats, window_eights_at(p, at, at.row, at.col), v);
    }
};

// Value and offset of the maximum of a window; the value is 0 if there is no such window.
struct WindowValue {
    Words4 x;
    Words2 offsets;
    DEVICE_MEMBER void load(const PoolParams& p, const Place& at, u32 row, u32 col) {
        x = Words4{0, 0, 0, 0}, offsets = Words2{0, 0};
        if (row >= p.rows || col >= p.cols) return;
        const u32 i = window_eights_at(p, at, row, col);
        x = *(const Words4*)((const u16*)p.x + i);
        if (p.max) offsets = *(const Words2*)(p.at + i);
    }
    // Adds the part of the pixel at `offset` in a window of `area` pixels.
    DEVICE_MEMBER void add_to(const PoolParams& p, u32 offset, u32 area, float (&v)[8]) const {
        float value[8];
        u32 at[8];
        unpack(x, value);
        unpack_offsets(offsets, at);
#pragma unroll
        for (u32 j = 0; j < 8; j++) v[j] += !p.max ? value[j] / (float)area : at[j] == offset ? value[j] : 0.0f;
    }
};

// Gradients of the pixels of 2 × 2 windows. A place is a window, or pixels in its stead at the end of a row or an image.
struct ScatterWindow {
    static const u32 PLACES = 2;
    typedef WindowValue Operands;
    const PoolParams& p;
    DEVICE_MEMBER Operands load_operands(const Place& at) const {
        Operands read;
        read.load(p, at, at.row, at.col);
        return read;
    }
    DEVICE_MEMBER void store(const Operands& read, const Place& at, const Epilogue& e, StatsAccumulator& stats) const {
        const bool has_next = 2 * at.col + 1 < p.image_width;
#pragma unroll
        for (u32 a = 0; a < 2; a++) {
            const u32 row = 2 * at.row + a, i = image_eights_at(p, at, row, 2 * at.col);
            if (row >= p.image_height) break;
            float pair[16];
#pragma unroll
            for (u32 b = 0; b < 2; b++) {
                float v[8] = {};
                read.add_to(p, 2 * a + b, 4, v);
#pragma unroll
                for (u32 j = 0; j < 8; j++) pair[8 * b + j] = v[j];
            }
            if (has_next) {
                const u64 both[2] = {i, i + p.channels};
                store_vec8s(p.y, e, stats, both, pair);
            } else {
                float v[8];
#pragma unroll
                for (u32 j = 0; j < 8; j++) v[j] = pair[j];
                store_vec8(p.y, e, stats, i, v);
            }
        }
    }
};

// Gradient of each pixel that up to four windows of 3 × 3 contain, added in the windows' order.
struct ScatterPixel {
    static const u32 PLACES = 1;
    struct Operands {
        WindowValue windows[2][2];
    };
    const PoolParams& p;
    DEVICE_MEMBER Operands load_operands(const Place& at) const {
        Operands read;
#pragma unroll
        for (u32 a = 0; a < 2; a++) {
#pragma unroll
            for (u32 b = 0; b < 2; b++) read.windows[a][b].load(p, at, window_over(at.row + p.pad[0], a), window_over(at.col + p.pad[1], b));
        }
        return read;
    }
    DEVICE_MEMBER void store(const Operands& read, const Place& at, const Epilogue& e, StatsAccumulator& stats) const {
        float v[8] = {};
#pragma unroll
        for (u32 a = 0; a < 2; a++) {
#pragma unroll
            for (u32 b = 0; b < 2; b++) {
                const u32 row = at.row + p.pad[0], col = at.col + p.pad[1];
                const u32 offset = (row - 2 * window_over(row, a)) * 3 + col - 2 * window_over(col, b);
                read.windows[a][b].add_to(p, offset, 9, v);
            }
        }
        store_vec8(p.y, e, stats, image_eights_at(p, at, at.row, at.col), v);
    }

private:
    // Returns the number of the first or the second window over a position, or one that does not exist. Positions of even
    // distance from the start are in two windows, except for the first.
    static DEVICE_MEMBER u32 window_over(u32 position, u32 which) {
        const u32 last = position / 2;
        return which == 1 ? last : position % 2 == 0 ? last - 1 : 0xFFFFFFFFu;
    }
};

DEVICE PixelGrid window_grid(const PoolParams& p) { return PixelGrid{p.rows, p.cols, p.channels / 8}; }

KERNEL(pool_2x2, PoolParams) { store_places<PoolWindow<2>>(p, window_grid(p), p.len / 8); }
KERNEL(pool_3x3, PoolParams) { store_places<PoolWindow<3>>(p, window_grid(p), p.len / 8); }
KERNEL(unpool_gather_2x2, PoolParams) { store_places<GatherWindow>(p, window_grid(p), p.len / 8); }
KERNEL(unpool_scatter_2x2, PoolParams) {
    const PixelGrid grid = {(p.image_height + 1) / 2, (p.image_width + 1) / 2, p.channels / 8};
    const u32 images = p.len / (p.image_height * p.image_width * p.channels);
    store_places<ScatterWindow>(p, grid, images * grid.rows * grid.cols * grid.eights);
}
KERNEL(unpool_scatter_3x3, PoolParams) {
    store_places<ScatterPixel>(p, PixelGrid{p.image_height, p.image_width, p.channels / 8}, p.len / 8);
}
