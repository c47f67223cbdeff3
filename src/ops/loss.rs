//! Losses that are composed of other operators: a scalar, in f32.

use super::smooth::{Huber, Softplus};
use crate::{TraceError, Var};
use gradscale_core::ops::{BinaryOp, Op, ReduceOp, ShapeError, Unary};

impl<'t> Var<'t> {
    /// Computes the mean squared error, the mean of (x − target)².
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn mse_loss(self, target: Self) -> Self {
        let difference = self.binary("mse_loss", Op::MseLoss, BinaryOp::Sub, target);
        let square = difference.binary("mse_loss", Op::MseLoss, BinaryOp::Mul, difference);
        square.reduce("mse_loss", Op::MseLoss, ReduceOp::Mean)
    }

    /// Computes the mean absolute error, the mean of |x − target|.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn l1_loss(self, target: Self) -> Self {
        let difference = self.binary("l1_loss", Op::L1Loss, BinaryOp::Sub, target);
        let size = difference.record_op("l1_loss", Op::L1Loss, Unary::Abs, &[], difference.shape());
        size.reduce("l1_loss", Op::L1Loss, ReduceOp::Mean)
    }

    /// Computes the smooth L1 loss, for β = 1 the Huber loss: the mean of d²/2β where |d| < β and of |d| − β/2
    /// elsewhere, with d = x − target.
    ///
    /// # Errors
    /// Shapes that do not fit, or a `beta` that is not positive.
    pub fn smooth_l1_loss(self, target: Self, beta: f32) -> Self {
        self.try_record(|| {
            let (name, op) = ("smooth_l1_loss", Op::SmoothL1Loss);
            if !(beta > 0.0 && beta.is_finite()) {
                return Err(TraceError::new(name, ShapeError::Value(beta)));
            }
            let difference = self.binary(name, op, BinaryOp::Sub, target);
            let loss = difference.record_op(name, op, Huber(beta), &[], difference.shape());
            Ok(loss.reduce(name, op, ReduceOp::Mean))
        })
    }

    /// Computes the sum of x²/2β where |x| < β and of |x| − β/2 elsewhere, for losses with several parts.
    pub(super) fn smooth_l1_sum(self, beta: f32) -> Self {
        let (name, op) = ("smooth_l1_loss", Op::SmoothL1Loss);
        self.record_op(name, op, Huber(beta), &[], self.shape()).reduce(name, op, ReduceOp::Sum)
    }

    /// Computes the mean binary cross-entropy of sigmoid(x) against targets in [0, 1]: ln(1 + e^x) − x·target, which
    /// does not overflow for any logit.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn bce_with_logits(self, target: Self) -> Self {
        let (name, op) = ("binary_cross_entropy", Op::BinaryCrossEntropy);
        // Both terms nearly cancel if the network is correct. Their gradients are added at this f32 copy, before the
        // cast.
        let x = self.record_op(name, op, Unary::Id, &[], self.shape());
        let log = x.record_op(name, op, Softplus, &[], x.shape());
        let product = x.binary(name, op, BinaryOp::Mul, target);
        log.binary(name, op, BinaryOp::Sub, product).reduce(name, op, ReduceOp::Mean)
    }

    /// Computes the focal loss (Lin et al. 2017): the mean of −α_t·(1 − p_t)^γ·ln p_t, with p_t the probability that
    /// sigmoid(x) assigns to the correct class. Targets are 0 or 1; α_t is `alpha` for 1 and 1 − `alpha` for 0.
    ///
    /// # Errors
    /// Shapes that do not fit, an `alpha` outside [0, 1], or a `gamma` below 0.
    pub fn focal_loss(self, target: Self, alpha: f32, gamma: f32) -> Self {
        self.try_record(|| {
            let (name, op) = ("focal_loss", Op::FocalLoss);
            if !(0.0..=1.0).contains(&alpha) {
                return Err(TraceError::new(name, ShapeError::Value(alpha)));
            }
            if !(gamma >= 0.0 && gamma.is_finite()) {
                return Err(TraceError::new(name, ShapeError::Value(gamma)));
            }
            let unary = |var: Self, function: Unary| var.record_op(name, op, function, &[], var.shape());
            let affine = |var: Self, a: f32, b: f32| unary(var, Unary::Affine { a, b });
            let softplus = |var: Self| var.record_op(name, op, Softplus, &[], var.shape());
            // z = ±x, so that −ln p_t = ln(1 + e^z), and (1 − p_t)^γ = e^(−γ·ln(1 + e^-z)), which is not NaN for any
            // logit.
            let z = self.binary(name, op, BinaryOp::Mul, affine(target, -2.0, 1.0));
            let share = unary(affine(softplus(affine(z, -1.0, 0.0)), -gamma, 0.0), Unary::Exp);
            let loss = softplus(z).binary(name, op, BinaryOp::Mul, share);
            let weighted = loss.binary(name, op, BinaryOp::Mul, affine(target, 2.0 * alpha - 1.0, 1.0 - alpha));
            Ok(weighted.reduce(name, op, ReduceOp::Mean))
        })
    }
}
