//! Faster R-CNN (Ren et al. 2015) with VGG-16.

mod regions;

pub use regions::{AnchorTargets, RegionTargets, Regions};

use super::{Scale, vgg::Features};
use crate::{
    AnchorTruth, Init, RegionTruth, Scope, Var,
    boxes::Propose,
    nn::{Conv2d, Dropout, Linear, Module},
};

/// Rows and columns that each region becomes.
const BINS: u32 = 7;
/// Points of a bin along each axis, where bins are means.
const SAMPLES: u32 = 2;
/// Channels of VGG's last level, and units of its dense layers.
const CHANNELS: usize = 512;
const DENSE: usize = 4096;
/// Heights of anchors over their widths.
const RATIOS: [f32; 3] = [0.5, 1.0, 2.0];

/// What differs between the paper's network and a small one.
#[derive(Debug, PartialEq)]
struct Layout {
    side: usize,
    /// So often does it halve.
    poolings: usize,
    /// Roots of the areas of anchors, in pixels.
    sizes: &'static [f32],
    /// Anchors and regions that count, of each image.
    chosen: [usize; 2],
    /// In training, and to answer.
    proposals: [Propose; 2],
    bins: Bins,
}

/// What becomes of the features in each bin of a region.
#[derive(Debug, PartialEq)]
enum Bins {
    /// The largest of whole places.
    Largest,
    /// The mean of points between places.
    Mean,
}

const fn propose(candidates: usize, most: usize) -> Propose {
    Propose { candidates, overlap: 0.7, most, smallest: 1e-3 }
}

/// The paper's, where VGG's last pooling is left out; candidates, which the paper does not tell, are those of its
/// implementation.
const PAPER: Layout = Layout {
    side: 600,
    poolings: 4,
    sizes: &[128.0, 256.0, 512.0],
    chosen: [256, 128],
    proposals: [propose(12_000, 2000), propose(6000, 300)],
    bins: Bins::Largest,
};

/// Without its fourth pooling.
const WITHOUT_FOURTH_POOLING: Layout = Layout {
    side: 128,
    poolings: 3,
    sizes: &[8.0, 16.0, 32.0, 64.0],
    chosen: [256, 64],
    proposals: [propose(1000, 200), propose(500, 100)],
    // Of a cell a few places wide, whole places would be coarse.
    bins: Bins::Mean,
};

const fn layout(small: bool) -> &'static Layout {
    if small { &WITHOUT_FOURTH_POOLING } else { &PAPER }
}

/// VGG-16's convolutions, of whose features a small network proposes regions: at each place it tells of nine anchors whether
/// they are something, and how far the truth is off. Of each region that is kept, VGG's two dense layers with dropout,
/// behind the largest of its features in each of 7 × 7 bins ([`Var::roi_pool`]), tell the class and, for each class, where
/// exactly it is.
///
/// Which regions there are is decided between the two, on the host: [`Regions`]. So an answer takes two evaluations, and a
/// step of training an evaluation before it; regions are constants to it, as in torchvision.
///
/// Layers are called as those of torchvision's `FasterRCNN` with `vgg16().features` without the last pooling as its
/// backbone and a `TwoMLPHead`, whose weights import. A small one begins untrained, with batch norm behind VGG's
/// convolutions, halves three times instead of four, has twelve anchors at each place, takes means of bins
/// ([`Var::roi_align`]), as torchvision's, and drops nothing.
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
    /// Whether an anchor is something; its code.
    anchors: [Conv2d; 2],
    dense: [Linear; 2],
    dropout: Dropout,
    /// Classes of regions; their codes.
    told: [Linear; 2],
    /// Channels of the features.
    channels: usize,
    classes: usize,
    small: bool,
}

impl FasterRcnn {
    /// For so many classes beside the background. First weights as torchvision's and the paper's; small, those of He et al.
    /// (2015) of all but what answers.
    pub fn new(scope: &mut Scope<'_>, scale: Scale, classes: usize) -> Self {
        let (layout, small) = (layout(scale.small), scale.small);
        let features = Features::new(&mut scope.at("backbone"), 3, scale, small);
        let [channels, units] = [CHANNELS, DENSE].map(|whole| scale.scale_channels(whole));
        let answer = |std| Init::Normal { mean: 0.0, std };
        // What is small begins untrained: through so small weights little would come.
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

    /// The shorter side of the images that it is trained with.
    #[must_use]
    pub const fn side(small: bool) -> usize {
        layout(small).side
    }

    /// What is decided between proposing and telling, for images of so many rows and columns.
    #[must_use]
    pub fn regions(&self, image: [usize; 2]) -> Regions {
        Regions::new(layout(self.small), image, self.classes)
    }

    /// The layer that reads flattened images, with their rows, columns and channels: see
    /// [`TorchModule::flattened`](crate::TorchModule::flattened).
    #[must_use]
    pub const fn flattened(&self) -> (&'static str, [usize; 3]) {
        ("roi_heads.box_head.fc6", [BINS as usize, BINS as usize, self.channels])
    }

    /// Of images `[n, h, w, 3]` the features.
    fn features<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.features.unpooled(x, layout(self.small).poolings)
    }

    /// Of features, logits `[n, 1, anchors, 1]` and codes `[n, 1, anchors, 4]`.
    fn of_anchors<'t>(&self, features: Var<'t>) -> [Var<'t>; 2] {
        let inner = self.region.forward(features).relu();
        [(0, 1), (1, 4)].map(|(which, each)| {
            let y = self.anchors[which].forward(inner);
            let [n, h, w, c] = y.shape().sizes();
            y.reshape([n, 1, h * w * c / each, each])
        })
    }

    /// Of features and boxes `[regions, 5]`, logits `[regions, 1 + classes]` and codes `[regions, 4 · (1 + classes)]`.
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

    /// Of images `[n, h, w, 3]`, `[n, 1, anchors, 5]`: how likely each anchor is something, as a logit, and the code of what
    /// it is, for [`Regions::proposals`].
    ///
    /// # Errors
    /// Images that are too small.
    pub fn proposed<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [logits, codes] = self.of_anchors(self.features(x));
        logits.concat(&[codes], 3)
    }

    /// Of images `[n, h, w, 3]` and boxes `[regions, 5]` ([`Regions::listed`]), `[regions, 5 · (1 + classes)]`: logits of
    /// the classes, the background first, and codes of each, for [`Regions::found`].
    ///
    /// # Errors
    /// Boxes of another shape.
    pub fn told<'t>(&self, x: Var<'t>, boxes: Var<'t>) -> Var<'t> {
        let [logits, codes] = self.of_regions(self.features(x), boxes);
        logits.concat(&[codes], 3)
    }

    /// The losses of images `[n, h, w, 3]`, of anchors and of regions `[regions, 5]`: see [`Var::anchor_loss`],
    /// [`Var::region_loss`], [`AnchorTargets`] and [`RegionTargets`]. Training minimises their sum.
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
