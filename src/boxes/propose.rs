//! From what a network says of anchors to proposals.

use super::{Corners, clipped, decode_with, larger, nms};

/// Which proposals are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Propose {
    /// Of an image so many anchors, the likeliest, before non-maximum suppression.
    pub candidates: usize,
    /// What overlaps a likelier one by more than this is left out.
    pub overlap: f32,
    /// Of an image so many, the likeliest.
    pub most: usize,
    /// What is narrower or lower than this is left out.
    pub smallest: f32,
}

/// Proposals in one image, the likeliest first: of how likely each anchor is something, and of codes `[anchors, 4]`, which
/// differ from it as [`encode_with`](super::encode_with) says with ones (Ren et al. 2015, section 3.1). They lie within
/// `limits`, right and bottom of the image. A network that answers NaN proposes nothing.
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
