//! Non-maximum suppression.

use super::{Corners, overlap};

/// Selects boxes by non-maximum suppression and returns their indices, best first. A box is dropped if it overlaps a
/// better remaining box by more than `threshold`. Of equal scores, the first box counts as better. A box is kept if its
/// overlap is NaN, as for two boxes without area. A score that is NaN counts as the best, as in torchvision.
#[must_use]
pub fn nms(boxes: &[Corners], scores: &[f32], threshold: f32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..boxes.len().min(scores.len())).collect();
    let key = |i: usize| if scores[i].is_nan() { f32::INFINITY } else { scores[i] };
    order.sort_by(|&a, &b| key(b).total_cmp(&key(a)));
    let mut kept: Vec<usize> = Vec::new();
    for i in order {
        if kept.iter().all(|&better| {
            overlap(boxes[better], boxes[i]).partial_cmp(&threshold) != Some(std::cmp::Ordering::Greater)
        }) {
            kept.push(i);
        }
    }
    kept
}
