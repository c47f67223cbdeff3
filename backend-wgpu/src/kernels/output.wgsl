// What products have in common: their sizes, how they are cut, and where results go.

/// m, n, k of each of `batch` products; where result (z, r, c) goes: z · stride + r · lead + c; its bias:
/// z · bias_stride + c. With several slices each sums `depth` of k, into `slices` as [slice, z, m, n].
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
