//! Faster R-CNN: an evaluation proposes regions, of which the host samples some. A second evaluation classifies them,
//! or a step trains on them.

use super::network::{Detects, Normalised, pixels};
use crate::{
    Failure,
    data::{Random, Shown},
    tasks::{
        Network,
        run::{self, BatchInfo},
        torch::Flattened,
    },
};
use gradscale::{
    AnchorTruth, Error, Gradients, Input, Parameters, PlanRow, RegionTruth, Trainer, Var,
    boxes::{Detection, Keep},
    gradscale_core::backend::Backend,
    metrics::Truth,
    models::{AnchorTargets, FasterRcnn, RegionTargets, Regions},
};

/// Keys of the random streams for sampled anchors and for sampled regions.
const ANCHORS: u64 = 40;
const REGIONS: u64 = 41;

/// Faster R-CNN, a detector for pictures `[n, side, side, 3]`.
#[derive(Debug)]
pub struct Proposing {
    net: FasterRcnn,
    regions: Regions,
    side: usize,
    input: Normalised,
}

/// Pictures with their ground truth, the random words by which regions are sampled, and the targets of anchors.
#[derive(Debug)]
pub struct Batch {
    size: [usize; 4],
    pixels: Vec<u8>,
    /// True boxes of each image, in pixels.
    truths: Vec<Vec<Truth>>,
    words: Vec<u64>,
    anchors: AnchorTargets,
    factor: f32,
}

/// Returns the random word of a box in a picture.
fn word(words: &[u64], of: u64, image: usize, place: usize) -> u64 {
    Random::from_key(&[words.get(image).copied().unwrap_or(0), of, place as u64]).word()
}

impl BatchInfo for Batch {
    fn sizes(&self) -> Vec<usize> {
        self.size.to_vec()
    }
}

impl Detects for Proposing {
    type Batch = Batch;

    fn new(parameters: &mut Parameters, network: Network, classes: usize, normal: bool) -> Self {
        let net = FasterRcnn::new(&mut parameters.at("net"), network.scale(), classes);
        let side = FasterRcnn::side(network.small);
        let regions = net.regions([side; 2]);
        Self { net, regions, side, input: Normalised::new(parameters, normal) }
    }

    fn side(&self) -> usize {
        self.side
    }

    fn flattened(&self) -> Vec<Flattened> {
        let (layer, image) = self.net.flattened();
        vec![(format!("net.{layer}"), image)]
    }

