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

/// What a box stands for in training: see [`assigned`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// For this truth.
    Truth(usize),
    /// For nothing that is there.
    Background,
    /// For too much to be background and too little to be a truth: it does not count.
    Neither,
}

/// What each box stands for (Ren et al. 2015, section 3.1.2): for the truth that it overlaps most, the first of equal ones, if
/// that is by `least` at least; for background if it is by less than `background`. If each truth is to have a box, those that
/// overlap it most stand for a truth in any case, unless nothing overlaps it. As torchvision's `Matcher`.
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

/// Places of `count` boxes at most, in their order, of which at most the share `truths` stands for truths, and the others for
/// background. Of each kind those are taken for which `word` is least: random words make a random choice.
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
