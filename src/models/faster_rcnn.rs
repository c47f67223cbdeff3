//! Faster R-CNN (Ren et al. 2015) with VGG-16.

mod regions;

pub use regions::{AnchorTargets, RegionTargets, Regions};

use super::{Scale, vgg::Features};
use crate::{
    AnchorTruth, Init, RegionTruth, Scope, Var,
    boxes::Propose,
    nn::{Conv2d, Dropout, Linear, Module},
};

/// Number of rows and columns of bins into which each region is divided.
const BINS: u32 = 7;
/// Number of sample points of a bin along each axis, if bins are means.
const SAMPLES: u32 = 2;
/// Number of channels of VGG's last level, and of units of its dense layers.
const CHANNELS: usize = 512;
const DENSE: usize = 4096;
/// Ratios of height to width of the anchors.
const RATIOS: [f32; 3] = [0.5, 1.0, 2.0];

/// Settings that differ between the paper's network and the small one.
#[derive(Debug, PartialEq)]
struct Layout {
    side: usize,
    /// Number of poolings of the backbone, each of which halves height and width.
    poolings: usize,
    /// Sizes of the anchors: roots of their areas, in pixels.
    sizes: &'static [f32],
    /// Number of sampled anchors and of sampled regions of each image in training.
    chosen: [usize; 2],
    /// Limits for the selection of proposals, in training and in evaluation.
    proposals: [Propose; 2],
    bins: Bins,
}

/// Pooling of a region's bins: RoI max pooling or RoIAlign.
#[derive(Debug, PartialEq)]
enum Bins {
    /// RoI max pooling: maximum over the whole positions in a bin.
    Largest,
    /// RoIAlign: mean of the interpolated points in a bin.
    Mean,
}

const fn propose(candidates: usize, most: usize) -> Propose {
    Propose { candidates, overlap: 0.7, most, smallest: 1e-3 }
}

/// Settings of the paper, without VGG's last pooling. The paper does not specify the number of candidates; it is that
/// of its implementation.
const PAPER: Layout = Layout {
    side: 600,
    poolings: 4,
    sizes: &[128.0, 256.0, 512.0],
    chosen: [256, 128],
    proposals: [propose(12_000, 2000), propose(6000, 300)],
    bins: Bins::Largest,
};

/// Settings of the small network, VGG without its fourth pooling.
const WITHOUT_FOURTH_POOLING: Layout = Layout {
    side: 128,
    poolings: 3,
    sizes: &[8.0, 16.0, 32.0, 64.0],
    chosen: [256, 64],
    proposals: [propose(1000, 200), propose(500, 100)],
    // Bins of a few positions would be too coarse for max pooling over whole positions.
    bins: Bins::Mean,
};

const fn layout(small: bool) -> &'static Layout {
    if small { &WITHOUT_FOURTH_POOLING } else { &PAPER }
}

/// Faster R-CNN with VGG-16. A small network on the features of VGG's convolutions proposes regions: at each position
/// it predicts for nine anchors the probability of an object and its offset. The selected regions are pooled to 7 × 7
/// bins ([`Var::roi_pool`]) and passed through VGG's two dense layers with dropout. Two linear layers then predict the
/// class, and a box for each class.
///
/// The regions are selected on the host between the two parts: [`Regions`]. Therefore a detection takes two
/// evaluations, and a training step takes an evaluation before it. Regions are constants to the step, as in
/// torchvision.
///
/// Layers have the names of torchvision's `FasterRCNN` with `vgg16().features` without the last pooling as backbone and
/// a `TwoMLPHead`, so its weights can be imported. The small network is trained from scratch, with batch norm after
/// VGG's convolutions. It halves three times instead of four, has twelve anchors at each position, uses means of bins
/// ([`Var::roi_align`]) like torchvision, and has no dropout.
///
/// ```
/// use gradscale::{
///     Cpu, Input, Method, Parameters, Trainer, boxes::Keep, models::{FasterRcnn, Scale}, optim::Sgd,
/// };
/// let mut parameters = Parameters::seeded(1);
/// let net = FasterRcnn::new(&mut parameters.at("net"), Scale::small(1), 3);
/// let regions = net.regions([64, 64]);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let image = vec![0.5; 64 * 64 * 3];
/// let x = || Input::f32([1, 64, 64, 3], &image);
/// let answers = trainer.evaluate([x()], |[x]| net.proposed(x))?;
/// let proposed = regions.proposals(&answers.data, false);
/// let (count, listed) = regions.listed(&proposed, false);
/// let answers = trainer.evaluate([x(), Input::f32([count, 5], &listed)], |[x, boxes]| net.told(x, boxes))?;
/// let found = regions.found(&answers.data, &proposed, &Keep::REGIONS);
/// assert_eq!(found.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FasterRcnn {
    features: Features,
    region: Conv2d,
    /// Layers of the region proposal network: object probability of anchors, codes of anchors.
    anchors: [Conv2d; 2],
    dense: [Linear; 2],
    dropout: Dropout,
    /// Output layers for regions: logits of classes, and codes of boxes.
    told: [Linear; 2],
    /// Number of channels of the backbone's features.
    channels: usize,
    classes: usize,
    small: bool,
}

