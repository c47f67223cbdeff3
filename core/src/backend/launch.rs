//! Everything that a device computes, as one enum.

use super::{CrossEntropyArgs, CtcArgs, MapOperands, NormSaved, Operands};
use crate::ops::{
    Binary, Conv2d, CrossEntropy, Ctc, GatherScatter, Gemm, Norm, Optimizer, Pass, Pool, Reduce, RoiAlign, RoiPool,
    Rows, Strided, Unary,
};
use core::ops::Range;

/// One operator with its operands.
///
/// Buffers hold at least the elements that a descriptor states; elements beyond are neither read nor written. Where no
/// type is named, a buffer is F32 or F16, each by itself. Images are NHWC, weights OHWI, matrices row by row. Operators
/// compute in f32 and store as [`Store`](super::Store) says.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch<O: Operands> {
    // Element by element.
    /// `y[i] = op(x[i])` for i < len; x may also be U8 or U32. [`Unary::Id`] is the cast.
    Unary {
        /// The function.
        op: Unary,
        /// How many.
        len: u32,
        /// Its argument.
        x: O::Read,
        /// As many.
        y: O::Store,
    },
    /// `y[i] = op(a[i], b[…])` with `b` broadcast as `p` says. [`crate::ops::BinaryOp::Grad`] is the vjp of a
    /// unary function.
    Binary {
        /// Function and shape.
        p: Binary,
        /// The first argument, of the result's shape.
        a: O::Read,
        /// The second argument.
        b: O::Read,
        /// As many as a.
        y: O::Store,
    },
    /// `y[i] = Σ terms[·][i]` for i < len, each from its own slot, in the order given, one rounding: branches, residuals.
    /// `y.from` is not used.
    Sum {
        /// How many.
        len: u32,
        /// What is added.
        terms: O::Terms,
        /// As many.
        y: O::Store,
    },
    /// `y[o, i] = op over l of x[o, l, i]`.
    Reduce {
        /// Operation and shape.
        p: Reduce,
        /// `[outer, len, inner]`.
        x: O::Read,
        /// `[outer, inner]`.
        y: O::Store,
    },
    /// Strided copy, x of any type: permute, slice, concatenate, pad, flip, repeat. A y of the same type and slot
    /// gets the same bits (a NaN: some NaN).
    Copy {
        /// Steps through x and y.
        p: Strided,
        /// From where.
        x: O::Read,
        /// To where; what no step meets stays.
        y: O::Store,
    },

    // Products.
    /// `y = op(a)·op(b) + bias`, batched.
    Gemm {
        /// Sizes, strides, what is transposed.
        p: Gemm,
        /// `[m, k]`, or `[k, m]` transposed.
        a: O::Read,
        /// `[k, n]`, or `[n, k]` transposed.
        b: O::Read,
        /// `[n]`.
        bias: Option<O::Read>,
        /// `[m, n]`.
        y: O::Store,
    },
    /// A pass of a convolution. Forward: (x, w) → y; Data: (dy, w) → dx, also transposed convolution; Weight: (x, dy)
    /// → dw.
    Conv {
        /// Shapes, strides, padding, dilation, groups.
        p: Conv2d,
        /// Which of the three.
        pass: Pass,
        /// The first operand of the pass.
        a: O::Read,
        /// The second.
        b: O::Read,
        /// One value for each channel of the result; none with Weight.
        bias: Option<O::Read>,
        /// The result of the pass.
        y: O::Store,
    },

    // Windows and rows.
    /// Largest or mean value of each window.
    Pool {
        /// Operation and shapes.
        p: Pool,
        /// The images.
        x: O::Read,
        /// U8: takes the offset of the largest inside its window, row by row (the lowest of several).
        indices: Option<O::Write>,
        /// One value for each window.
        y: O::Store,
    },
    /// Scatter, x shaped as the pooled tensor and y as the unpooled one: `y[place] = Σ x` (average: x / area to each
    /// place), 0 elsewhere; the vjp of pooling, and unpooling. Gather, the other way: `y = x[place]` (average: the
    /// mean); the vjp of unpooling.
    Unpool {
        /// Operation and shapes, those of the pooling.
        p: Pool,
        /// Scatter or gather.
        way: GatherScatter,
        /// What is moved.
        x: O::Read,
        /// What [`Launch::Pool`] wrote; needed with max. With padding or an incomplete window all of them still point
        /// into x.
        indices: Option<O::Read>,
        /// Where it goes.
        y: O::Store,
    },
    /// Gather: embedding. Scatter: its vjp, added in the order of the indices.
    Rows {
        /// Shapes.
        p: Rows,
        /// Gather or scatter.
        way: GatherScatter,
        /// The table, or gradients of rows.
        x: O::Read,
        /// U32: the row of each; one beyond the table reads and adds nothing.
        indices: O::Read,
        /// The rows, or the table's gradient.
        y: O::Store,
    },
    /// Gather: boxes of images, resampled. Scatter: its vjp.
    RoiAlign {
        /// Shapes, scale, points.
        p: RoiAlign,
        /// Gather or scatter.
        way: GatherScatter,
        /// The images `[n, h, w, c]`, or gradients of bins `[boxes, rows, columns, c]`.
        x: O::Read,
        /// F32 `[boxes, 5]`: image, left, top, right, bottom.
        boxes: O::Read,
        /// The bins, or the gradient of the images.
        y: O::Store,
    },
    /// Boxes of images, the largest value of each part.
    RoiPool {
        /// Shapes, scale.
        p: RoiPool,
        /// The images `[n, h, w, c]`.
        x: O::Read,
        /// F32 `[boxes, 5]`: image, left, top, right, bottom.
        boxes: O::Read,
        /// U32, as many as y: takes the place of the largest inside its image, row by row (the first of several), or
        /// [`RoiPool::NO_POSITION`].
        indices: O::Write,
        /// One value for each bin, `[boxes, rows, columns, c]`.
        y: O::Store,
    },
    /// The vjp of that, x shaped as the bins and y as the images: `y[place] = Σ x`, bins in their order, 0 elsewhere.
    RoiUnpool {
        /// As it was.
        p: RoiPool,
        /// Gradients of bins.
        x: O::Read,
        /// F32 `[boxes, 5]`, as they were.
        boxes: O::Read,
        /// What [`Launch::RoiPool`] wrote.
        indices: O::Read,
        /// The gradient of the images.
        y: O::Store,
    },

    // Normalisation, loss.
    /// Batch, layer, group, RMS.
    Norm {
        /// Shape, groups, ε, whether the statistics are given.
        p: Norm,
        /// What is normalised.
        x: O::Read,
        /// F32: weight and bias of each channel.
        affine: Option<[O::Read; 2]>,
        /// F32: takes mean and biased variance of each group, or gives them.
        saved: O::Write,
        /// Shaped as x.
        y: O::Store,
    },
    /// vjp of a normalisation: of x, and of weight and bias. Given statistics are constants.
    NormVjp {
        /// As it was.
        p: Norm,
        /// What it left.
        x: NormSaved<O::Read>,
        /// The gradient of its result.
        dy: O::Read,
        /// The gradient of x.
        dx: O::Store,
        /// The gradients of weight and bias.
        affine: Option<[O::Store; 2]>,
    },
    /// Softmax and weighted cross-entropy.
    CrossEntropy {
        /// Shape, divisor, what is ignored.
        p: CrossEntropy,
        /// What is compared.
        x: CrossEntropyArgs<O::Read>,
        /// F32: takes loss, divisor, then each row's log-sum-exp.
        out: O::Write,
    },
    /// vjp of the cross-entropy: here ⟨α, ∇⟩ begins.
    CrossEntropyVjp {
        /// As it was.
        p: CrossEntropy,
        /// What was compared.
        x: CrossEntropyArgs<O::Read>,
        /// What [`Launch::CrossEntropy`] wrote.
        out: O::Read,
        /// F32: the upstream gradient, one number.
        g: O::Read,
        /// The gradient of the logits.
        dx: O::Store,
    },

    /// Connectionist temporal classification: losses of sequences, and their gradients while alignments are at hand.
    Ctc {
        /// Shape, blank.
        p: Ctc,
        /// What is compared.
        x: CtcArgs<O::Read>,
        /// F32 `[batch]`: takes each sequence's loss.
        losses: O::Write,
        /// F32 `[batch, frames, classes]`: takes the gradient of each loss by its sequence's logits; 0 behind its end.
        gradient: Option<O::Write>,
    },

    // Update.
    /// `norm[0] = √Σ‖g‖²` over all gradients (F32), right also where a square would leave f32; NaN or ∞ if a gradient
    /// is not finite.
    GlobalNorm {
        /// All of them.
        gradients: O::Gradients,
        /// F32, one number.
        norm: O::Write,
    },
    /// Updates all parameters, each as many elements as its gradient has, and refreshes their half copies; changes
    /// nothing, bit for bit, if a row in `guard` counted a value that is not finite.
    Optimize {
        /// Rule and hyperparameters.
        p: Optimizer,
        /// Hyperparameters and rows.
        table: O::Table,
        /// The rows that must be finite.
        guard: Range<u16>,
        /// F32: what [`Launch::GlobalNorm`] wrote; needed where `p` clips by it.
        norm: Option<O::Read>,
        /// What is updated.
        parameters: O::Parameters,
    },
}

