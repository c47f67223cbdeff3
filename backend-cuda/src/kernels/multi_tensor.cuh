// Several tensors in one launch. They are cut into pieces, which blocks take in turn; each tensor knows the number of
// its first piece.

// The last of `count` tensors whose first piece is not beyond `piece`.
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