impl FasterRcnn {
    /// Creates the detector for `classes` classes besides the background. Weights are initialised as in torchvision and
    /// the paper; in the small network as by He et al. (2015), except for the output layers.
    pub fn new(scope: &mut Scope<'_>, scale: Scale, classes: usize) -> Self {
        let (layout, small) = (layout(scale.small), scale.small);
        let features = Features::new(&mut scope.at("backbone"), 3, scale, small);
        let [channels, units] = [CHANNELS, DENSE].map(|whole| scale.scale_channels(whole));
        let answer = |std| Init::Normal { mean: 0.0, std };
        // The small network is trained from scratch, and with weights as small as torchvision's its activations would
        // vanish.
        let inner = if small { Init::HeNormal } else { answer(0.01) };
        let mut conv = |name: &str, to, kernel, init| {
            let at = &mut scope.at(&format!("rpn.head.{name}"));
            Conv2d::with_init(at, channels, to, kernel, init).bias(at)
        };
        let each = RATIOS.len() * layout.sizes.len();
        let region = conv("conv.0.0", channels, 3, inner);
        let anchors = [conv("cls_logits", each, 1, answer(0.01)), conv("bbox_pred", 4 * each, 1, answer(0.01))];
        let mut linear =
            |name: &str, from, to, init| Linear::with_init(&mut scope.at(&format!("roi_heads.{name}")), from, to, init);
        let dense = [
            linear("box_head.fc6", (BINS * BINS) as usize * channels, units, inner),
            linear("box_head.fc7", units, units, inner),
        ];
        let classes = classes + 1;
        let told = [
            linear("box_predictor.cls_score", units, classes, answer(0.01)),
            linear("box_predictor.bbox_pred", units, 4 * classes, answer(0.001)),
        ];
        let dropout = scale.drops(if small { 0.0 } else { 0.5 });
        Self { features, region, anchors, dense, dropout, told, channels, classes, small }
    }

    /// Returns the shorter side in pixels of the images with which the network is trained.
    #[must_use]
    pub const fn side(small: bool) -> usize {
        layout(small).side
    }

    /// Creates the selection of regions for images of this height and width.
    #[must_use]
    pub fn regions(&self, image: [usize; 2]) -> Regions {
        Regions::new(layout(self.small), image, self.classes)
    }

    /// Returns the layer that reads flattened images, with their rows, columns and channels: see
    /// [`TorchModule::flattened`](crate::TorchModule::flattened).
    #[must_use]
    pub const fn flattened(&self) -> (&'static str, [usize; 3]) {
        ("roi_heads.box_head.fc6", [BINS as usize, BINS as usize, self.channels])
    }

    /// Computes the backbone's features of images `[n, h, w, 3]`.
    fn features<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.features.unpooled(x, layout(self.small).poolings)
    }

    /// Computes logits `[n, 1, anchors, 1]` and codes `[n, 1, anchors, 4]` of anchors from features.
    fn of_anchors<'t>(&self, features: Var<'t>) -> [Var<'t>; 2] {
        let inner = self.region.forward(features).relu();
        [(0, 1), (1, 4)].map(|(which, each)| {
            let y = self.anchors[which].forward(inner);
            let [n, h, w, c] = y.shape().sizes();
            y.reshape([n, 1, h * w * c / each, each])
        })
    }

    /// Computes logits `[regions, 1 + classes]` and codes `[regions, 4 · (1 + classes)]` of regions from features and
    /// boxes `[regions, 5]`.
    fn of_regions<'t>(&self, features: Var<'t>, boxes: Var<'t>) -> [Var<'t>; 2] {
        #[expect(clippy::cast_precision_loss, reason = "a small power of two")]
        let scale = 1.0 / (1 << layout(self.small).poolings) as f32;
        let bins = match layout(self.small).bins {
            Bins::Largest => features.roi_pool(boxes, [BINS; 2], scale),
            Bins::Mean => features.roi_align(boxes, [BINS; 2], scale, SAMPLES),
        };
        let dense = |x, layer: &Linear| self.dropout.forward(layer.forward(x).relu());
        let x = self.dense.iter().fold(bins.flatten(), dense);
        [0, 1].map(|which| self.told[which].forward(x))
    }

    /// Computes the outputs of the region proposal network, `[n, 1, anchors, 5]`, from images `[n, h, w, 3]`: the logit
    /// of an object and the code of its box, as input of [`Regions::proposals`].
    ///
    /// # Errors
    /// Images that are too small.
    pub fn proposed<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [logits, codes] = self.of_anchors(self.features(x));
        logits.concat(&[codes], 3)
    }

    /// Computes class logits, background first, and the codes of each class, `[regions, 5 · (1 + classes)]`, from
    /// images `[n, h, w, 3]` and boxes `[regions, 5]` ([`Regions::listed`]). They are the input of [`Regions::found`].
    ///
    /// # Errors
    /// Boxes of another shape.
    pub fn told<'t>(&self, x: Var<'t>, boxes: Var<'t>) -> Var<'t> {
        let [logits, codes] = self.of_regions(self.features(x), boxes);
        logits.concat(&[codes], 3)
    }

    /// Computes the losses of the anchors and of the regions `[regions, 5]` in images `[n, h, w, 3]`: see
    /// [`Var::anchor_loss`], [`Var::region_loss`], [`AnchorTargets`] and [`RegionTargets`]. Training minimises their
    /// sum.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn losses<'t>(
        &self, x: Var<'t>, anchors: &AnchorTruth<'t>, boxes: Var<'t>, regions: &RegionTruth<'t>,
    ) -> [Var<'t>; 2] {
        let features = self.features(x);
        let [logits, codes] = self.of_anchors(features);
        let of_anchors = logits.anchor_loss(codes, anchors);
        let [logits, codes] = self.of_regions(features, boxes);
        [of_anchors, logits.region_loss(codes, regions)]
    }
}
