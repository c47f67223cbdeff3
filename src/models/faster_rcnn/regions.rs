//! What is decided between proposing regions and telling what they are: which regions there are, which of them are for
//! which truth, and which count.

use super::{Bins, Layout, RATIOS};
use crate::{
    boxes::{
        Assigned, Corners, Detection, Keep, anchors, assigned, balanced, detections, encode, encode_with, proposals,
    },
    metrics::Truth,
};

/// Overlaps below which an anchor is background, and from which on it is for a truth; of regions.
const ANCHORS: [f32; 2] = [0.3, 0.7];
const REGIONS: [f32; 2] = [0.5, 0.5];
/// How many of those that count are for a truth at most.
const ANCHORS_THERE: f64 = 0.5;
const REGIONS_THERE: f64 = 0.25;

/// The regions of a [`FasterRcnn`](super::FasterRcnn) in images of one size. Boxes are in pixels.
#[derive(Clone, Debug)]
pub struct Regions {
    layout: &'static Layout,
    anchors: Vec<Corners>,
    /// Right and bottom of the images.
    limits: [f32; 2],
    /// Classes with the background.
    classes: usize,
}

/// What the loss of anchors compares with: see [`AnchorTruth`](crate::AnchorTruth).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnchorTargets {
    /// Of each anchor, 1, −1 or 0.
    pub signs: Vec<f32>,
    /// Its code.
    pub codes: Vec<f32>,
    /// One over the anchors that count.
    pub share: f32,
}

/// Regions that count, the same number of each image, and what the loss compares them with: see
/// [`RegionTruth`](crate::RegionTruth).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionTargets {
    /// Boxes `[regions, 5]`, as [`Regions::listed`] gives them.
    pub boxes: Vec<f32>,
    /// Classes.
    pub labels: Vec<u32>,
    /// Which codes are theirs.
    pub places: Vec<u32>,
    /// 1, or 0 of what fills up.
    pub counted: Vec<f32>,
    /// Codes of the truth.
    pub codes: Vec<f32>,
    /// One over the regions that count.
    pub share: f32,
}

#[expect(clippy::cast_precision_loss, reason = "numbers of boxes, images and pixels")]
impl Regions {
    pub(super) fn new(layout: &'static Layout, image: [usize; 2], classes: usize) -> Self {
        let map = image.map(|side| side >> layout.poolings);
        let stride = [0, 1].map(|axis| image[axis] / map[axis].max(1));
        let [height, width] = image.map(|side| side as f32);
        let anchors = anchors(map, stride, layout.sizes, &RATIOS);
        Self { layout, anchors, limits: [width, height], classes }
    }

    /// Anchors of an image.
    #[must_use]
    pub fn anchors(&self) -> &[Corners] {
        &self.anchors
    }

    /// How many regions of each image count in training.
    #[must_use]
    pub const fn counted(&self) -> usize {
        self.layout.chosen[1]
    }

    /// The regions that [`FasterRcnn::proposed`](super::FasterRcnn::proposed) answers for each image, the likeliest first:
    /// more of them for training.
    #[must_use]
    pub fn proposals(&self, answers: &[f32], training: bool) -> Vec<Vec<Corners>> {
        let keep = &self.layout.proposals[usize::from(!training)];
        let one = |image: &[f32]| {
            let rows = image.as_chunks::<5>().0;
            let likely: Vec<f32> = rows.iter().map(|row| row[0]).collect();
            let codes: Vec<[f32; 4]> = rows.iter().map(|&[_, x, y, width, height]| [x, y, width, height]).collect();
            proposals(&likely, &codes, &self.anchors, self.limits, keep)
        };
        answers.chunks_exact((5 * self.anchors.len()).max(1)).map(one).collect()
    }

    /// Regions as a network takes them, with how many these are: of each image as many as there may be, so that their number
    /// does not depend on what was proposed; what fills up is of no image.
    #[must_use]
    pub fn listed(&self, proposals: &[Vec<Corners>], training: bool) -> (usize, Vec<f32>) {
        let each = self.layout.proposals[usize::from(!training)].most;
        let mut all = Vec::with_capacity(5 * each * proposals.len());
        for (image, boxes) in proposals.iter().enumerate() {
            self.list(&mut all, image, boxes, each);
        }
        (each * proposals.len(), all)
    }

