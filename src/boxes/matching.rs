//! Which default boxes are for which truth.

use super::{Corners, overlap};

/// The truth of each default box (Liu et al. 2016, section 2.2): of those that it overlaps by at least `threshold`, the one
/// that it overlaps most. The default box that a truth overlaps most is its own, however little that is; of two truths
/// with one such box, the last has it.
#[must_use]
pub fn matches(truths: &[Corners], defaults: &[Corners], threshold: f32) -> Vec<Option<usize>> {
    let mut best = vec![(None, threshold); defaults.len()];
    let mut own = Vec::with_capacity(truths.len());
    for (i, &truth) in truths.iter().enumerate() {
        let mut most = (None, f32::NEG_INFINITY);
        for (place, (&default, best)) in defaults.iter().zip(&mut best).enumerate() {
            let found = overlap(truth, default);
            if found > most.1 {
                most = (Some(place), found);
            }
            if found > best.1 || found == best.1 && best.0.is_none() {
                *best = (Some(i), found);
            }
        }
        own.push(most.0);
    }
    let mut matched: Vec<Option<usize>> = best.into_iter().map(|(truth, _)| truth).collect();
    for (truth, place) in own.into_iter().enumerate() {
        if let Some(of) = place.and_then(|place| matched.get_mut(place)) {
            *of = Some(truth);
        }
    }
    matched
}
