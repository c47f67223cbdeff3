//! Matching of default boxes and anchors to ground-truth boxes.

use super::{Corners, overlap};

/// Matches a truth to each default box (Liu et al. 2016, section 2.2): of the truths that it overlaps by at least
/// `threshold`, the one with the largest overlap. In addition, each truth gets the default box with the largest
/// overlap, however small. If two truths have the same such box, the last truth gets it.
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

/// Training target of a default box or anchor: see [`assigned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// The box is to predict the truth with this index.
    Truth(usize),
    /// The box matches no object, and is trained as background.
    Background,
    /// The box is ignored in training, because it overlaps a truth too much for background and too little for a target.
    Neither,
}

/// Assigns a target to each box (Ren et al. 2015, section 3.1.2). A box is assigned to the truth that it overlaps most,
/// the first of equal ones, if the overlap is at least `least`. It is background if the overlap is less than
/// `background`. If each truth must have a box, the boxes that overlap it most are assigned to a truth in any case,
/// unless nothing overlaps it. The result equals that of torchvision's `Matcher`.
#[must_use]
pub fn assigned(
    truths: &[Corners], boxes: &[Corners], [background, least]: [f32; 2], each_has_one: bool,
) -> Vec<Assigned> {
    let mut most = vec![0.0f32; truths.len()];
    let mut best = Vec::with_capacity(boxes.len());
    for &corners in boxes {
        let mut own = (None, f32::NEG_INFINITY);
        for ((i, &truth), most) in truths.iter().enumerate().zip(&mut most) {
            let found = overlap(truth, corners);
            if found > own.1 {
                own = (Some(i), found);
            }
            *most = most.max(found);
        }
        best.push(own);
    }
    let one = |(&corners, &(truth, found)): (&Corners, &(Option<usize>, f32))| {
        let nearest = || truths.iter().zip(&most).any(|(&truth, &most)| most > 0.0 && overlap(truth, corners) == most);
        match truth {
            Some(truth) if found >= least || each_has_one && nearest() => Assigned::Truth(truth),
            Some(_) if found >= background => Assigned::Neither,
            Some(_) | None => Assigned::Background,
        }
    };
    boxes.iter().zip(&best).map(one).collect()
}

/// Samples at most `count` boxes and returns their indices in order. At most the fraction `truths` of them are assigned
/// to truths, the others to background. Of each kind, the boxes with the smallest `word` are selected, so random words
/// give a random sample.
#[must_use]
pub fn balanced(assigned: &[Assigned], count: usize, truths: f64, mut word: impl FnMut(usize) -> u64) -> Vec<usize> {
    let (mut there, mut background) = (Vec::new(), Vec::new());
    for (place, one) in assigned.iter().enumerate() {
        match one {
            Assigned::Truth(_) => there.push((word(place), place)),
            Assigned::Background => background.push((word(place), place)),
            Assigned::Neither => {}
        }
    }
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part")]
    let most = (count as f64 * truths.clamp(0.0, 1.0)) as usize;
    let least = |mut all: Vec<(u64, usize)>, most: usize| {
        all.sort_unstable();
        all.truncate(most);
        all.into_iter().map(|(_, place)| place)
    };
    let mut taken: Vec<usize> = least(there, most).collect();
    let left = count - taken.len();
    taken.extend(least(background, left));
    taken.sort_unstable();
    taken
}
