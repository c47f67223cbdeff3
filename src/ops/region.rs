//! The losses of Faster R-CNN (Ren et al. 2015, section 3.1.2; Girshick 2015, section 2.3), of which choices are made before:
//! what is not chosen does not count.

use super::smooth::Softplus;
use crate::{Shape, TraceError, Var, graph::mismatch};
use gradscale_core::ops::{BinaryOp, Op, ReduceOp, Unary};

/// Where smooth L1 turns from a square to a line, as torchvision has it.
const BETA: f32 = 1.0 / 9.0;

/// What anchors are compared with, and which of them count: see [`Var::anchor_loss`].
#[derive(Clone, Copy, Debug)]
pub struct AnchorTruth<'t> {
    /// 1 for each anchor that is chosen and stands for something, −1 for what is chosen of the background, 0 for all others,
    /// `[n, 1, anchors, 1]`.
    pub signs: Var<'t>,
    /// Codes of what they stand for, `[n, 1, anchors, 4]`; anything where the sign is not 1.
    pub codes: Var<'t>,
    /// By what the sum of all losses is multiplied, one number: 1 / chosen anchors for a mean over these.
    pub share: Var<'t>,
}

/// What regions are compared with, and which of them count: see [`Var::region_loss`].
#[derive(Clone, Copy, Debug)]
pub struct RegionTruth<'t> {
    /// The class of each region, integers `[regions]`; 0 is background.
    pub labels: Var<'t>,
    /// Which of the codes are that class's, integers `[regions]`: region · classes + class.
    pub places: Var<'t>,
    /// 1 for each region that counts, 0 for what only fills up, which is background, `[regions]`.
    pub counted: Var<'t>,
    /// Codes of what they stand for, `[regions, 4]`; anything where the class is background.
    pub codes: Var<'t>,
    /// By what the sum of all losses is multiplied, one number: 1 / regions that count for a mean over these.
    pub share: Var<'t>,
}

/// That these have these shapes.
fn check<const N: usize>(name: &str, shapes: [(Var<'_>, Shape); N]) -> Result<(), TraceError> {
    let wrong = shapes.into_iter().find(|(found, expected)| found.shape() != *expected);
    wrong.map_or(Ok(()), |(found, expected)| Err(mismatch(name, found.shape(), expected)))
}

impl<'t> Var<'t> {
    /// The loss of a network of proposals, one number in f32: of these logits `[n, 1, anchors, 1]` the binary cross-entropy of
    /// chosen anchors, whether they are something; of the `codes` `[n, 1, anchors, 4]` of those that are the smooth L1
    /// distance (β = 1/9).
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn anchor_loss(self, codes: Self, truth: &AnchorTruth<'t>) -> Self {
        self.traced(|| {
            let [n, _, anchors, _] = self.shape().sizes();
            let [one, four] = [1, 4].map(|each| Shape::from([n, 1, anchors, each]));
            let AnchorTruth { signs, codes: right, share } = *truth;
            let all = [(self, one), (codes, four), (signs, one), (right, four), (share, Shape::SCALAR)];
            check("anchor_loss", all)?;
            let (name, op) = ("binary_cross_entropy", Op::BinaryCrossEntropy);
            // −ln of the probability of what is right is ln(1 + e^−x) of something, ln(1 + e^x) of background.
            let wrong = self.binary(name, op, BinaryOp::Mul, signs.scale(-1.0));
            let losses =
                wrong.then(name, op, Softplus, &[], one).binary(name, op, BinaryOp::Mul, signs.unary(Unary::Abs));
            let distances = ((codes - right) * signs.relu()).smooth_l1_sum(BETA);
            Ok((losses.reduce(name, op, ReduceOp::Sum) + distances) * share)
        })
    }

    /// The loss of what is said of regions, one number in f32: of these logits `[regions, classes]` the cross-entropy; of the
    /// `codes` `[regions, 4 · classes]` those of the right class, of regions that are not background, their smooth L1
    /// distance (β = 1/9).
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn region_loss(self, codes: Self, truth: &RegionTruth<'t>) -> Self {
        self.traced(|| {
            let [regions, _, _, classes] = self.shape().sizes();
            let [of_class, four] = [classes, 4].map(|each| Shape::from([regions, each]));
            let RegionTruth { labels, places, counted, codes: right, share } = *truth;
            let (one, of_all) = (Shape::from([regions]), Shape::from([regions, 4 * classes]));
            check("region_loss", [(self, of_class), (codes, of_all), (right, four), (share, Shape::SCALAR)])?;
            check("region_loss", [(labels, one), (places, one), (counted, one)])?;
            let known = labels.one_hot(classes);
            let losses = -(self.log_softmax() * known).sum_axis(3);
            let there = known.slice(3, 0, 1).affine(-1.0, 1.0);
            let own = codes.reshape([regions * classes, 4]).gather("region_codes", 0, places);
            let distances = ((own - right) * there).smooth_l1_sum(BETA);
            Ok(((losses * counted).sum() + distances) * share)
        })
    }
}
