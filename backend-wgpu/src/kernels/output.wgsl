// Shape, split-K and destination, which all GEMM kernels share.

/// Result (z, r, c) of `batch` matrices is stored at z · stride + r · ldy + c, with the bias at z · bias_stride + c. With
/// several splits, each sums `split_len` of k into partial sums [split, z, m, n].
struct Output {
    m: u32,
    n: u32,
    k: u32,
    batch: u32,
    stride: u32,
    ldy: u32,
    bias_stride: u32,
    /// The type of the bias, or NO_BIAS.
    bias: u32,
    split_len: u32,
    splits: u32,
    tiles_m: u32,
    tiles_n: u32,
}

const NO_BIAS: u32 = 0xffffffffu;
