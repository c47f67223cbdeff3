//! Loss of SSD detectors (Liu et al. 2016, section 2.2), whose negatives are selected by the losses themselves.

use crate::{
    Shape, TraceError, Var,
    graph::{BufferId, Context, Gradient, Operation, Operator, other_shape, unary},
};
use gradscale_core::{
    amp::Precision,
    backend::Slot,
    ops::{Binary, BinaryOp, Broadcast, Op, Reduce, ReduceOp, Unary},
};

/// Number of bisection steps of the range of losses: as many as an f32 has significand bits, so that no threshold is
/// rounded.
const HALVINGS: usize = 24;

/// Targets of default boxes, and the weights of their losses: see [`Var::multibox_loss`].
#[derive(Clone, Copy, Debug)]
pub struct MultiBox<'t> {
    /// Class of each default box, integers `[n, boxes]`; 0 is background.
    pub labels: Var<'t>,
    /// Codes of the matched truth, `[n, 1, boxes, 4]`; arbitrary for background.
    pub codes: Var<'t>,
    /// Number of background boxes of each image that count, `[n]`, at most all of them.
    pub negatives: Var<'t>,
    /// Factor of the sum of all losses, a scalar: 1 / matched boxes for a mean over these.
    pub share: Var<'t>,
}

impl<'t> Var<'t> {
    /// Computes the loss of an SSD detector, a scalar in f32. It adds the cross-entropy of the logits
    /// `[n, 1, boxes, classes]`, for all matched boxes and each image's hardest background boxes, and the smooth L1
    /// distance (β = 1) of the `offsets` `[n, 1, boxes, 4]` of matched boxes from their codes.
    ///
    /// The hardest background boxes are selected on the device, from the losses of the same forward pass, by a
    /// threshold for each image. The threshold is found by bisection of the range of its losses. Losses within f32
    /// resolution of it share the remaining slots evenly; a sort would select some of them by their index.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn multibox_loss(self, offsets: Self, truth: &MultiBox<'t>) -> Self {
        self.try_record(|| {
            let [n, _, boxes, classes] = self.shape().sizes();
            let MultiBox { labels, codes, negatives, share } = *truth;
            for (operand, found, expected) in [
                ("logits", self, [n, 1, boxes, classes].into()),
                ("offsets", offsets, [n, 1, boxes, 4].into()),
                ("codes", codes, [n, 1, boxes, 4].into()),
                ("labels", labels, [n, boxes].into()),
                ("negatives", negatives, [n].into()),
                ("share", share, Shape::SCALAR),
            ] {
                if found.shape() != expected {
                    return Err(other_shape("multibox_loss", operand, found, expected));
                }
            }
            let right = labels.one_hot(classes);
            let losses = -(self.log_softmax() * right).sum_axis(3);
            let background = right.slice(3, 0, 1);
            let matched = background.affine(-1.0, 1.0);
            let counted = matched + losses.hard_negatives(background, negatives);
            let distances = ((offsets - codes) * matched).smooth_l1_sum(1.0);
            Ok(((losses * counted).sum() + distances) * share)
        })
    }

    /// Selects the largest losses. Of losses `[n, 1, boxes, 1]`, the result is 1 for the largest of each image among
    /// those whose `background` is 1, as many as `counts` `[n]`, and 0 for all others. Losses that share a slot get a
    /// fraction. No gradient flows back.
    fn hard_negatives(self, background: Self, counts: Self) -> Self {
        let operator = HardNegatives;
        self.record_op("hard_negatives", Op::Select, operator, &[background, counts], self.shape())
    }
}

/// Operator that selects the hardest negatives of SSD's loss, with inputs losses, background and counts.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HardNegatives;

/// Sizes of the launches over all boxes of all images, or over one value per image.
#[derive(Clone, Copy, Debug)]
struct BoxCounts {
    images: u32,
    boxes: u32,
}

impl BoxCounts {
    const fn len(self) -> usize {
        self.images as usize * self.boxes as usize
    }

    /// Emits a function of two values for each box; `b` has one value per image if it is `of_image`.
    fn binary(
        self, at: &mut Context<'_, '_, '_>, op: BinaryOp, [a, b]: [BufferId; 2], of_image: bool,
    ) -> Result<BufferId, TraceError> {
        let over = if of_image { Broadcast::PerRow } else { Broadcast::All };
        let p = Binary::new(op, self.images, self.boxes, over).map_err(|error| at.node.error(error))?;
        Ok(at.emit_temporary(self.len(), Slot::ONE, |y| Operation::Binary { p, a, b, y }))
    }

