//! Anchors.

use super::Corners;

/// The boxes that a network of proposals begins with: at each place of a map of features, row by row, one for each ratio
/// of height to width and each size, the root of its area, in pixels (Ren et al. 2015, section 3.1.1). The first place
/// stands for the image's first corner, the next one `stride` pixels on; corners are whole pixels around that, and may lie
/// outside the image. As torchvision's `AnchorGenerator`.
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
