//! SSD with first values, pictures for it, and what its answers mean.

use crate::tasks::{Found, Net, Network};
use gradscale::{
    MultiBox, Parameter, Parameters, Var,
    boxes::{Corners, Detection, Keep, detections, encode, matches},
    metrics::Truth,
    models::{Ssd, SsdSize},
};

/// Overlap from which on a default box is for a truth.
const MATCH: f32 = 0.5;
/// Background boxes that count, for each matched one.
const NEGATIVES: usize = 3;

/// Mean of each channel that torchvision's SSD has, and a deviation near that of photographs.
pub const MEANS: [f32; 3] = [0.482_35, 0.458_82, 0.407_84];
pub const DEVIATION: f32 = 0.25;

/// Which SSD a network is.
pub fn size(net: Net) -> Option<SsdSize> {
    [(Net::Ssd300, SsdSize::Ssd300), (Net::Ssd512, SsdSize::Ssd512)]
        .into_iter()
        .find(|(known, _)| *known == net)
        .map(|(_, size)| size)
}

/// A detector for bytes `[n, side, side, 3]`.
#[derive(Debug)]
pub struct Detector {
    net: Ssd,
    defaults: Vec<Corners>,
    side: usize,
    classes: usize,
    /// What is added to each channel, unless images come as the network wants them.
    summands: Option<Parameter>,
}

/// A network with its parameters, first values by `seed`, for so many classes. It reads bytes, or if these are `normal`
/// already, numbers.
pub fn network(seed: u64, network: Network, classes: usize, normal: bool) -> (Parameters, Detector) {
    let size = size(network.net).unwrap_or(SsdSize::Ssd300);
    let mut parameters = Parameters::seeded(seed);
    let net = Ssd::new(&mut parameters.at("net"), size, network.scale(), classes);
    let summands = MEANS.map(|mean| -mean / DEVIATION);
    let summands = (!normal).then(|| parameters.at("input").constant("summands", [3], &summands));
    let (side, defaults) = (size.side(network.small), size.default_boxes(network.small));
    (parameters, Detector { net, defaults, side, classes, summands })
}

impl Detector {
    /// Rows and columns of what it sees.
    pub const fn side(&self) -> usize {
        self.side
    }

    /// Default boxes.
    pub const fn boxes(&self) -> usize {
        self.defaults.len()
    }

    fn both<'t>(&self, x: Var<'t>) -> [Var<'t>; 2] {
        let x = match &self.summands {
            None => x,
            Some(summands) => x.affine(1.0 / (255.0 * DEVIATION), 0.0) + x.tape().parameter(summands),
        };
        self.net.answers(x)
    }

    /// What training minimises: see [`Targets`].
    pub fn loss<'t>(&self, [x, labels, codes, negatives, share]: [Var<'t>; 5]) -> Var<'t> {
        let [logits, offsets] = self.both(x);
        logits.multibox_loss(offsets, &MultiBox { labels, codes, negatives, share })
    }

    /// Logits and offsets of each default box side by side, `[n, 1, boxes, 1 + classes + 4]`.
    pub fn answers<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [logits, offsets] = self.both(x);
        logits.concat(&[offsets], 3)
    }

    /// What answers mean, for each image.
    pub fn found(&self, answers: &[f32]) -> Vec<Vec<Detection>> {
        let (logits, all) = (self.classes + 1, self.classes + 5);
        let one = |image: &[f32]| {
            let rows = || image.chunks_exact(all);
            let of_classes: Vec<f32> = rows().flat_map(|row| &row[..logits]).copied().collect();
            let offsets: Vec<f32> = rows().flat_map(|row| &row[logits..]).copied().collect();
            detections(&of_classes, &offsets, &self.defaults, [1.0; 2], &Keep::default())
        };
        answers.chunks_exact((self.defaults.len() * all).max(1)).map(one).collect()
    }

    /// What the loss compares with.
    pub fn targets<'a>(&self, images: impl Iterator<Item = &'a [Truth]>) -> Targets {
        let (mut all, mut count) = (Targets::default(), 0);
        for truths in images {
            let corners: Vec<Corners> = truths.iter().map(|truth| truth.corners).collect();
            let matched = matches(&corners, &self.defaults, MATCH);
            for (truth, &default) in matched.iter().zip(&self.defaults) {
                let class = truth.map_or(0, |truth| truths[truth].class);
                all.labels.push(u32::try_from(class).unwrap_or(u32::MAX));
                all.codes.extend(truth.map_or([0.0; 4], |truth| encode(corners[truth], default)));
            }
            let found = matched.iter().flatten().count();
            all.negatives.push((NEGATIVES * found).min(self.defaults.len() - found) as f32);
            count += found;
        }
        all.share = 1.0 / count.max(1) as f32;
        all
    }
}

/// What the loss of a batch compares with: see [`MultiBox`].
#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub labels: Vec<u32>,
    pub codes: Vec<f32>,
    pub negatives: Vec<f32>,
    /// One over the matched boxes of the batch.
    pub share: f32,
}

/// As results keep them.
pub fn kept(found: &[Detection]) -> Vec<Found> {
    let one = |one: &Detection| {
        let class = u32::try_from(one.class).unwrap_or(u32::MAX).saturating_sub(1);
        Found { class, score: one.score, corners: one.corners }
    };
    found.iter().map(one).collect()
}
