// Multi-tensor apply: one launch for several tensors. They are divided into chunks, which blocks process in turn. Each
// tensor stores the number of its first chunk.

// Returns the last of `count` tensors whose first chunk is not after `chunk`, by binary search.
template <class T>
DEVICE u32 find_tensor(const T* tensors, u32 count, u32 chunk) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (tensors[middle].first_chunk <= chunk) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}