    fn plan<B: Backend<Error: 'static>>(&self, trainer: &Trainer<B>) -> Result<Vec<PlanRow>, Failure> {
        let pixels = vec![0; self.side * self.side * 3];
        let anchors = self.regions.anchor_targets(std::iter::once(&[][..]), |_, _| 0);
        let regions = self.regions.region_targets(std::iter::once(&[][..]), &[Vec::new()], |_, _| 0);
        Ok(trainer.plan(self.inputs(&pixels, &anchors, &regions), |all| self.loss(all))?)
    }

    /// Creates a batch that stays on the host, because regions depend on the weights after the step before.
    fn batch<B: Backend<Error: 'static>>(
        &self, _: &mut Trainer<B>, shown: Vec<Shown>, words: Vec<u64>, factor: f32,
    ) -> Result<Batch, Failure> {
        let side = self.side as f32;
        let in_pixels = |truth: &Truth| Truth { corners: truth.corners.map(|corner| corner * side), ..*truth };
        let truths: Vec<Vec<Truth>> = shown.iter().map(|one| one.truths.iter().map(in_pixels).collect()).collect();
        let all = truths.iter().map(|truths| &truths[..]);
        let mut anchors = self.regions.anchor_targets(all, |image, place| word(&words, ANCHORS, image, place));
        anchors.share *= factor;
        let size = [shown.len(), self.side, self.side, 3];
        Ok(Batch { size, pixels: pixels(&shown), truths, words, anchors, factor })
    }

    fn backward<B: Backend>(&self, trainer: &mut Trainer<B>, batch: Batch) -> Result<Gradients, Error<B::Error>> {
        let regions = self.region_targets(trainer, &batch)?;
        trainer.backward(self.inputs(&batch.pixels, &batch.anchors, &regions), |all| self.loss(all))
    }

    fn evaluated_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, shown: Vec<Shown>, words: Vec<u64>,
    ) -> Result<f32, Failure> {
        let batch = self.batch(trainer, shown, words, 1.0)?;
        let regions = self.region_targets(trainer, &batch)?;
        run::loss_of(trainer, self.inputs(&batch.pixels, &batch.anchors, &regions), |all| self.loss(all))
    }

    fn found<B: Backend>(
        &self, trainer: &mut Trainer<B>, pictures: Input<'_>,
    ) -> Result<Vec<Vec<Detection>>, Error<B::Error>> {
        let answers = trainer.evaluate([pictures], |[x]| self.net.proposed(self.input.apply(x)))?;
        let proposals = self.regions.proposals(&answers.data, false);
        let (count, boxes) = self.regions.listed(&proposals, false);
        let boxes = Input::f32([count, 5], &boxes);
        let answers = trainer.evaluate([pictures, boxes], |[x, boxes]| self.net.told(self.input.apply(x), boxes))?;
        let mut found = self.regions.found(&answers.data, &proposals, &Keep::REGIONS);
        for one in found.iter_mut().flatten() {
            one.corners = one.corners.map(|corner| corner / self.side as f32);
        }
        Ok(found)
    }

    /// Exports the network as an ONNX model in two passes: the anchors' outputs of the first (`proposed`) give the
    /// boxes that the second classifies.
    fn onnx<B: Backend>(
        &self, trainer: &mut Trainer<B>, pictures: Input<'_>, half: bool,
    ) -> Result<Vec<u8>, Error<B::Error>> {
        let nothing = vec![Vec::new(); pictures.shape().sizes()[0]];
        let (count, boxes) = self.regions.listed(&nothing, false);
        trainer.onnx([pictures, Input::f32([count, 5], &boxes)], half, |[x, boxes]| {
            let x = self.input.apply(x);
            let _ = self.net.proposed(x).output("proposed");
            self.net.told(x, boxes)
        })
    }
}

impl Proposing {
    /// Returns the targets of the regions that the network proposes for a batch with its weights of now.
    fn region_targets<B: Backend>(
        &self, trainer: &mut Trainer<B>, Batch { pixels, truths, words, factor, .. }: &Batch,
    ) -> Result<RegionTargets, Error<B::Error>> {
        let pictures = Input::u8([truths.len(), self.side, self.side, 3], pixels);
        let answers = trainer.evaluate([pictures], |[x]| self.net.proposed(self.input.apply(x)))?;
        let proposals = self.regions.proposals(&answers.data, true);
        let all = truths.iter().map(|truths| &truths[..]);
        let mut regions =
            self.regions.region_targets(all, &proposals, |image, place| word(words, REGIONS, image, place));
        regions.share *= factor;
        Ok(regions)
    }

    /// Returns the inputs of a training step of the network that proposes regions.
    fn inputs<'a>(
        &self, pixels: &'a [u8], of_anchors: &'a AnchorTargets, of_regions: &'a RegionTargets,
    ) -> [Input<'a>; 10] {
        let (side, anchors, count) = (self.side, self.regions.anchors().len(), of_regions.labels.len());
        let n = of_anchors.signs.len() / anchors.max(1);
        [
            Input::u8([n, side, side, 3], pixels),
            Input::f32([n, 1, anchors, 1], &of_anchors.signs),
            Input::f32([n, 1, anchors, 4], &of_anchors.codes),
            Input::f32([1], std::slice::from_ref(&of_anchors.share)),
            Input::f32([count, 5], &of_regions.boxes),
            Input::u32([count], &of_regions.labels),
            Input::u32([count], &of_regions.places),
            Input::f32([count], &of_regions.counted),
            Input::f32([count, 4], &of_regions.codes),
            Input::f32([1], std::slice::from_ref(&of_regions.share)),
        ]
    }

    /// Returns the loss of a batch, which training minimises.
    fn loss<'t>(&self, all: [Var<'t>; 10]) -> Var<'t> {
        let [x, signs, codes, share, boxes, labels, places, counted, of_regions, share_of_regions] = all;
        let anchors = AnchorTruth { signs, codes, share };
        let regions = RegionTruth { labels, places, counted, codes: of_regions, share: share_of_regions };
        let [anchors, regions] = self.net.losses(self.input.apply(x), &anchors, boxes, &regions);
        anchors + regions
    }
}
