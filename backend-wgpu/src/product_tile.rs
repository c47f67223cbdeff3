//! Tile of results that one workgroup of the SIMT kernels computes.

use core::fmt;
use gradscale_core::ops::GemmShape;

/// Rows or columns up to which a tile with 16 of them is used, because the others would be at least half empty.
const SMALL_TILE_MAX: u32 = 32;
/// Minimum number of workgroups for a larger tile. Below it more, smaller workgroups keep more compute units busy: about
/// one for each unit of the largest GPUs. An estimate for all devices, not measured.
const MIN_LARGE_TILES: u64 = 128;

/// Tile of results of a workgroup, named by its rows and columns. All tiles add in the same order, so results do not depend
/// on the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductTile {
    /// One result for each invocation, for few rows or columns.
    Side16,
    /// 4×4 results for each invocation, for many rows of few columns, such as the places of an image by its classes.
    Rows256,
    /// 4×4 results for each invocation.
    Side64,
    /// 8×4 results for each invocation.
    Rows128,
    /// 4×8 results for each invocation.
    Columns128,
    /// 8×8 results for each invocation.
    Side128,
}

impl ProductTile {
    /// All tiles, the largest first.
    pub const ALL: [Self; 6] =
        [Self::Side128, Self::Rows128, Self::Columns128, Self::Rows256, Self::Side64, Self::Side16];

    /// Returns the rows and columns of results.
    #[must_use]
    pub const fn sides(self) -> [u32; 2] {
        match self {
            Self::Side16 => [16, 16],
            Self::Rows256 => [256, 16],
            Self::Side64 => [64, 64],
            Self::Rows128 => [128, 64],
            Self::Columns128 => [64, 128],
            Self::Side128 => [128, 128],
        }
    }

    /// Returns the depth of the tiles in workgroup memory, in which each operand has at most 256 vectors of four.
    pub(crate) const fn depth(self) -> u32 {
        match self {
            Self::Side16 => 64,
            Self::Rows256 => 4,
            Self::Side64 => 16,
            Self::Rows128 | Self::Columns128 | Self::Side128 => 8,
        }
    }

    /// Returns the number of invocations along the columns.
    pub(crate) const fn lane_columns(self) -> u32 {
        match self {
            Self::Rows256 => 4,
            Self::Side16 | Self::Side64 | Self::Rows128 | Self::Columns128 | Self::Side128 => 16,
        }
    }

    /// Returns true if there is a variant for aligned operands. Where memory is the bound, any alignment is as fast, and
    /// each variant of a kernel takes time to compile.
    pub(crate) const fn has_aligned_variant(self) -> bool {
        match self {
            Self::Side16 | Self::Rows256 => false,
            Self::Side64 | Self::Rows128 | Self::Columns128 | Self::Side128 => true,
        }
    }

    /// Returns the number of tiles along rows and columns.
    pub(crate) fn counts(self, GemmShape { m, n, .. }: GemmShape) -> [u32; 2] {
        let [rows, columns] = self.sides();
        [m.div_ceil(rows), n.div_ceil(columns)]
    }

    /// Returns the tile for a shape: the preferred one if the shape fills it and leaves enough workgroups, else the largest
    /// below it that does. `copies` is the number of products of this shape, those of a batch and of split sums.
    pub(crate) fn choose(preferred: Self, shape: GemmShape, copies: u32) -> Self {
        let GemmShape { m, n, .. } = shape;
        let are_many = |tile: &Self| {
            tile.counts(shape).into_iter().map(u64::from).product::<u64>() * u64::from(copies) >= MIN_LARGE_TILES
        };
        if m <= SMALL_TILE_MAX || n <= SMALL_TILE_MAX {
            let is_tall = m >= 256 && n <= SMALL_TILE_MAX && are_many(&Self::Rows256);
            return if is_tall { Self::Rows256 } else { Self::Side16 };
        }
        let fits = |tile: &Self| {
            let [rows, columns] = tile.sides();
            (rows <= 64 || m > rows / 2) && (columns <= 64 || n > columns / 2) && are_many(tile)
        };
        preferred.descending().iter().copied().find(fits).unwrap_or(Self::Side64)
    }

    /// Returns this tile and those that replace it, in order, where a shape does not fill it. 64×64 replaces all.
    const fn descending(self) -> &'static [Self] {
        match self {
            Self::Side128 => &[Self::Side128, Self::Rows128, Self::Columns128],
            Self::Rows128 => &[Self::Rows128, Self::Columns128],
            Self::Columns128 => &[Self::Columns128, Self::Rows128],
            Self::Rows256 => &[Self::Rows256],
            Self::Side64 => &[Self::Side64],
            Self::Side16 => &[Self::Side16],
        }
    }
}

impl fmt::Display for ProductTile {
    /// Writes the rows and columns, for example `128x64`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, columns] = self.sides();
        write!(f, "{rows}x{columns}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_filled_and_leave_enough_workgroups() {
        let choose_from = |preferred, m, n, copies| ProductTile::choose(preferred, GemmShape { m, n, k: 64 }, copies);
        let choose = |m, n, copies| choose_from(ProductTile::Side128, m, n, copies);
        assert_eq!(choose(32, 4096, 1), ProductTile::Side16);
        assert_eq!(choose(4096, 4096, 1), ProductTile::Side128);
        // 64 tiles of 128×128 would leave half of a large GPU idle.
        assert_eq!(choose(1024, 1024, 1), ProductTile::Rows128);
        assert_eq!(choose(1024, 1024, 2), ProductTile::Side128);
        assert_eq!(choose(512, 512, 1), ProductTile::Side64);
        // Convolutions with 64 channels: places by outputs, and outputs by taps.
        assert_eq!(choose(2_000_000, 64, 1), ProductTile::Rows128);
        assert_eq!(choose(64, 3136, 8), ProductTile::Columns128);
        // The classes of a segmentation.
        assert_eq!(choose(2_000_000, 11, 1), ProductTile::Rows256);
        assert_eq!(choose(11, 2_000_000, 1), ProductTile::Side16);
        for preferred in ProductTile::ALL {
            // Large products use the preferred tile; where most of it would be empty, smaller ones are used.
            assert_eq!(choose_from(preferred, 4096, 4096, 1), preferred);
            assert_eq!(choose_from(preferred, 32, 4096, 1), ProductTile::Side16);
            let few = if preferred == ProductTile::Side16 { preferred } else { ProductTile::Side64 };
            assert_eq!(choose_from(preferred, 256, 256, 1), few, "{preferred}");
        }
        assert_eq!(choose_from(ProductTile::Rows128, 64, 3136, 8), ProductTile::Columns128);
        assert_eq!(choose_from(ProductTile::Columns128, 2_000_000, 64, 1), ProductTile::Rows128);
        assert_eq!(choose_from(ProductTile::Rows256, 128, 4096, 99), ProductTile::Side64);
    }

    #[test]
    fn tiles_fit_into_workgroup_memory() {
        for tile in ProductTile::ALL {
            assert!(tile.sides().iter().all(|side| side * tile.depth() / 4 <= 256), "{tile:?}");
        }
    }
}
