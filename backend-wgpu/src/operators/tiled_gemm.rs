//! Products by the SIMT engine: tile and alignment.

use crate::{
    Error, Wgpu,
    launch::KernelLaunch,
    operators::product::{Product, Splits},
    product_tile::ProductTile,
};
use gradscale_core::{backend::Store, ops::GemmShape};
use std::sync::atomic::Ordering::Relaxed;

/// Side of the results by whose number sums are split: that of a tile of 16 or 64, whichever tile computes them.
const SPLIT_SIDES: [u32; 2] = [16, 64];
/// Rows or columns up to which a split counts tiles of 16.
const SMALL_SPLIT_MAX: u32 = 32;

impl Product<'_> {
    /// Returns the splits of sums, which depend on the shape alone, because all tiles have the same bits.
    fn splits_of_tiles(&self) -> Splits {
        let GemmShape { m, n, .. } = self.shape;
        let side = SPLIT_SIDES[usize::from(m > SMALL_SPLIT_MAX && n > SMALL_SPLIT_MAX)];
        self.splits([m, n].map(|size| u64::from(size.div_ceil(side))).iter().product::<u64>() * u64::from(self.batch))
    }
}

impl Wgpu {
    pub(crate) fn run_tiles(&self, p: &Product<'_>, y: &Store<'_, Self>) -> Result<(), Error> {
        self.launches_by_simt.fetch_add(1, Relaxed);
        let splits = p.splits_of_tiles();
        let tile = self
            .product_tile
            .unwrap_or_else(|| ProductTile::choose(self.tile_choice.tile, p.shape, p.batch * splits.count));
        let ([rows, columns], tiles) = (tile.sides(), tile.counts(p.shape));
        let aligned = p.aligned && p.shape.k.is_multiple_of(tile.depth()) && tile.has_aligned_variant();
        let [a, b] = p.operands;
        let mut call = KernelLaunch::new(p.loader.tile_kernel())
            .constant("ROWS", rows)
            .constant("COLUMNS", columns)
            .constant("K_TILE", tile.depth())
            .constant("LANE_COLUMNS", tile.lane_columns())
            .constant("ALIGNED", aligned.into())
            .constant("A_K_CONTIGUOUS", p.k_contiguous[0].into())
            .constant("B_K_CONTIGUOUS", p.k_contiguous[1].into())
            .params(p.output_words(splits, tiles))
            .params(p.params.iter().copied());
        for (name, value) in p.loader.constants(tile.depth()) {
            call = call.constant(name, value);
        }
        // Without a bias, any memory is bound.
        let call = call.operand(a).operand(b).optional_operand(p.bias, a);
        self.launch_product(p, call, splits, tiles, y)
    }
}