impl<O: Operands> Launch<O> {
    /// The operator's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unary { .. } => "unary",
            Self::Binary { .. } => "binary",
            Self::Sum { .. } => "sum",
            Self::Reduce { .. } => "reduce",
            Self::Copy { .. } => "copy",
            Self::Gemm { .. } => "gemm",
            Self::Conv { .. } => "conv",
            Self::Pool { .. } => "pool",
            Self::Unpool { .. } => "unpool",
            Self::Rows { .. } => "rows",
            Self::RoiAlign { .. } => "roi_align",
            Self::RoiPool { .. } => "roi_pool",
            Self::RoiUnpool { .. } => "roi_unpool",
            Self::Norm { .. } => "norm",
            Self::NormVjp { .. } => "norm_vjp",
            Self::CrossEntropy { .. } => "cross_entropy",
            Self::CrossEntropyVjp { .. } => "cross_entropy_vjp",
            Self::Ctc { .. } => "ctc",
            Self::GlobalNorm { .. } => "global_norm",
            Self::Optimize { .. } => "optimize",
        }
    }

    /// The same with other operands: reads first, in the order of the fields, then what is written.
    pub fn map<To: Operands>(self, m: &mut impl MapOperands<O, To>) -> Launch<To> {
        match self {
            Self::Unary { op, len, x, y } => Launch::Unary { op, len, x: m.read(x), y: m.store(y) },
            Self::Binary { p, a, b, y } => Launch::Binary { p, a: m.read(a), b: m.read(b), y: m.store(y) },
            Self::Sum { len, terms, y } => Launch::Sum { len, terms: m.terms(terms), y: m.store(y) },
            Self::Reduce { p, x, y } => Launch::Reduce { p, x: m.read(x), y: m.store(y) },
            Self::Copy { p, x, y } => Launch::Copy { p, x: m.read(x), y: m.store(y) },
            Self::Gemm { p, a, b, bias, y } => {
                Launch::Gemm { p, a: m.read(a), b: m.read(b), bias: bias.map(|bias| m.read(bias)), y: m.store(y) }
            }
            Self::Conv { p, pass, a, b, bias, y } => {
                let [a, b] = [a, b].map(|x| m.read(x));
                Launch::Conv { p, pass, a, b, bias: bias.map(|bias| m.read(bias)), y: m.store(y) }
            }
            Self::Pool { p, x, indices, y } => {
                Launch::Pool { p, x: m.read(x), indices: indices.map(|indices| m.write(indices)), y: m.store(y) }
            }
            Self::Unpool { p, way, x, indices, y } => {
                Launch::Unpool { p, way, x: m.read(x), indices: indices.map(|indices| m.read(indices)), y: m.store(y) }
            }
            Self::Rows { p, way, x, indices, y } => {
                Launch::Rows { p, way, x: m.read(x), indices: m.read(indices), y: m.store(y) }
            }
            Self::RoiAlign { p, way, x, boxes, y } => {
                Launch::RoiAlign { p, way, x: m.read(x), boxes: m.read(boxes), y: m.store(y) }
            }
            Self::RoiPool { p, x, boxes, indices, y } => {
                let (x, boxes) = (m.read(x), m.read(boxes));
                Launch::RoiPool { p, x, boxes, indices: m.write(indices), y: m.store(y) }
            }
            Self::RoiUnpool { p, x, boxes, indices, y } => {
                let [x, boxes, indices] = [x, boxes, indices].map(|x| m.read(x));
                Launch::RoiUnpool { p, x, boxes, indices, y: m.store(y) }
            }
            Self::Norm { p, x, affine, saved, y } => {
                let (x, affine) = (m.read(x), affine.map(|affine| affine.map(|x| m.read(x))));
                Launch::Norm { p, x, affine, saved: m.write(saved), y: m.store(y) }
            }
            Self::NormVjp { p, x, dy, dx, affine } => {
                let (x, dy) = (x.map(|x| m.read(x)), m.read(dy));
                let (dx, affine) = (m.store(dx), affine.map(|affine| affine.map(|y| m.store(y))));
                Launch::NormVjp { p, x, dy, dx, affine }
            }
            Self::CrossEntropy { p, x, out } => Launch::CrossEntropy { p, x: x.map(|x| m.read(x)), out: m.write(out) },
            Self::CrossEntropyVjp { p, x, out, g, dx } => {
                let (x, [out, g]) = (x.map(|x| m.read(x)), [out, g].map(|x| m.read(x)));
                Launch::CrossEntropyVjp { p, x, out, g, dx: m.store(dx) }
            }
            Self::Ctc { p, x, losses, gradient } => {
                let (x, losses) = (x.map(|x| m.read(x)), m.write(losses));
                Launch::Ctc { p, x, losses, gradient: gradient.map(|gradient| m.write(gradient)) }
            }
            Self::GlobalNorm { gradients, norm } => {
                Launch::GlobalNorm { gradients: m.gradients(gradients), norm: m.write(norm) }
            }
            Self::Optimize { p, table, guard, norm, parameters } => {
                let (table, norm) = (m.table(table), norm.map(|norm| m.read(norm)));
                Launch::Optimize { p, table, guard, norm, parameters: m.parameters(parameters) }
            }
        }
    }
}
