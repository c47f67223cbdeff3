//! Tiled GEMM for matrices and convolutions: tile, split-K, and the reduction of the splits.

use crate::{
    Error, Memory, Wgpu,
    kernel::{self, Kernel},
    launch::{KernelLaunch, strided_workgroups},
    product_tile::ProductTile,
};
use gradscale_core::{
    backend::{Buffer, Store},
    ops::GemmShape,
};
use std::sync::atomic::Ordering::Relaxed;

/// Side of the results by whose number sums are split: that of a tile of 16 or 64, whichever tile computes them.
const SPLIT_SIDES: [u32; 2] = [16, 64];
/// Rows or columns up to which a split counts tiles of 16.
const SMALL_SPLIT_MAX: u32 = 32;
/// Minimum number of workgroups, below which sums are split. Fewer leave compute units idle. An estimate for all devices,
/// not measured.
const MIN_WORKGROUPS: u32 = 256;
/// Type of a missing bias, as in output.wgsl.
const NO_BIAS: u32 = u32::MAX;
/// Multiple of the terms of a split, so that every tile begins with a whole step. The deepest is 64.
const SPLIT_MULTIPLE: u32 = 64;
/// Minimum number of terms of a split, so that the reduction is small compared with the multiplications.
const MIN_SPLIT_K: u32 = 1024;

/// Batched GEMM. Result (z, r, c) is stored at z · stride + r · ldy + c, with the bias at z · `bias_stride` + c.
pub(crate) struct TiledGemm<'a> {
    pub kernel: &'static Kernel,
    pub operands: [&'a Memory; 2],
    pub bias: Option<&'a Memory>,
    /// True for each operand, a and b, that is contiguous along k.
    pub k_contiguous: [bool; 2],
    pub shape: GemmShape,
    pub batch: u32,
    /// True if every vector of four neighbours of both operands starts at a multiple of four elements, k not considered.
    pub aligned: bool,
    /// Number of elements of a and b.
    pub lens: [u64; 2],
    pub stride: u32,
    pub ldy: u32,
    pub bias_stride: u32,
    /// Constants of the kernel beyond those of all tiled GEMMs, for a depth of tiles, and its parameters.
    pub constants: &'a dyn Fn(u32) -> Vec<(&'static str, u32)>,
    pub params: &'a [u32],
}

impl TiledGemm<'_> {
    /// Returns the number of terms of each split.
    ///
    /// A GEMM of few results and many terms is split. The split depends on the shape alone, because it decides the order of
    /// sums. Partial sums take at most a sixteenth of the operands' bytes.
    fn split_len(&self) -> u32 {
        let GemmShape { m, n, k } = self.shape;
        let side = SPLIT_SIDES[usize::from(m > SMALL_SPLIT_MAX && n > SMALL_SPLIT_MAX)];
        let tiles = [m, n].map(|size| u64::from(size.div_ceil(side))).iter().product::<u64>() * u64::from(self.batch);
        if tiles >= u64::from(MIN_WORKGROUPS) || k < 2 * MIN_SPLIT_K {
            return k.max(1);
        }
        let bytes = |(len, memory): (u64, &Memory)| len * memory.dtype().size() as u64;
        let bytes: u64 = self.lens.into_iter().zip(self.operands).map(bytes).sum();
        let results = 4 * u64::from(m) * u64::from(n) * u64::from(self.batch);
        let max_by_bytes = bytes / 16 / results.max(1);
        let max_by_workgroups = u64::from(MIN_WORKGROUPS).div_ceil(tiles.max(1)).min(u64::from(k / MIN_SPLIT_K));
        let splits = u32::try_from(max_by_workgroups.min(max_by_bytes).max(1)).unwrap_or(1);
        if splits == 1 { k } else { k.div_ceil(splits).next_multiple_of(SPLIT_MULTIPLE) }
    }
}

/// Returns the member `bias` of `Output` in output.wgsl.
pub(crate) fn bias_type(bias: Option<&Memory>) -> u32 {
    bias.map_or(NO_BIAS, |bias| bias.dtype().code())
}

impl Wgpu {
    pub(crate) fn run_tiled_gemm(&self, p: &TiledGemm<'_>, y: &Store<'_, Self>) -> Result<(), Error> {
        let GemmShape { m, n, k } = p.shape;
        if m == 0 || n == 0 || p.batch == 0 {
            return Ok(());
        }
        self.launches_by_simt.fetch_add(1, Relaxed);
        let split_len = p.split_len();
        let splits = k.div_ceil(split_len).max(1);
        let tile =
            self.product_tile.unwrap_or_else(|| ProductTile::choose(self.tile_choice.tile, p.shape, p.batch * splits));
        let ([rows, columns], [tiles_m, tiles_n]) = (tile.sides(), tile.counts(p.shape));
        let aligned = p.aligned && k.is_multiple_of(tile.depth()) && tile.has_aligned_variant();
        let bias = bias_type(p.bias);
        let output = [m, n, k, p.batch, p.stride, p.ldy, p.bias_stride, bias, split_len, splits, tiles_m, tiles_n];
        let bytes =
            if splits > 1 { 4 * u64::from(splits) * u64::from(p.batch) * u64::from(m) * u64::from(n) } else { 16 };
        let parts = self.split_k_partials(bytes)?;
        let [a, b] = p.operands;
        let mut call = KernelLaunch::new(p.kernel)
            .constant("ROWS", rows)
            .constant("COLUMNS", columns)
            .constant("K_TILE", tile.depth())
            .constant("LANE_COLUMNS", tile.lane_columns())
            .constant("ALIGNED", aligned.into())
            .constant("A_K_CONTIGUOUS", p.k_contiguous[0].into())
            .constant("B_K_CONTIGUOUS", p.k_contiguous[1].into())
            .params(output)
            .params(p.params.iter().copied());
        for (name, value) in (p.constants)(tile.depth()) {
            call = call.constant(name, value);
        }
        // Without a bias, any memory is bound.
        let call = call.operand(a).operand(b).optional_operand(p.bias, a).buffer(8, &parts);
        let groups = tiles_m * tiles_n * p.batch * splits;
        if splits == 1 {
            return self.launch(call.store(y), groups);
        }
        self.launch(call.store_later(y), groups)?;
        let call =
            KernelLaunch::new(&kernel::SPLIT_K_REDUCE).params(output).optional_operand(p.bias, a).buffer(8, &parts);
        self.launch(call.store(y), strided_workgroups(p.batch * m * n))
    }
}
