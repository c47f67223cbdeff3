//! Single-shot detectors: SSD-300 and SSD-512 (Liu et al. 2016).

use super::{Scale, vgg::LEVELS};
use crate::{
    Fan, Init, Parameter, Scope, Var,
    boxes::{Corners, Grid, default_boxes},
    nn::{BatchNorm, Conv2d, Module},
};
use gradscale_core::ops::{Pool, PoolOp};
use std::f32::consts::SQRT_2;

/// Initial length of the fourth level's features in each pixel, for the paper's number of channels. With fewer channels
/// it is less, so that each channel has the same magnitude.
const LENGTH: f32 = 20.0;
/// Minimum mean square of a pixel's features. In a narrow network all of them can be zero after ReLU; without this
/// limit the gradient would leave the range of half precision.
const EPS: f32 = 1e-6;
/// Number of channels of the convolutions that replace VGG's fully connected layers.
const DENSE: usize = 1024;

/// Variant of SSD by the size of its images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SsdSize {
    /// SSD300: 300 × 300 pixels with 8732 default boxes; the small network has 128 × 128.
    Ssd300,
    /// SSD512: 512 × 512 pixels with 24564 default boxes; the small network has 192 × 192.
    Ssd512,
}

/// Convolution of the VGG backbone; the small network adds batch norm.
type ConvNorm = (Conv2d, Option<BatchNorm>);

/// Two convolutions after VGG: channels of the first, 1 × 1; channels, kernel, stride and padding of the second.
type Extra = (usize, usize, usize, u32, u32);

/// Layout of an SSD variant: settings that depend on the image size. For each feature map: its side, its stride, the
/// size of its default boxes as a fraction of the image (with that of one more map), and their aspect ratios.
#[derive(Debug)]
struct Layout {
    side: usize,
    /// Dilation of the first dense layer's kernel: it covers about two thirds of its map.
    dilation: u32,
    maps: &'static [usize],
    strides: &'static [usize],
    scales: &'static [f64],
    ratios: &'static [&'static [f64]],
    extras: &'static [Extra],
}

const HALVES: Extra = (128, 256, 3, 2, 1);
const INNER: Extra = (128, 256, 3, 1, 0);
const REDUCE_AND_HALVE: Extra = (256, 512, 3, 2, 1);

/// Layout of SSD for 300 × 300 pixels: settings of torchvision's `ssd300_vgg16`.
const SSD_300: Layout = Layout {
    side: 300,
    dilation: 6,
    maps: &[38, 19, 10, 5, 3, 1],
    strides: &[8, 16, 32, 64, 100, 300],
    scales: &[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
    ratios: &[&[2.0], &[2.0, 3.0], &[2.0, 3.0], &[2.0, 3.0], &[2.0], &[2.0]],
    extras: &[REDUCE_AND_HALVE, HALVES, INNER, INNER],
};

/// Layout of SSD for 512 × 512 pixels: settings of the paper's implementation for PASCAL VOC.
const SSD_512: Layout = Layout {
    side: 512,
    dilation: 6,
    maps: &[64, 32, 16, 8, 4, 2, 1],
    strides: &[8, 16, 32, 64, 128, 256, 512],
    scales: &[0.07, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.05],
    ratios: &[&[2.0], &[2.0, 3.0], &[2.0, 3.0], &[2.0, 3.0], &[2.0, 3.0], &[2.0], &[2.0]],
    extras: &[REDUCE_AND_HALVE, HALVES, HALVES, HALVES, (128, 256, 4, 1, 1)],
};

const SMALL_300: Layout = Layout {
    side: 128,
    dilation: 2,
    maps: &[16, 8, 4, 2],
    strides: &[8, 16, 32, 64],
    scales: &[0.07, 0.15, 0.33, 0.51, 0.69],
    ratios: &[&[2.0], &[2.0, 3.0], &[2.0, 3.0], &[2.0]],
    extras: &[REDUCE_AND_HALVE, HALVES],
};

const SMALL_512: Layout = Layout {
    side: 192,
    dilation: 3,
    maps: &[24, 12, 6, 3, 1],
    strides: &[8, 16, 32, 64, 192],
    scales: &[0.07, 0.15, 0.3, 0.45, 0.6, 0.75],
    ratios: &[&[2.0], &[2.0, 3.0], &[2.0, 3.0], &[2.0], &[2.0]],
    extras: &[REDUCE_AND_HALVE, HALVES, INNER],
};

impl SsdSize {
    const fn layout(self, small: bool) -> &'static Layout {
        match (self, small) {
            (Self::Ssd300, false) => &SSD_300,
            (Self::Ssd512, false) => &SSD_512,
            (Self::Ssd300, true) => &SMALL_300,
            (Self::Ssd512, true) => &SMALL_512,
        }
    }

    /// Returns the height and width in pixels of the input images.
    #[must_use]
    pub const fn side(self, small: bool) -> usize {
        self.layout(small).side
    }

    /// Returns the default boxes of this variant, as fractions of the image, in the order of the network's outputs.
    #[must_use]
    pub fn default_boxes(self, small: bool) -> Vec<Corners> {
        default_boxes(&self.layout(small).grids())
    }
}