    /// For means, torchvision takes an image's first corner for the middle of the first place of its features, and a side for
    /// one place long at least.
    fn list(&self, all: &mut Vec<f32>, image: usize, boxes: &[Corners], each: usize) {
        let place = (1u32 << self.layout.poolings) as f32;
        for &[left, top, right, bottom] in boxes.iter().take(each) {
            all.push(image as f32);
            all.extend(match self.layout.bins {
                Bins::Largest => [left, top, right, bottom],
                Bins::Mean => {
                    [left, top, right.max(left + place), bottom.max(top + place)].map(|side| side + 0.5 * place)
                }
            });
        }
        let left = each - boxes.len().min(each);
        all.extend(std::iter::repeat_n([-1.0, 0.0, 0.0, 0.0, 0.0], left).flatten());
    }

    /// Anchors that count in training, of images with these truths: 256 of each, half of them for truths if there are so
    /// many. Those with the least words are taken, of an image and an anchor.
    #[must_use]
    pub fn anchor_targets<'a>(
        &self, images: impl Iterator<Item = &'a [Truth]>, mut word: impl FnMut(usize, usize) -> u64,
    ) -> AnchorTargets {
        let (mut all, mut count) = (AnchorTargets::default(), 0);
        for (image, truths) in images.enumerate() {
            let corners: Vec<Corners> = truths.iter().map(|truth| truth.corners).collect();
            let found = assigned(&corners, &self.anchors, ANCHORS, true);
            let chosen = balanced(&found, self.layout.chosen[0], ANCHORS_THERE, |place| word(image, place));
            count += chosen.len();
            let begin = all.signs.len();
            all.signs.resize(begin + found.len(), 0.0);
            for place in chosen {
                all.signs[begin + place] = if found[place] == Assigned::Background { -1.0 } else { 1.0 };
            }
            all.codes.extend(found.iter().zip(&self.anchors).flat_map(|(found, &anchor)| match found {
                Assigned::Truth(truth) => encode_with(corners[*truth], anchor, [1.0; 2]),
                Assigned::Background | Assigned::Neither => [0.0; 4],
            }));
        }
        all.share = 1.0 / count.max(1) as f32;
        all
    }

    /// Regions that count in training, of those that are proposed for images with these truths, and of the truths themselves:
    /// a quarter of them for truths if there are so many. Those with the least words are taken, of an image and a region.
    #[must_use]
    pub fn region_targets<'a>(
        &self, images: impl Iterator<Item = &'a [Truth]>, proposals: &[Vec<Corners>],
        mut word: impl FnMut(usize, usize) -> u64,
    ) -> RegionTargets {
        let (mut all, mut count, each) = (RegionTargets::default(), 0, self.counted());
        for (image, (truths, proposals)) in images.zip(proposals).enumerate() {
            let corners: Vec<Corners> = truths.iter().map(|truth| truth.corners).collect();
            let there: Vec<Corners> = proposals.iter().chain(&corners).copied().collect();
            let found = assigned(&corners, &there, REGIONS, false);
            let chosen = balanced(&found, each, REGIONS_THERE, |place| word(image, place));
            count += chosen.len();
            let boxes: Vec<Corners> = chosen.iter().map(|&place| there[place]).collect();
            self.list(&mut all.boxes, image, &boxes, each);
            let truth_of = |place: usize| match found[place] {
                Assigned::Truth(truth) => Some(truth),
                Assigned::Background | Assigned::Neither => None,
            };
            let of_chosen = chosen.iter().map(|&place| (truth_of(place), there[place], 1.0));
            let filling = std::iter::repeat_n((None, [0.0; 4], 0.0), each - chosen.len());
            for (truth, corner, counted) in of_chosen.chain(filling) {
                let class = truth.map_or(0, |truth| truths[truth].class);
                let place = all.labels.len() * self.classes + class;
                all.labels.push(u32::try_from(class).unwrap_or(u32::MAX));
                all.places.push(u32::try_from(place).unwrap_or(u32::MAX));
                all.counted.push(counted);
                all.codes.extend(truth.map_or([0.0; 4], |truth| encode(corners[truth], corner)));
            }
        }
        all.share = 1.0 / count.max(1) as f32;
        all
    }

    /// What is found in each image, of what [`FasterRcnn::told`](super::FasterRcnn::told) answers for these proposals.
    #[must_use]
    pub fn found(&self, answers: &[f32], proposals: &[Vec<Corners>], keep: &Keep) -> Vec<Vec<Detection>> {
        let each = answers.len() / proposals.len().max(1);
        let one = |(answers, boxes): (&[f32], &Vec<Corners>)| {
            let rows = || answers.chunks_exact(5 * self.classes).take(boxes.len());
            let logits: Vec<f32> = rows().flat_map(|row| &row[..self.classes]).copied().collect();
            let codes: Vec<f32> = rows().flat_map(|row| &row[self.classes..]).copied().collect();
            detections(&logits, &codes, boxes, self.limits, keep)
        };
        answers.chunks_exact(each.max(1)).zip(proposals).map(one).collect()
    }
}