    /// Emits a function of two values for each image.
    fn of_images(self, at: &mut Context<'_, '_, '_>, op: BinaryOp, ab: [BufferId; 2]) -> Result<BufferId, TraceError> {
        Self { boxes: 1, ..self }.binary(at, op, ab, false)
    }

    fn reduce(self, at: &mut Context<'_, '_, '_>, op: ReduceOp, x: BufferId) -> Result<BufferId, TraceError> {
        let p = Reduce::new(op, self.images, self.boxes, 1).map_err(|error| at.node.error(error))?;
        Ok(at.emit_temporary(self.images as usize, Slot::ONE, |y| Operation::Reduce { p, x, y }))
    }

    /// Emits a comparison: 1 where a is above b, else 0.
    fn above(self, at: &mut Context<'_, '_, '_>, ab: [BufferId; 2], of_image: bool) -> Result<BufferId, TraceError> {
        let difference = self.binary(at, BinaryOp::Sub, ab, of_image)?;
        let sign = at.emit_temporary(self.len(), Slot::ONE, |y| unary(Unary::Sign, difference, y));
        Ok(at.emit_temporary(self.len(), Slot::ONE, |y| unary(Unary::Relu, sign, y)))
    }
}

impl Operator for HardNegatives {
    /// Emits the bisection. It keeps a range for each image, from `low` on and `width` wide. More losses than wanted
    /// are above its start, unless the start is the initial one; at most as many are above its end.
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (losses, background) = (at.read(0)?.buf, at.read(1)?.buf);
        let counts = at.read_in(2, Some(Precision::Single))?.buf;
        let node = at.node;
        let [n, _, boxes, _] = node.shape.sizes();
        let all = BoxCounts { images: node.size(n)?, boxes: node.size(boxes)? };
        let images = BoxCounts { boxes: 1, ..all };
        let one = |at: &mut Context<'_, '_, '_>, rows: BoxCounts, op: Unary, x: BufferId| {
            at.emit_temporary(rows.len(), Slot::ONE, |y| unary(op, x, y))
        };
        // Thresholds are fractions of the largest loss, so that each is a sum of powers of two without rounding.
        // Matched boxes, whose `background` is 0, are below all others.
        let kept = all.binary(at, BinaryOp::Mul, [losses, background], false)?;
        let (most, least) = (all.reduce(at, ReduceOp::Max, kept)?, at.constant(vec![f32::MIN_POSITIVE; n]));
        let most = all.of_images(at, BinaryOp::Max, [most, least])?;
        let kept = all.binary(at, BinaryOp::Div, [kept, most], true)?;
        let below = one(at, all, Unary::Affine { a: 2.0, b: -2.0 }, background);
        let losses = all.binary(at, BinaryOp::Add, [kept, below], false)?;
        let (mut low, mut width) = (at.constant(vec![-1.0; n]), at.constant(vec![2.0; n]));
        for _ in 0..HALVINGS {
            width = one(at, images, Unary::Affine { a: 0.5, b: 0.0 }, width);
            let middle = all.of_images(at, BinaryOp::Add, [low, width])?;
            let above = all.above(at, [losses, middle], true)?;
            let found = all.reduce(at, ReduceOp::Sum, above)?;
            let too_many = images.above(at, [found, counts], false)?;
            let step = all.of_images(at, BinaryOp::Mul, [too_many, width])?;
            low = all.of_images(at, BinaryOp::Add, [low, step])?;
        }
        let high = all.of_images(at, BinaryOp::Add, [low, width])?;
        let [above, alike] = [high, low].map(|threshold| all.above(at, [losses, threshold], true));
        let above = above?;
        let alike = all.binary(at, BinaryOp::Sub, [alike?, above], false)?;
        let [sure, unsure] = [above, alike].map(|some| all.reduce(at, ReduceOp::Sum, some));
        let left = all.of_images(at, BinaryOp::Sub, [counts, sure?])?;
        let left = one(at, images, Unary::Relu, left);
        let ones = at.constant(vec![1.0; n]);
        let unsure = all.of_images(at, BinaryOp::Max, [unsure?, ones])?;
        let part = all.of_images(at, BinaryOp::Div, [left, unsure])?;
        let part = all.binary(at, BinaryOp::Mul, [alike, part], true)?;
        let p = Binary::new(BinaryOp::Add, all.images, all.boxes, Broadcast::All).map_err(|error| node.error(error))?;
        at.store(|y| Operation::Binary { p, a: above, b: part, y })
    }

    fn is_differentiable(&self) -> bool {
        false
    }

    fn vjp(&self, _: &mut Context<'_, '_, '_>, _: Gradient) -> Result<(), TraceError> {
        Ok(())
    }
}
