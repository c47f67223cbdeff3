//! SSD: targets of its loss, and decoding of its outputs.

use super::network::{Detects, Normalised, pixels};
use crate::{
    Failure,
    data::Shown,
    tasks::{Net, Network, run},
};
use gradscale::{
    Error, Gradients, Input, MultiBox, Parameters, PlanRow, Prefetched, Trainer, Var,
    boxes::{Corners, Detection, Keep, detections, encode, matches},
    gradscale_core::backend::Backend,
    metrics::Truth,
    models::{Ssd, SsdSize},
};

/// Minimum overlap with which a default box is assigned to a true box.
const MATCH: f32 = 0.5;
/// Number of background boxes that count for each matched one.
const NEGATIVES: usize = 3;

/// SSD, a detector for pictures `[n, side, side, 3]`.
#[derive(Debug)]
pub struct Multibox {
    net: Ssd,
    defaults: Vec<Corners>,
    side: usize,
    classes: usize,
    input: Normalised,
}

impl Detects for Multibox {
    type Batch = Prefetched<5>;

    fn new(parameters: &mut Parameters, network: Network, classes: usize, normal: bool) -> Self {
        let size = if network.net == Net::Ssd512 { SsdSize::Ssd512 } else { SsdSize::Ssd300 };
        let net = Ssd::new(&mut parameters.at("net"), size, network.scale(), classes);
        let (side, defaults) = (size.side(network.small), size.default_boxes(network.small));
        Self { net, defaults, side, classes, input: Normalised::new(parameters, normal) }
    }

    fn side(&self) -> usize {
        self.side
    }

    fn plan<B: Backend<Error: 'static>>(&self, trainer: &Trainer<B>) -> Result<Vec<PlanRow>, Failure> {
        let (side, boxes) = (self.side, self.defaults.len());
        let middle = Truth { class: 1, corners: [0.25, 0.25, 0.75, 0.75], difficult: false };
        let targets = self.targets(std::iter::once(&[middle][..]));
        let pixels = vec![0; side * side * 3];
        Ok(trainer.plan(targets.batch([1, side, side, 3], &pixels, boxes), |all| self.loss(all))?)
    }

    fn batch<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, shown: Vec<Shown>, _: Vec<u64>, factor: f32,
    ) -> Result<Prefetched<5>, Failure> {
        let (pixels, side) = (pixels(&shown), self.side);
        let mut targets = self.targets(shown.iter().map(|one| &one.truths[..]));
        targets.share *= factor;
        Ok(trainer.prefetch(targets.batch([shown.len(), side, side, 3], &pixels, self.defaults.len()))?)
    }

    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<5>,
    ) -> Result<Gradients, Error<B::Error>> {
        trainer.backward(batch, |all| self.loss(all))
    }

    fn evaluated_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, shown: Vec<Shown>, _: Vec<u64>,
    ) -> Result<f32, Failure> {
        let (pixels, side) = (pixels(&shown), self.side);
        let targets = self.targets(shown.iter().map(|one| &one.truths[..]));
        let batch = targets.batch([shown.len(), side, side, 3], &pixels, self.defaults.len());
        run::loss_of(trainer, batch, |all| self.loss(all))
    }

    fn found<B: Backend>(
        &self, trainer: &mut Trainer<B>, pictures: Input<'_>,
    ) -> Result<Vec<Vec<Detection>>, Error<B::Error>> {
        let answers = trainer.evaluate([pictures], |[x]| {
            let [logits, offsets] = self.net.answers(self.input.apply(x));
            logits.concat(&[offsets], 3)
        })?;
        Ok(self.meant(&answers.data))
    }

    fn onnx<B: Backend>(
        &self, trainer: &mut Trainer<B>, pictures: Input<'_>, half: bool,
    ) -> Result<Vec<u8>, Error<B::Error>> {
        trainer.onnx([pictures], half, |[x]| {
            let [logits, offsets] = self.net.answers(self.input.apply(x));
            logits.concat(&[offsets], 3)
        })
    }
}

impl Multibox {
    /// Returns the loss of a batch; its inputs are [`Targets`].
    fn loss<'t>(&self, [x, labels, codes, negatives, share]: [Var<'t>; 5]) -> Var<'t> {
        let [logits, offsets] = self.net.answers(self.input.apply(x));
        logits.multibox_loss(offsets, &MultiBox { labels, codes, negatives, share })
    }

    /// Decodes the outputs of each image: logits and offsets of each default box, `[n, 1, boxes, 1 + classes + 4]`.
    fn meant(&self, answers: &[f32]) -> Vec<Vec<Detection>> {
        let (logits, all) = (self.classes + 1, self.classes + 5);
        let one = |image: &[f32]| {
            let rows = || image.chunks_exact(all);
            let of_classes: Vec<f32> = rows().flat_map(|row| &row[..logits]).copied().collect();
            let offsets: Vec<f32> = rows().flat_map(|row| &row[logits..]).copied().collect();
            detections(&of_classes, &offsets, &self.defaults, [1.0; 2], &Keep::default())
        };
        answers.chunks_exact((self.defaults.len() * all).max(1)).map(one).collect()
    }

    /// Computes the targets of the loss from the true boxes of images.
    fn targets<'a>(&self, images: impl Iterator<Item = &'a [Truth]>) -> Targets {
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

/// Targets of the loss of a batch; see [`MultiBox`].
#[derive(Clone, Debug, Default)]
struct Targets {
    labels: Vec<u32>,
    codes: Vec<f32>,
    negatives: Vec<f32>,
    /// Reciprocal of the number of matched boxes in the batch.
    share: f32,
}

impl Targets {
    /// Returns the inputs of a step: images of `size` and the targets of `boxes` default boxes each.
    fn batch<'a>(&'a self, size: [usize; 4], pixels: &'a [u8], boxes: usize) -> [Input<'a>; 5] {
        let n = size[0];
        [
            Input::u8(size, pixels),
            Input::u32([n, boxes], &self.labels),
            Input::f32([n, 1, boxes, 4], &self.codes),
            Input::f32([n], &self.negatives),
            Input::f32([1], std::slice::from_ref(&self.share)),
        ]
    }
}
