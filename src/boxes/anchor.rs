//! Anchors of a region proposal network.

use super::Corners;

/// Computes the anchors of a region proposal network (Ren et al. 2015, section 3.1.1). Every position of a feature map,
/// row by row, has one anchor for each ratio of height to width and each size. A size is the root of the area, in
/// pixels. The first position belongs to the image's first corner, and adjacent positions are `stride` pixels apart.
/// Corners are rounded to whole pixels around the position and may be outside the image. The result equals that of
/// torchvision's `AnchorGenerator`.
///
/// ```
/// use gradscale::boxes::anchors;
/// let all = anchors([2, 3], [16, 16], &[32.0], &[1.0, 4.0]);
/// assert_eq!(all.len(), 2 * 3 * 2);
/// assert_eq!(all[..2], [[-16.0, -16.0, 16.0, 16.0], [-8.0, -32.0, 8.0, 32.0]]);
/// assert_eq!(all[2], [0.0, -16.0, 32.0, 16.0]);
/// ```
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "pixels of an image")]
pub fn anchors(map: [usize; 2], stride: [usize; 2], sizes: &[f32], ratios: &[f32]) -> Vec<Corners> {
    let around = ratios.iter().flat_map(|ratio| {
        let high = ratio.sqrt();
        sizes.iter().map(move |size| [size / high, size * high].map(|side| (side / 2.0).round_ties_even()))
    });
    let around: Vec<[f32; 2]> = around.collect();
    let mut all = Vec::with_capacity(map[0] * map[1] * around.len());
    for row in 0..map[0] {
        for column in 0..map[1] {
            let [y, x] = [(row * stride[0]) as f32, (column * stride[1]) as f32];
            all.extend(around.iter().map(|[wide, high]| [x - wide, y - high, x + wide, y + high]));
        }
    }
    all
}
