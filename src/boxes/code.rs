//! Encoding of a box as its difference from a default box.

use super::Corners;

/// Divisors of a code: one for centres, one for the logarithms of sizes.
pub type Variances = [f32; 2];

/// Variances of SSD, which Faster R-CNN also uses for its regions.
pub(super) const VARIANCES: Variances = [0.1, 0.2];

/// Maximum logarithm of a decoded size ratio, so that no exponential overflows: ln(1000 / 16), as in torchvision.
const MAX_LOG_SIZE: f32 = 4.135_166_6;

/// Converts a box from its corners to centre, width and height.
fn centred([left, top, right, bottom]: Corners) -> [f32; 4] {
    let (width, height) = (right - left, bottom - top);
    [left + 0.5 * width, top + 0.5 * height, width, height]
}

/// Encodes a box relative to a default box: the distance of their centres in units of its size, divided by 0.1, and the
/// logarithms of the ratios of their sizes, divided by 0.2 (Liu et al. 2016, equation 2, with the variances of its
/// implementation). Both boxes must have an area.
#[must_use]
pub fn encode(truth: Corners, default: Corners) -> [f32; 4] {
    encode_with(truth, default, VARIANCES)
}

/// Encodes a box like [`encode`], with other divisors. Divisors of 1 give Faster R-CNN's codes of anchors (Ren et al.
/// 2015, equation 2).
#[must_use]
pub fn encode_with(truth: Corners, default: Corners, [of_centre, of_size]: Variances) -> [f32; 4] {
    let ([x, y, width, height], [at_x, at_y, wide, high]) = (centred(truth), centred(default));
    [
        (x - at_x) / wide / of_centre,
        (y - at_y) / high / of_centre,
        (width / wide).ln() / of_size,
        (height / high).ln() / of_size,
    ]
}

/// Decodes a code of [`encode`] to corners. No side is longer than 62.5 times the default box's.
#[must_use]
pub fn decode(code: [f32; 4], default: Corners) -> Corners {
    decode_with(code, default, VARIANCES)
}

/// Decodes the offsets of [`encode_with`] relative to a default box, and returns the corners of the box.
#[must_use]
pub fn decode_with([x, y, width, height]: [f32; 4], default: Corners, [of_centre, of_size]: Variances) -> Corners {
    let [at_x, at_y, wide, high] = centred(default);
    let (x, y) = (at_x + x * of_centre * wide, at_y + y * of_centre * high);
    let [width, height] =
        [(width, wide), (height, high)].map(|(code, side)| (code * of_size).min(MAX_LOG_SIZE).exp() * side);
    [x - 0.5 * width, y - 0.5 * height, x + 0.5 * width, y + 0.5 * height]
}
