//! Selection of regions between the two parts of Faster R-CNN: proposals, their assignment to truths, and sampling for
//! the losses.

use super::{Bins, Layout, RATIOS};
use crate::{
    boxes::{
        Assigned, Corners, Detection, Keep, anchors, assigned, balanced, detections, encode, encode_with, proposals,
    },
    metrics::Truth,
};

/// Overlap below which an anchor is background, and overlap from which on it is assigned to a truth. `REGIONS` has the
/// same for regions.
const ANCHORS: [f32; 2] = [0.3, 0.7];
const REGIONS: [f32; 2] = [0.5, 0.5];
/// Maximum fraction of the sampled anchors that are assigned to a truth.
const ANCHORS_THERE: f64 = 0.5;
const REGIONS_THERE: f64 = 0.25;

/// Region selection of a [`FasterRcnn`](super::FasterRcnn) for images of one size. Boxes are in pixels.
#[derive(Clone, Debug)]
pub struct Regions {
    layout: &'static Layout,
    anchors: Vec<Corners>,
    /// Right and bottom end of the images, in pixels.
    limits: [f32; 2],
    /// Number of classes of the detector, background included.
    classes: usize,
}

/// Targets of all anchors for the anchor loss: see [`AnchorTruth`](crate::AnchorTruth).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnchorTargets {
    /// Sign of each anchor: 1 for an object, −1 for background, 0 if it is ignored.
    pub signs: Vec<f32>,
    /// Target code of each anchor: the offsets of its truth.
    pub codes: Vec<f32>,
    /// Factor of the anchor loss: one divided by the number of sampled anchors.
    pub share: f32,
}

/// Sampled regions, the same number of each image, with the targets of their loss: see
/// [`RegionTruth`](crate::RegionTruth).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionTargets {
    /// Boxes of the sampled regions, `[regions, 5]`, as of [`Regions::listed`].
    pub boxes: Vec<f32>,
    /// Class of each sampled region; 0 is background.
    pub labels: Vec<u32>,
    /// Index of the code of each region's class among the predicted codes.
    pub places: Vec<u32>,
    /// Weight of each region in the loss: 1 if it was sampled, 0 for padding.
    pub counted: Vec<f32>,
    /// Target code of each sampled region: the offsets of its truth.
    pub codes: Vec<f32>,
    /// Factor of the region loss: one divided by the number of sampled regions.
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

    /// Returns the anchors of an image: their boxes in pixels.
    #[must_use]
    pub fn anchors(&self) -> &[Corners] {
        &self.anchors
    }

    /// Returns the number of regions of each image that count in training.
    #[must_use]
    pub const fn counted(&self) -> usize {
        self.layout.chosen[1]
    }

    /// Selects the proposals of each image from the outputs of [`FasterRcnn::proposed`](super::FasterRcnn::proposed),
    /// most likely first. Training uses more of them.
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

    /// Returns regions as input of the network, with their number per image. Each image is padded to the maximum, so
    /// that the shape does not depend on the proposals; padding belongs to no image.
    #[must_use]
    pub fn listed(&self, proposals: &[Vec<Corners>], training: bool) -> (usize, Vec<f32>) {
        let each = self.layout.proposals[usize::from(!training)].most;
        let mut all = Vec::with_capacity(5 * each * proposals.len());
        for (image, boxes) in proposals.iter().enumerate() {
            self.list(&mut all, image, boxes, each);
        }
        (each * proposals.len(), all)
    }

    /// Appends the boxes of an image. For bins with means, torchvision uses the image's first corner as the centre of
    /// the first feature position, and sides of at least one position.
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

    /// Samples the anchors for training on images with these truths: 256 of each image, up to half of them assigned to
    /// truths. Those with the smallest random words, per image and anchor, are selected.
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

    /// Samples the regions for training from the proposals for images with these truths, and from the truths
    /// themselves: up to a quarter of them assigned to truths. Those with the smallest random words, per image and
    /// region, are selected.
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

    /// Computes the detections in each image from the outputs of [`FasterRcnn::told`](super::FasterRcnn::told) for
    /// these proposals.
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
