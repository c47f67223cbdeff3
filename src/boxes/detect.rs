//! Decoding of a network's outputs to boxes with classes.

use super::{Corners, clipped, decode, larger, nms};

/// Object that a network detected in an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Class of the object, from 1, because 0 is background.
    pub class: usize,
    /// Probability that the network assigns to the class.
    pub score: f32,
    /// Corners of the box around the detected object.
    pub corners: Corners,
}

/// Limits for the selection of detections. The default has the settings of torchvision's SSD, [`Keep::REGIONS`] those
/// of its Faster R-CNN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keep {
    /// Minimum probability of a detection that is kept, exclusive.
    pub score: f32,
    /// Maximum number of the most likely boxes of each class before non-maximum suppression.
    pub candidates: usize,
    /// Maximum overlap with a more likely box of the same class; boxes with more are dropped.
    pub overlap: f32,
    /// Maximum number of detections that are kept in an image, the most likely ones.
    pub most: usize,
    /// Minimum width and height of the box of a detection that is kept.
    pub smallest: f32,
}

impl Keep {
    /// Limits of Faster R-CNN for its detections, for regions in pixels.
    pub const REGIONS: Self = Self { score: 0.05, candidates: usize::MAX, overlap: 0.5, most: 100, smallest: 0.01 };
}

impl Default for Keep {
    fn default() -> Self {
        Self { score: 0.01, candidates: 400, overlap: 0.45, most: 200, smallest: 0.0 }
    }
}

/// Computes the detections in one image, most likely first. `logits` are `[boxes, classes]`, background first. `codes`
/// are offsets `[boxes, 4]` from default boxes, or `[boxes, classes, 4]` for separate codes of each class. Corners are
/// clipped to `limits`, right and bottom of the image in the unit of the default boxes. A NaN from the network detects
/// nothing.
#[must_use]
pub fn detections(
    logits: &[f32], offsets: &[f32], defaults: &[Corners], limits: [f32; 2], keep: &Keep,
) -> Vec<Detection> {
    let classes = logits.len().checked_div(defaults.len()).unwrap_or(0);
    if classes == 0 {
        return Vec::new();
    }
    let scores: Vec<f32> = logits.chunks_exact(classes).flat_map(softmax).collect();
    let codes = offsets.as_chunks().0;
    // Codes of all classes of a box are adjacent, or the box has one code.
    let of_classes = usize::from(codes.len() >= defaults.len() * classes);
    let each = if of_classes == 1 { classes } else { 1 };
    let (mut found, mut corners) = (Vec::new(), Vec::new());
    for class in 1..classes {
        let score = |place: usize| scores[place * classes + class];
        if class == 1 || of_classes == 1 {
            let decoded = codes.chunks_exact(each).map(|codes| codes[of_classes * class]).zip(defaults);
            corners = decoded.map(|(code, &default)| clipped(decode(code, default), limits)).collect::<Vec<Corners>>();
        }
        let keeps = |place: usize| score(place) > keep.score && larger(corners[place], keep.smallest);
        let mut places: Vec<usize> = (0..corners.len()).filter(|&place| keeps(place)).collect();
        places.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        places.truncate(keep.candidates);
        let boxes: Vec<Corners> = places.iter().map(|&place| corners[place]).collect();
        let likely: Vec<f32> = places.iter().map(|&place| score(place)).collect();
        let kept = nms(&boxes, &likely, keep.overlap).into_iter();
        found.extend(kept.map(|i| Detection { class, score: likely[i], corners: boxes[i] }));
    }
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(keep.most);
    found
}

fn softmax(row: &[f32]) -> Vec<f32> {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f32> = row.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = exps.iter().sum();
    exps.into_iter().map(|exp| exp / sum).collect()
}
