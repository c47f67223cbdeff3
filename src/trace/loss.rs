//! Losses: one number, in f32.

use super::{Var, Work, mismatch, size};
use crate::{Shape, TraceError};
use gradscale_core::{
    descriptor::{BinaryOp, Divisor, ReduceOp, Xent},
    op::Op,
};

/// What a cross-entropy counts, and by what it divides.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<'t> {
    /// Weight of each class, `[classes]`.
    pub weights: Option<Var<'t>>,
    /// A label that does not count.
    pub ignore: Option<u32>,
    /// By what the sum is divided.
    pub divisor: Divisor,
}

impl Default for CrossEntropy<'_> {
    /// The mean over all rows.
    fn default() -> Self {
        Self { weights: None, ignore: None, divisor: Divisor::Rows }
    }
}

impl<'t> Var<'t> {
    /// Mean cross-entropy of the softmax over channels; labels `[n, h, w]` or `[n]` (u8 or u32), one for each row.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn cross_entropy(self, labels: Self) -> Result<Self, TraceError> {
        self.cross_entropy_with(labels, &CrossEntropy::default())
    }

    /// Cross-entropy with class weights, an ignored label or another divisor.
    ///
    /// # Errors
    /// Shapes that do not fit, a divisor that is not positive.
    pub fn cross_entropy_with(self, labels: Self, options: &CrossEntropy<'t>) -> Result<Self, TraceError> {
        let name = "cross_entropy";
        let (rows, classes) = (self.shape().rows(), self.shape().channels());
        if labels.shape().len() != rows {
            return Err(mismatch(name, labels.shape(), self.shape()));
        }
        if let Some(weights) = options.weights.filter(|weights| weights.shape().len() != classes) {
            return Err(mismatch(name, weights.shape(), self.shape()));
        }
        let build = || {
            let p = Xent::new(size(name, rows)?, size(name, classes)?).map_err(|error| TraceError::new(name, error))?;
            let p = options.ignore.map_or(p, |label| p.ignoring(label));
            p.divided_by(options.divisor).map_err(|error| TraceError::new(name, error))
        };
        let others: Vec<Self> = std::iter::once(labels).chain(options.weights).collect();
        Ok(self.then(name, Op::CrossEntropy, Work::Xent(build()?), &others, Shape::SCALAR))
    }

    /// Mean of (x − target)².
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn mse_loss(self, target: Self) -> Result<Self, TraceError> {
        let difference = self.binary("mse_loss", Op::MseLoss, BinaryOp::Sub, target)?;
        let square = difference.binary("mse_loss", Op::MseLoss, BinaryOp::Mul, difference)?;
        square.reduce("mse_loss", Op::MseLoss, ReduceOp::Mean)
    }

    /// Mean of |x − target|.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn l1_loss(self, target: Self) -> Result<Self, TraceError> {
        let difference = self.binary("l1_loss", Op::L1Loss, BinaryOp::Sub, target)?;
        let size = difference.then(
            "l1_loss",
            Op::L1Loss,
            Work::Unary(gradscale_core::descriptor::Unary::Abs),
            &[],
            difference.shape(),
        );
        size.reduce("l1_loss", Op::L1Loss, ReduceOp::Mean)
    }
}
