//! All operators of a device as one enum.

use super::{CrossEntropyArgs, CtcArgs, MapOperands, NormSaved, Operands};
use crate::ops::{
    Binary, Conv2d, CrossEntropy, Ctc, GatherScatter, Gemm, Norm, Optimizer, Pass, Pool, Reduce, RoiAlign, RoiPool,
    Rows, Strided, Unary,
};
use core::ops::Range;

/// One operator with its operands.
///
/// Buffers hold at least the elements that a descriptor states; elements beyond are neither read nor written. Where no
/// type is named, a buffer is F32 or F16, independently of the others. Images are NHWC, weights OHWI, matrices
/// row-major. Operators compute in f32 and store as [`Store`](super::Store) specifies.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch<O: Operands> {
    // Element-wise operators.
    /// `y[i] = op(x[i])` for i < len; x may also be U8 or U32. [`Unary::Id`] is the cast.
    Unary {
        /// Element-wise function to compute.
        op: Unary,
        /// Number of elements of the element-wise function.
        len: u32,
        /// Argument of the function.
        x: O::Read,
        /// Destination of `len` results.
        y: O::Store,
    },
    /// `y[i] = op(a[i], b[…])`, with `b` broadcast as `p` specifies. [`crate::ops::BinaryOp::Grad`] is the vjp of a
    /// unary function.
    Binary {
        /// Function and shape.
        p: Binary,
        /// First argument, with the shape of the result.
        a: O::Read,
        /// Second argument, which may be broadcast.
        b: O::Read,
        /// Destination with the shape of a.
        y: O::Store,
    },
    /// `y[i] = Σ terms[·][i]` for i < len: branches and residuals. Each term has its own slot; they are added in the
    /// given order and rounded once. `y.from` is not used.
    Sum {
        /// Number of elements of each term.
        len: u32,
        /// Tensors to add, each with its slot.
        terms: O::Terms,
        /// Destination of the `len` sums.
        y: O::Store,
    },
    /// `y[o, i] = op over l of x[o, l, i]`.
    Reduce {
        /// Reduction and shape.
        p: Reduce,
        /// Input `[outer, len, inner]`.
        x: O::Read,
        /// Result `[outer, inner]`.
        y: O::Store,
    },
    /// Strided copy, x of any type: permute, slice, concatenate, pad, flip, repeat. A y of the same type and slot gets
    /// the same bits (a NaN may change its payload).
    Copy {
        /// Dimensions and strides of x and y.
        p: Strided,
        /// Source of the strided copy.
        x: O::Read,
        /// Destination. Elements that the copy does not address are unchanged.
        y: O::Store,
    },

    // Matrix products and convolutions.
    /// `y = op(a)·op(b) + bias`, batched.
    Gemm {
        /// Sizes, strides and transposition.
        p: Gemm,
        /// Left matrix `[m, k]`, or `[k, m]` transposed.
        a: O::Read,
        /// Right matrix `[k, n]`, or `[n, k]` transposed.
        b: O::Read,
        /// Bias `[n]`, added to every row.
        bias: Option<O::Read>,
        /// Result `[m, n]`.
        y: O::Store,
    },
    /// One pass of a convolution. Forward: (x, w) → y. Data: (dy, w) → dx, also the transposed convolution. Weight: (x,
    /// dy) → dw.
    Conv {
        /// Shapes, strides, padding, dilation, groups.
        p: Conv2d,
        /// Pass: forward, data gradient or weight gradient.
        pass: Pass,
        /// First operand of the pass: x or dy.
        a: O::Read,
        /// Second operand of the pass: w or dy.
        b: O::Read,
        /// Bias, one value for each channel of the result; none in the weight pass.
        bias: Option<O::Read>,
        /// Result of the convolution pass.
        y: O::Store,
    },

    // Pooling, and moves of rows.
    /// Maximum or mean of each pooling window.
    Pool {
        /// Pooling function, shapes and windows.
        p: Pool,
        /// Images to pool.
        x: O::Read,
        /// U8 output: offset of the maximum inside its window, in row-major order (the lowest if several are equal).
        indices: Option<O::Write>,
        /// Destination of one value for each window.
        y: O::Store,
    },
    /// Unpooling and gradients of pooling. Scatter: x has the shape of the pooled tensor and y that of the unpooled
    /// one. `y[position] = Σ x` (average: x / area at each position), 0 elsewhere. It is the vjp of pooling, and
    /// unpooling itself. Gather is the opposite direction: `y = x[position]` (average: the mean). It is the vjp of
    /// unpooling.
    Unpool {
        /// Operation and shapes of the pooling.
        p: Pool,
        /// Direction: scatter or gather.
        way: GatherScatter,
        /// Values to scatter or gather.
        x: O::Read,
        /// Offsets that [`Launch::Pool`] wrote; required for max. With padding or an incomplete window all of them
        /// still point into x.
        indices: Option<O::Read>,
        /// Destination of the scattered or gathered values.
        y: O::Store,
    },
    /// Gather: embedding lookup. Scatter: its vjp, added in the order of the indices.
    Rows {
        /// Shapes of rows and table.
        p: Rows,
        /// Direction: gather or scatter.
        way: GatherScatter,
        /// Table, or gradients of rows.
        x: O::Read,
        /// U32: table row of each index. An index beyond the table reads zeros and adds nothing.
        indices: O::Read,
        /// Rows that were looked up, or the table's gradient.
        y: O::Store,
    },
    /// RoIAlign. Gather: boxes of images, resampled. Scatter: its vjp.
    RoiAlign {
        /// Shapes, scale and number of sample points.
        p: RoiAlign,
        /// Direction: gather or scatter.
        way: GatherScatter,
        /// Images `[n, h, w, c]`, or gradients of bins `[boxes, rows, columns, c]`.
        x: O::Read,
        /// F32 `[boxes, 5]`: image, left, top, right, bottom.
        boxes: O::Read,
        /// Bins, or the gradient of the images.
        y: O::Store,
    },
    /// RoI max pooling: boxes of images, divided into bins, with the maximum of each bin.
    RoiPool {
        /// Shapes and scale.
        p: RoiPool,
        /// Images `[n, h, w, c]`.
        x: O::Read,
        /// F32 `[boxes, 5]`: image, left, top, right, bottom.
        boxes: O::Read,
        /// U32 output with the shape of y: position of the maximum inside its image, in row-major order (the first if
        /// several are equal), or [`RoiPool::NO_POSITION`].
        indices: O::Write,
        /// Destination of one value for each bin, `[boxes, rows, columns, c]`.
        y: O::Store,
    },
    /// vjp of RoI max pooling, x with the shape of the bins and y with that of the images: `y[position] = Σ x`, bins in
    /// their order, 0 elsewhere.
    RoiUnpool {
        /// Shapes and scale of the forward pass.
        p: RoiPool,
        /// Gradients of bins.
        x: O::Read,
        /// F32 `[boxes, 5]`, as in the forward pass.
        boxes: O::Read,
        /// Positions that [`Launch::RoiPool`] wrote.
        indices: O::Read,
        /// Gradient of the images.
        y: O::Store,
    },

    // Normalisations and losses.
    /// Batch, layer, group or RMS normalisation.
    Norm {
        /// Shape, groups, ε, and the source of the statistics.
        p: Norm,
        /// Tensor to normalise: x.
        x: O::Read,
        /// F32: scale and shift of each channel.
        affine: Option<[O::Read; 2]>,
        /// F32: receives mean and biased variance of each group, or provides them.
        saved: O::Write,
        /// Destination with the shape of x.
        y: O::Store,
    },
    /// vjp of a normalisation, for x and for scale and shift. Provided statistics are constants.
    NormVjp {
        /// Descriptor of the forward pass.
        p: Norm,
        /// Input and statistics that the forward pass saved.
        x: NormSaved<O::Read>,
        /// Gradient of the forward pass's result.
        dy: O::Read,
        /// Destination of the gradient of x.
        dx: O::Store,
        /// Gradients of scale and shift.
        affine: Option<[O::Store; 2]>,
    },
    /// Softmax and weighted cross-entropy.
    CrossEntropy {
        /// Shape, divisor and ignored label.
        p: CrossEntropy,
        /// Logits, labels and class weights.
        x: CrossEntropyArgs<O::Read>,
        /// F32 output: loss, divisor, then the log-sum-exp of each row.
        out: O::Write,
    },
    /// vjp of the cross-entropy, where the scaled gradient ⟨α, ∇⟩ starts.
    CrossEntropyVjp {
        /// Descriptor of the forward pass.
        p: CrossEntropy,
        /// Logits, labels and class weights of the forward pass.
        x: CrossEntropyArgs<O::Read>,
        /// Values that [`Launch::CrossEntropy`] wrote.
        out: O::Read,
        /// F32: upstream gradient of the loss, one value.
        g: O::Read,
        /// Destination of the gradient of the logits.
        dx: O::Store,
    },

    /// Connectionist temporal classification (CTC): losses of sequences, and their gradients, which are computed from
    /// the same alignments.
    Ctc {
        /// Shapes and blank class.
        p: Ctc,
        /// Logits, targets and their lengths.
        x: CtcArgs<O::Read>,
        /// F32 `[batch]` output: loss of each sequence.
        losses: O::Write,
        /// F32 `[batch, frames, classes]` output: gradient of each loss by the logits of its sequence; 0 after its end.
        gradient: Option<O::Write>,
    },

    // Optimizer.
    /// `norm[0] = √Σ‖g‖²` over all gradients (F32). Correct also if a square would overflow or underflow in f32; NaN or
    /// ∞ if a gradient is not finite.
    GlobalNorm {
        /// All gradients of which the norm is taken.
        gradients: O::Gradients,
        /// F32 output of one value.
        norm: O::Write,
    },
    /// Updates all parameters and refreshes their half copies. Each parameter has as many elements as its gradient.
    /// Nothing changes, bit for bit, if a row in `guard` counted a value that is not finite.
    Optimize {
        /// Update rule and its hyperparameters.
        p: Optimizer,
        /// Table of hyperparameters and rows.
        table: O::Table,
        /// Slots of the rows that must be finite.
        guard: Range<u16>,
        /// F32: norm that [`Launch::GlobalNorm`] wrote; required if `p` clips by it.
        norm: Option<O::Read>,
        /// Parameters that the optimizer updates.
        parameters: O::Parameters,
    },
}

impl<O: Operands> Launch<O> {
    /// Returns the operator's name, for example `conv`.
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

    /// Converts the operands with `m`: reads first, in the order of the fields, then writes.
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
