//! From what a network says to boxes with classes.

use super::{Corners, clipped, decode, larger, nms};

/// A box that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Its class, from 1: 0 is background.
    pub class: usize,
    /// The probability that the network gives it.
    pub score: f32,
    /// Where it is.
    pub corners: Corners,
}

/// Which detections are kept. The default is what torchvision's SSD has; of [`Keep::REGIONS`], its Faster R-CNN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keep {
    /// Only what is likelier than this.
    pub score: f32,
    /// Of each class so many, the likeliest, before non-maximum suppression.
    pub candidates: usize,
    /// What overlaps a likelier one of its class by more than this is left out.
    pub overlap: f32,
    /// Of an image so many, the likeliest.
    pub most: usize,
    /// What is narrower or lower than this is left out.
    pub smallest: f32,
}

impl Keep {
    /// Of regions in pixels.
    pub const REGIONS: Self = Self { score: 0.05, candidates: usize::MAX, overlap: 0.5, most: 100, smallest: 0.01 };
}

impl Default for Keep {
    fn default() -> Self {
        Self { score: 0.01, candidates: 400, overlap: 0.45, most: 200, smallest: 0.0 }
    }
}

/// The detections in one image, the likeliest first: of logits `[boxes, classes]`, the background first, and offsets
/// `[boxes, 4]` from default boxes, or `[boxes, classes, 4]`, of each class its own. Corners lie within `limits`, right and
/// bottom of the image in the unit of the default boxes. A network that answers NaN has found nothing.
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
    // Of each box the codes of all classes side by side, or the one code.
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
