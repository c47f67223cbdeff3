//! Decoding of a region proposal network's outputs to proposals.

use super::{Corners, clipped, decode_with, larger, nms};

/// Limits for the selection of proposals, before and after non-maximum suppression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Propose {
    /// Maximum number of the most likely anchors of an image before non-maximum suppression.
    pub candidates: usize,
    /// Maximum overlap with a more likely proposal; proposals with more are dropped.
    pub overlap: f32,
    /// Maximum number of the most likely proposals in an image.
    pub most: usize,
    /// Minimum width and height of a proposed box.
    pub smallest: f32,
}

/// Computes the proposals in one image, most likely first (Ren et al. 2015, section 3.1). The inputs are the
/// probability of an object at each anchor, and codes `[anchors, 4]` as of [`encode_with`](super::encode_with) with
/// divisors of 1. Corners are clipped to `limits`, right and bottom of the image. A NaN from the network proposes
/// nothing.
#[must_use]
pub fn proposals(
    likely: &[f32], codes: &[[f32; 4]], anchors: &[Corners], limits: [f32; 2], keep: &Propose,
) -> Vec<Corners> {
    let mut places: Vec<usize> = (0..likely.len().min(codes.len()).min(anchors.len())).collect();
    places.sort_by(|&a, &b| likely[b].total_cmp(&likely[a]));
    places.truncate(keep.candidates);
    let one = |place: usize| (clipped(decode_with(codes[place], anchors[place], [1.0; 2]), limits), likely[place]);
    let (boxes, scores): (Vec<Corners>, Vec<f32>) = places
        .into_iter()
        .map(one)
        .filter(|(corners, score)| larger(*corners, keep.smallest) && !score.is_nan())
        .unzip();
    let mut kept = nms(&boxes, &scores, keep.overlap);
    kept.truncate(keep.most);
    kept.into_iter().map(|place| boxes[place]).collect()
}
