//! Default boxes of SSD.

use super::Corners;

/// Default boxes of one feature map: every position has the same ones around its centre.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// Number of rows and columns of the feature map.
    pub size: [usize; 2],
    /// Number of positions that would fill an image's side (side / stride), for rows and columns.
    pub places: [f64; 2],
    /// Size of a square box as a fraction of the image's side, for this map and the next.
    pub scales: [f64; 2],
    /// Aspect ratios of boxes besides squares. Each ratio has a wide and a tall box.
    pub ratios: Vec<f64>,
}

impl Grid {
    /// Returns the number of default boxes at each position: two squares, and two for each ratio.
    #[must_use]
    pub const fn boxes(&self) -> usize {
        2 + 2 * self.ratios.len()
    }

    /// Returns widths and heights of the default boxes at one position of the map.
    fn sizes(&self) -> Vec<[f64; 2]> {
        let [scale, next] = self.scales;
        let between = (scale * next).sqrt();
        let mut sizes = vec![[scale; 2], [between; 2]];
        for ratio in self.ratios.iter().map(|ratio| ratio.sqrt()) {
            sizes.extend([[scale * ratio, scale / ratio], [scale / ratio, scale * ratio]]);
        }
        sizes.iter().map(|size| size.map(|side| side.clamp(0.0, 1.0))).collect()
    }
}

/// Computes the boxes of all maps, one map after the other, row by row, with the boxes of a position adjacent (Liu et
/// al. 2016, section 2.2). Coordinates are fractions of the image; boxes may extend beyond it.
#[must_use]
pub fn default_boxes(grids: &[Grid]) -> Vec<Corners> {
    let mut all = Vec::new();
    for grid in grids {
        let sizes = grid.sizes();
        for row in 0..grid.size[0] {
            for column in 0..grid.size[1] {
                #[expect(clippy::cast_precision_loss, reason = "places of a map")]
                let [y, x] =
                    [(row, 0), (column, 1)].map(|(at, axis): (usize, usize)| (at as f64 + 0.5) / grid.places[axis]);
                let corners = |[width, height]: &[f64; 2]| {
                    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
                    [x - 0.5 * width, y - 0.5 * height, x + 0.5 * width, y + 0.5 * height].map(|side| side as f32)
                };
                all.extend(sizes.iter().map(corners));
            }
        }
    }
    all
}