impl Layout {
    fn grids(&self) -> Vec<Grid> {
        let grid = |map: usize| {
            #[expect(clippy::cast_precision_loss, reason = "sides of images")]
            let places = self.side as f64 / self.strides[map] as f64;
            Grid {
                size: [self.maps[map]; 2],
                places: [places; 2],
                scales: [self.scales[map], self.scales[map + 1]],
                ratios: self.ratios[map].to_vec(),
            }
        };
        (0..self.maps.len()).map(grid).collect()
    }
}

/// SSD detector. The backbone is VGG-16 up to its fourth level, whose features are normalised to one length in each
/// pixel and multiplied by a learned factor for each channel. Its fifth level follows, then two convolutions, the first
/// dilated, in place of the fully connected layers, and further convolutions down to one pixel. On each of these maps
/// one convolution predicts the classes of the default boxes, and another their offsets.
///
/// Layers have the names of torchvision's `ssd300_vgg16`, which SSD-300 with [`Scale::PAPER`] equals, so its weights
/// can be imported. SSD-512 is the paper's, with `conv12_2` and seven maps. The paper's networks start with VGG's
/// weights; the small network is trained from scratch, which works with batch norm after VGG's convolutions (Zhu et al.
/// 2019, `ScratchDet`).
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, models::{Scale, Ssd, SsdSize}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let net = Ssd::new(&mut parameters.at("net"), SsdSize::Ssd300, Scale::small(1), 3);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let image = vec![0.5; 128 * 128 * 3];
/// let logits = trainer.evaluate([Input::f32([1, 128, 128, 3], &image)], |[x]| net.answers(x)[0])?;
/// let boxes = SsdSize::Ssd300.default_boxes(true).len();
/// // Three classes, and the background first.
/// assert_eq!(logits.shape.sizes(), [1, 1, boxes, 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ssd {
    levels: Vec<Vec<ConvNorm>>,
    name: String,
    length: Parameter,
    dense: [Conv2d; 2],
    extras: Vec<[Conv2d; 2]>,
    /// Output convolutions of each feature map: logits of classes, and offsets of boxes.
    heads: Vec<[Conv2d; 2]>,
    classes: usize,
}

impl Ssd {
    /// Creates the SSD detector for `classes` classes besides the background. Weights are initialised as in
    /// torchvision: VGG's normal (He et al. 2015), all others Glorot's. In the small network all are He's, except for
    /// the output layers.
    pub fn new(scope: &mut Scope<'_>, size: SsdSize, scale: Scale, classes: usize) -> Self {
        let layout = size.layout(scale.small);
        let mut backbone = scope.at("backbone");
        let xavier = Init::XavierUniform { gain: 1.0 };
        // The small network is trained from scratch, and with torchvision's initialisation its activations would
        // vanish.
        let init = if scale.small { Init::HeNormal } else { xavier };
        let (levels, features) = levels(&mut backbone, scale);
        #[expect(clippy::cast_precision_loss, reason = "channels")]
        let first = LENGTH * (features as f32 / LEVELS[3].0 as f32).sqrt();
        let length = backbone.weight("scale_weight", [features], Init::Constant(first));
        let mut conv = |name: &str, from, to, kernel| {
            let at = &mut backbone.at(name);
            Conv2d::with_init(at, from, to, kernel, init).bias(at)
        };
        let wide = scale.scale_channels(DENSE);
        // Index after the fifth level.
        let index = 1 + LEVELS[4].1 * numbers(scale);
        let first = conv(&format!("extra.0.{index}.1"), features, wide, 3).dilation(layout.dilation);
        let dense = [first, conv(&format!("extra.0.{index}.3"), wide, wide, 1)];
        let (mut from, mut extras, mut channels) = (wide, Vec::new(), vec![features, wide]);
        for (i, &(middle, to, kernel, stride, pad)) in layout.extras.iter().enumerate() {
            let [middle, to] = [middle, to].map(|channels| scale.scale_channels(channels));
            let first = conv(&format!("extra.{}.0", i + 1), from, middle, 1);
            let second = conv(&format!("extra.{}.2", i + 1), middle, to, kernel).stride(stride).pad([pad; 2]);
            extras.push([first, second]);
            channels.push(to);
            from = to;
        }
        let classes = classes + 1;
        let heads = channels.iter().zip(layout.grids()).enumerate().map(|(i, (&from, grid))| {
            [("classification", classes), ("regression", 4)].map(|(kind, each)| {
                let at = &mut scope.at(&format!("head.{kind}_head.module_list.{i}"));
                Conv2d::with_init(at, from, grid.boxes() * each, 3, xavier).bias(at)
            })
        });
        let heads = heads.collect();
        let name = format!("{}.backbone.length", scope.path());
        Self { levels, name, length, dense, extras, heads, classes }
    }

