//! Average precision of detections (Everingham et al. 2010, section 4.2).

use crate::boxes::{Corners, Detection, overlap};

/// Ground-truth box of an object in an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// Class of the ground-truth object, from 1.
    pub class: usize,
    /// Corners of the ground-truth box.
    pub corners: Corners,
    /// True if the ground-truth box is ignored: detecting it or missing it does not count.
    pub difficult: bool,
}

/// Average precision of the detections of all images. Detections of a class are processed from the most likely to the
/// least likely. A detection is correct if the truth of its class with the largest overlap exceeds the threshold, and
/// no more likely detection matched that truth.
///
/// ```
/// use gradscale::{boxes::Detection, metrics::{AveragePrecision, Truth}};
/// let truth = |corners| Truth { class: 1, corners, difficult: false };
/// let detection = |score, corners| Detection { class: 1, score, corners };
/// let mut precision = AveragePrecision::new(1, 0.5);
/// precision.add(
///     &[detection(0.9, [0.0, 0.0, 9.0, 10.0]), detection(0.8, [50.0, 50.0, 60.0, 60.0])],
///     &[truth([0.0, 0.0, 10.0, 10.0]), truth([20.0, 20.0, 30.0, 30.0])],
/// );
/// // One of two truths is detected, and no false detection precedes it.
/// assert_eq!(precision.area(), [Some(0.5)]);
/// assert_eq!(precision.mean_area(), Some(0.5));
/// assert_eq!(precision.eleven(), [Some(6.0 / 11.0)]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AveragePrecision {
    threshold: f32,
    classes: Vec<Class>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Class {
    /// Score of each detection of the class, and whether it is correct, in the order of images.
    found: Vec<(f32, bool)>,
    there: usize,
}

impl AveragePrecision {
    /// Creates the average precision for `classes` classes, counted from 1, with this overlap threshold; PASCAL VOC
    /// uses 0.5.
    #[must_use]
    pub fn new(classes: usize, threshold: f32) -> Self {
        Self { threshold, classes: vec![Class::default(); classes] }
    }

    /// Adds the detections and ground-truth boxes of one image. Boxes of an invalid class are ignored.
    pub fn add(&mut self, detections: &[Detection], truths: &[Truth]) {
        for (class, number) in self.classes.iter_mut().zip(1..) {
            let there: Vec<&Truth> = truths.iter().filter(|truth| truth.class == number).collect();
            class.there += there.iter().filter(|truth| !truth.difficult).count();
            let mut taken = vec![false; there.len()];
            let mut likely: Vec<&Detection> = detections.iter().filter(|one| one.class == number).collect();
            likely.sort_by(|a, b| b.score.total_cmp(&a.score));
            for one in likely {
                let overlaps = there.iter().map(|truth| overlap(one.corners, truth.corners)).enumerate();
                let best = overlaps.reduce(|best, next| if next.1 > best.1 { next } else { best });
                match best.filter(|(_, found)| *found >= self.threshold) {
                    Some((i, _)) if there[i].difficult => {}
                    Some((i, _)) => class.found.push((one.score, !std::mem::replace(&mut taken[i], true))),
                    None => class.found.push((one.score, false)),
                }
            }
        }
    }

    /// Returns the number of detections that were counted, over all classes.
    #[must_use]
    pub fn detections(&self) -> usize {
        self.classes.iter().map(|class| class.found.len()).sum()
    }

    /// Returns, for each class, the area under the precision-recall curve. The precision at a recall is the maximum
    /// over all higher recalls, as in PASCAL VOC since 2010. `None` for a class without truths.
    #[must_use]
    pub fn area(&self) -> Vec<Option<f64>> {
        let area = |curve: &[[f64; 2]]| {
            let (mut area, mut before) = (0.0, 0.0);
            for &[recall, precision] in curve {
                area += (recall - before) * precision;
                before = recall;
            }
            area
        };
        self.classes.iter().map(|class| Some(area(&class.curve()?))).collect()
    }

    /// Returns, for each class, the mean of that precision at recalls of 0, 0.1 … 1, as in PASCAL VOC until 2009.
    /// `None` for a class without truths.
    #[must_use]
    pub fn eleven(&self) -> Vec<Option<f64>> {
        let at = |curve: &[[f64; 2]], tenths: u8| {
            let reached = curve.iter().find(|[recall, _]| *recall >= f64::from(tenths) / 10.0);
            reached.map_or(0.0, |[_, precision]| *precision)
        };
        let mean = |curve: &[[f64; 2]]| (0..=10).map(|tenths| at(curve, tenths)).sum::<f64>() / 11.0;
        self.classes.iter().map(|class| Some(mean(&class.curve()?))).collect()
    }

    /// Returns the mean of [`AveragePrecision::area`] over the classes with truths.
    #[must_use]
    pub fn mean_area(&self) -> Option<f64> {
        mean(&self.area())
    }

    /// Returns the mean of [`AveragePrecision::eleven`] over the classes with truths.
    #[must_use]
    pub fn mean_eleven(&self) -> Option<f64> {
        mean(&self.eleven())
    }
}

fn mean(all: &[Option<f64>]) -> Option<f64> {
    let known: Vec<f64> = all.iter().flatten().copied().collect();
    #[expect(clippy::cast_precision_loss, reason = "classes")]
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    (!known.is_empty()).then_some(mean)
}

impl Class {
    /// Computes the recall after each detection, and the maximum precision from there on.
    fn curve(&self) -> Option<Vec<[f64; 2]>> {
        if self.there == 0 {
            return None;
        }
        let mut found = self.found.clone();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut right = 0usize;
        #[expect(clippy::cast_precision_loss, reason = "detections")]
        let after = |(seen, (_, hit)): (usize, &(f32, bool))| {
            right += usize::from(*hit);
            [right as f64 / self.there as f64, right as f64 / (seen + 1) as f64]
        };
        let mut curve: Vec<[f64; 2]> = found.iter().enumerate().map(after).collect();
        let mut highest = 0f64;
        for [_, precision] in curve.iter_mut().rev() {
            highest = highest.max(*precision);
            *precision = highest;
        }
        Some(curve)
    }
}
