// Shared parts of pooling and unpooling: shapes, positions, offsets of maxima in their windows. Channels are innermost, so
// eight of them are results of windows at the same position.

struct PoolParams {
    Store y;
    const void* x;
    // Offsets of maxima in their windows, or null.
    u8* at;
    u32 type;
    u32 len;
    // Size of the unpooled image, and number of windows along each axis.
    u32 image_height, image_width, channels;
    u32 rows, cols;
    u32 window[2], stride[2], pad[2];
    u32 max;
};

struct Pixel {
    u32 image, row, col, channel;
};

// Returns the position of element `i` of images of `rows` rows and `cols` columns.
DEVICE Pixel pixel_of(u32 i, u32 rows, u32 cols, u32 channels) {
    const u32 pixel = i / channels, line = pixel / cols;
    return Pixel{line / rows, line % rows, pixel % cols, i - pixel * channels};
}

DEVICE u32 element_index(const PoolParams& p, u32 image, u32 row, u32 col, u32 channel) {
    return ((image * p.image_height + row) * p.image_width + col) * p.channels + channel;
}

template <int N>
DEVICE void unpack_offsets(const Words2& words, u32 (&offsets)[N]) {
#pragma unroll
    for (int j = 0; j < N; j++) offsets[j] = (j < 4 ? words.x : words.y) >> 8 * (j % 4) & 0xFF;
}

template <int N>
DEVICE void load_offsets(const u8* at, u32 i, u32 (&offsets)[N]) {
    if (N == 1) {
        offsets[0] = at[i];
        return;
    }
    unpack_offsets(*(const Words2*)(at + i), offsets);
}

template <int N>
DEVICE void store_offsets(u8* at, u32 i, const u32 (&offsets)[N]) {
    if (N == 1) {
        at[i] = (u8)offsets[0];
        return;
    }
    Words2 words = {0, 0};
#pragma unroll
    for (int j = 0; j < N; j++) (j < 4 ? words.x : words.y) |= offsets[j] << 8 * (j % 4);
    *(Words2*)(at + i) = words;
}