    /// Computes logits `[n, 1, boxes, 1 + classes]`, background first, and offsets `[n, 1, boxes, 4]`, from images
    /// `[n, side, side, 3]`: see [`Var::multibox_loss`] and [`crate::boxes::detections`].
    ///
    /// # Errors
    /// Images of another size.
    pub fn answers<'t>(&self, x: Var<'t>) -> [Var<'t>; 2] {
        let maps = self.maps(x);
        let answer = |which: usize, each: usize| {
            let mut parts = Vec::new();
            for (map, heads) in maps.iter().zip(&self.heads) {
                let y = heads[which].forward(*map);
                let [n, h, w, c] = y.shape().sizes();
                parts.push(y.reshape([n, 1, h * w * c / each, each]));
            }
            let [first, others @ ..] = &parts[..] else { return x };
            first.concat(others, 2)
        };
        [answer(0, self.classes), answer(1, 4)]
    }

    fn maps<'t>(&self, x: Var<'t>) -> Vec<Var<'t>> {
        let (mut x, mut maps) = (x, Vec::new());
        for (i, level) in self.levels.iter().enumerate() {
            if i > 0 {
                // The third pooling keeps the last row of odd sizes: 75 becomes 38.
                x = x.pool("max_pool", |x| {
                    let pool = Pool::new(PoolOp::Max, x, [2; 2])?;
                    if i == 3 { pool.ceil() } else { Ok(pool) }
                });
            }
            for (conv, norm) in level {
                x = norm.iter().fold(conv.forward(x), |x, norm| norm.forward(x)).relu();
            }
            if i == 3 {
                maps.push(self.rescaled(x));
            }
        }
        x = x.pool("max_pool", |x| Pool::padded(PoolOp::Max, x, [3; 2], [1; 2])?.stride([1; 2]));
        x = self.dense.iter().fold(x, |x, conv| conv.forward(x).relu());
        maps.push(x);
        for pair in &self.extras {
            x = pair.iter().fold(x, |x, conv| conv.forward(x).relu());
            maps.push(x);
        }
        maps
    }

    /// Normalises each pixel's features to unit length and multiplies them by a factor for each channel. It divides by
    /// the root mean square, which is the length over √channels.
    fn rescaled<'t>(&self, x: Var<'t>) -> Var<'t> {
        #[expect(clippy::cast_precision_loss, reason = "channels")]
        let root = (x.shape().channels() as f32).sqrt();
        x.rms_norm(&self.name, EPS, x.tape().parameter(&self.length).scale(1.0 / root))
    }
}

/// Returns the increment of the layer index from one of VGG's convolutions to the next, because ReLU and batch norm
/// have indices too.
const fn numbers(scale: Scale) -> usize {
    if scale.small { 3 } else { 2 }
}

/// Creates VGG's convolutions by level, and returns them with the channels of the last. Those of the fifth level are
/// named as the start of the part after the fourth.
fn levels(backbone: &mut Scope<'_>, scale: Scale) -> (Vec<Vec<ConvNorm>>, usize) {
    let init = if scale.small { Init::HeNormal } else { Init::KaimingNormal { fan: Fan::Out, gain: SQRT_2 } };
    let (mut from, mut index, mut levels) = (3, 0, Vec::new());
    for (level, (channels, count)) in LEVELS.into_iter().enumerate() {
        let to = scale.scale_channels(channels);
        if level == 4 {
            index = 1;
        }
        let place = if level == 4 { "extra.0" } else { "features" };
        let mut layers = Vec::new();
        for _ in 0..count {
            let at = &mut backbone.at(&format!("{place}.{index}"));
            let conv = Conv2d::with_init(at, from, to, 3, init);
            let conv = if scale.small { conv } else { conv.bias(at) };
            let norm = scale.small.then(|| BatchNorm::new(&mut backbone.at(&format!("{place}.{}", index + 1)), to));
            layers.push((conv, norm));
            (from, index) = (to, index + numbers(scale));
        }
        // The pooling has an index too.
        index += 1;
        levels.push(layers);
    }
    (levels, from)
}
