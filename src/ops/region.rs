//! Losses of Faster R-CNN (Ren et al. 2015, section 3.1.2; Girshick 2015, section 2.3). Anchors and regions are sampled
//! before; others do not count.

use super::smooth::Softplus;
use crate::{Shape, TraceError, Var, graph::other_shape};
use gradscale_core::ops::{BinaryOp, Op, ReduceOp, Unary};

/// Limit between the quadratic and the linear part of smooth L1, as in torchvision.
const BETA: f32 = 1.0 / 9.0;

/// Targets of Faster R-CNN's anchors, and the anchors that count: see [`Var::anchor_loss`].
#[derive(Clone, Copy, Debug)]
pub struct AnchorTruth<'t> {
    /// Sign of each anchor, `[n, 1, anchors, 1]`: 1 if it is sampled and assigned to a truth, −1 if it is sampled
    /// background, 0 for all others.
    pub signs: Var<'t>,
    /// StoreSpec codes, `[n, 1, anchors, 4]`; arbitrary if the sign is not 1.
    pub codes: Var<'t>,
    /// Factor of the sum of all losses, a scalar: 1 / sampled anchors for a mean over these.
    pub share: Var<'t>,
}

/// Targets of Faster R-CNN's regions, and the regions that count: see [`Var::region_loss`].
#[derive(Clone, Copy, Debug)]
pub struct RegionTruth<'t> {
    /// Class of each region, integers `[regions]`; 0 is background.
    pub labels: Var<'t>,
    /// Index of the code of that class, integers `[regions]`: region · classes + class.
    pub places: Var<'t>,
    /// Weight of each region, `[regions]`: 1 if it counts, 0 for padding, which is background.
    pub counted: Var<'t>,
    /// StoreSpec codes of the regions, `[regions, 4]`; arbitrary for background.
    pub codes: Var<'t>,
    /// Factor of the sum of all losses, a scalar: 1 / counted regions for a mean over these.
    pub share: Var<'t>,
}

/// Checks that each value has the shape that is expected of it.
fn check<const N: usize>(name: &str, operands: [(&'static str, Var<'_>, Shape); N]) -> Result<(), TraceError> {
    let wrong = operands.into_iter().find(|(_, found, expected)| found.shape() != *expected);
    wrong.map_or(Ok(()), |(operand, found, expected)| Err(other_shape(name, operand, found, expected)))
}

impl<'t> Var<'t> {
    /// Computes the loss of a region proposal network, a scalar in f32. It adds the binary cross-entropy of the logits
    /// `[n, 1, anchors, 1]` of sampled anchors, and the smooth L1 distance (β = 1/9) of the `codes`
    /// `[n, 1, anchors, 4]` of those assigned to a truth.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn anchor_loss(self, codes: Self, truth: &AnchorTruth<'t>) -> Self {
        self.try_record(|| {
            let [n, _, anchors, _] = self.shape().sizes();
            let [one, four] = [1, 4].map(|each| Shape::from([n, 1, anchors, each]));
            let AnchorTruth { signs, codes: right, share } = *truth;
            let all = [
                ("logits", self, one),
                ("codes", codes, four),
                ("signs", signs, one),
                ("true codes", right, four),
                ("share", share, Shape::SCALAR),
            ];
            check("anchor_loss", all)?;
            let (name, op) = ("binary_cross_entropy", Op::BinaryCrossEntropy);
            // −ln of the probability of the correct answer is ln(1 + e^−x) for an object, ln(1 + e^x) for background.
            let wrong = self.binary(name, op, BinaryOp::Mul, signs.scale(-1.0));
            let losses =
                wrong.record_op(name, op, Softplus, &[], one).binary(name, op, BinaryOp::Mul, signs.unary(Unary::Abs));
            let distances = ((codes - right) * signs.relu()).smooth_l1_sum(BETA);
            Ok((losses.reduce(name, op, ReduceOp::Sum) + distances) * share)
        })
    }

    /// Computes the loss of the regions' outputs, a scalar in f32. It adds the cross-entropy of the logits
    /// `[regions, classes]`, and the smooth L1 distance (β = 1/9) of the correct class's `codes`, of
    /// `[regions, 4 · classes]`, for regions that are not background.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn region_loss(self, codes: Self, truth: &RegionTruth<'t>) -> Self {
        self.try_record(|| {
            let [regions, _, _, classes] = self.shape().sizes();
            let [of_class, four] = [classes, 4].map(|each| Shape::from([regions, each]));
            let RegionTruth { labels, places, counted, codes: right, share } = *truth;
            let (one, of_all) = (Shape::from([regions]), Shape::from([regions, 4 * classes]));
            let floats = [
                ("logits", self, of_class),
                ("codes", codes, of_all),
                ("true codes", right, four),
                ("share", share, Shape::SCALAR),
            ];
            check("region_loss", floats)?;
            let integers = [("labels", labels, one), ("places", places, one), ("counted", counted, one)];
            check("region_loss", integers)?;
            let known = labels.one_hot(classes);
            let losses = -(self.log_softmax() * known).sum_axis(3);
            let there = known.slice(3, 0, 1).affine(-1.0, 1.0);
            let own = codes.reshape([regions * classes, 4]).gather("region_codes", 0, places);
            let distances = ((own - right) * there).smooth_l1_sum(BETA);
            Ok(((losses * counted).sum() + distances) * share)
        })
    }
}
