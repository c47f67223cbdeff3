//! All operators of a device as one enum.

use super::{AttentionArgs, CellArgs, CrossEntropyArgs, CtcArgs, MapOperands, NormSaved, Operands, Slot, UpdateGuard};
use crate::ops::{
    Attention, Binary, Conv2d, CrossEntropy, Ctc, GatherScatter, Gemm, Gru, Lstm, Norm, Optimizer, Pass, Pool, Reduce,
    RoiAlign, RoiPool, Rows, Softmax, Strided, Unary,
};
use crate::{block_format::BlockFormat, scaled::Scaled, store_format::StoreFormat};

/// One operator with all its operands, ready to be launched on a device.
///
/// Buffers hold at least the elements that a descriptor states; elements beyond are neither read nor written. Where no
/// type is named, a buffer is F32 or F16, independently of the others. Images are NHWC, weights OHWI, matrices
/// row-major. Operators compute in f32 and store as [`Store`](super::Store) specifies.
#[derive(Clone, Debug, PartialEq)]
pub enum Launch<O: Operands> {
    // Element-wise operators.
    /// Element-wise function of one tensor: `y[i] = op(x[i])` for i < len; x may also be U8 or U32. [`Unary::Id`] is
    /// the cast.
    Unary {
        /// Element-wise function that is applied to `x`.
        op: Unary,
        /// Number of elements to which the function is applied.
        len: u32,
        /// Input tensor of the element-wise function.
        x: O::Read,
        /// Destination of the `len` results of the element-wise function.
        y: O::Store,
    },
    /// Store of values in a format of fewer bits, simulated with halves: `y[i] = round(x[i])` for i < len, where
    /// [`StoreFormat::round`] replaces the rounding of the store, also if y is F32, and the statistics row counts what is
    /// flushed, subnormal or overflows in that format, to nearest even on every device.
    Round {
        /// Format to which the values are rounded.
        format: StoreFormat,
        /// Number of elements to round.
        len: u32,
        /// Values to round, F32 or F16.
        x: O::Read,
        /// Destination of the `len` rounded values.
        y: O::Store,
    },
    /// Store of values in blocks that each have an exponent of their own, simulated with f32: `y[i] = round(u[i])`, where
    /// u are the values at the exponent of the store, with the destination added if asked, and [`BlockFormat::round`]
    /// rounds each with the exponent of its block. Both x and y are `[rows, columns]`, and blocks are those of a row. The
    /// statistics row counts what a block has to round ([`BlockFormat::scaled`]), relative to the exponent of its block.
    RoundBlocks {
        /// Format of the values in a block, and size of a block.
        format: BlockFormat,
        /// Number of rows; all values together are fewer than 2^32.
        rows: u32,
        /// Number of values of a row.
        columns: u32,
        /// Values to round, F32 or F16.
        x: O::Read,
        /// F32: destination of the rounded values.
        y: O::Store,
    },
    /// Exact conversion of halves to bytes: `y[i]` is the code of `x[i]` in the format ([`crate::format::Format::encode`])
    /// for i < len. Every x is a value of the format, as [`Launch::Round`] stores them.
    Pack {
        /// Format of 8 bits that has all values.
        format: StoreFormat,
        /// Number of values to pack.
        len: u32,
        /// F16: values to pack.
        x: O::Read,
        /// U8: destination of the codes.
        y: O::Write,
    },
    /// Inverse of [`Launch::Pack`]: `y[i]` is the value of the code `x[i]` for i < len. A NaN may change its payload.
    Unpack {
        /// Format of 8 bits of the codes.
        format: StoreFormat,
        /// Number of values to unpack.
        len: u32,
        /// U8: codes of the values.
        x: O::Read,
        /// F16: destination of the values.
        y: O::Write,
    },
    /// Element-wise function of two tensors: `y[i] = op(a[i], b[…])`, with `b` broadcast as `p` specifies.
    /// [`crate::ops::BinaryOp::Grad`] is the vjp of a unary function.
    Binary {
        /// Element-wise function of two values, with shape and broadcast.
        p: Binary,
        /// First argument of the element-wise function, with the shape of the result.
        a: O::Read,
        /// Second argument of the element-wise function, which may be broadcast.
        b: O::Read,
        /// Destination of the results, with the shape of a.
        y: O::Store,
    },
    /// Sum of tensors, for branches and residuals: `y[i] = Σ terms[·][i]` for i < len. Each term has its own slot; they
    /// are added in the given order and rounded once. `y.from` is not used.
    Sum {
        /// Number of elements of each term of the sum.
        len: u32,
        /// Tensors to add, each with the slot of its exponent.
        terms: O::Terms,
        /// Destination of the `len` element-wise sums.
        y: O::Store,
    },
    /// Reduction along the middle axis: `y[o, i] = op over l of x[o, l, i]`.
    Reduce {
        /// Reduction function, for example the mean, with the shape of its input.
        p: Reduce,
        /// Input of the reduction, `[outer, len, inner]`.
        x: O::Read,
        /// Destination of the reduction's results, `[outer, inner]`.
        y: O::Store,
    },
    /// Strided copy, x of any type: permute, slice, concatenate, pad, flip, repeat. A y of the same type and slot gets
    /// the same bits (a NaN may change its payload).
    Copy {
        /// Dimensions of the strided copy, with the strides of x and y.
        p: Strided,
        /// Source of the strided copy.
        x: O::Read,
        /// Destination of the strided copy. Elements that it does not address are unchanged.
        y: O::Store,
    },

    // Matrix products and convolutions.
    /// Batched matrix product `y = op(a)·op(b) + bias`.
    Gemm {
        /// Sizes m, n, k, strides and transposition of the matrix product.
        p: Gemm,
        /// Left matrix of the product, `[m, k]`, or `[k, m]` transposed.
        a: O::Read,
        /// Right matrix of the product, `[k, n]`, or `[n, k]` transposed.
        b: O::Read,
        /// Bias `[n]` of the matrix product, added to every row.
        bias: Option<O::Read>,
        /// Destination of the product `[m, n]`.
        y: O::Store,
    },
    /// Convolution, one of its three passes. Forward: (x, w) → y. Data: (dy, w) → dx, also the transposed convolution.
    /// Weight: (x, dy) → dw.
    Conv {
        /// Shapes of the convolution, with strides, padding, dilation and groups.
        p: Conv2d,
        /// Pass of the convolution: forward, data gradient or weight gradient.
        pass: Pass,
        /// First operand of the convolution pass: x or dy.
        a: O::Read,
        /// Second operand of the convolution pass: w or dy.
        b: O::Read,
        /// Bias of the convolution, one value for each channel of the result; none in the weight pass.
        bias: Option<O::Read>,
        /// Destination of the convolution pass: y, dx or dw.
        y: O::Store,
    },

    // Pooling, and moves of rows.
    /// Pooling: the maximum or mean of each window of an image.
    Pool {
        /// Pooling function, image shape and windows.
        p: Pool,
        /// Images to pool, NHWC.
        x: O::Read,
        /// U8 output: offset of the maximum inside its window, in row-major order (the lowest if several are equal).
        indices: Option<O::Write>,
        /// Destination of the pooled images, one value for each window.
        y: O::Store,
    },
    /// Unpooling and gradients of pooling. Scatter: x has the shape of the pooled tensor and y that of the unpooled
    /// one. `y[position] = Σ x` (average: x / area at each position), 0 elsewhere. It is the vjp of pooling, and
    /// unpooling itself. Gather is the opposite direction: `y = x[position]` (average: the mean). It is the vjp of
    /// unpooling.
    Unpool {
        /// Pooling function, shapes and windows of the pooling to invert.
        p: Pool,
        /// Direction: scatter each value to the positions of its window, or gather it from them.
        way: GatherScatter,
        /// Pooled values to scatter, or unpooled values to gather.
        x: O::Read,
        /// Offsets that [`Launch::Pool`] wrote; required for max. With padding or an incomplete window all of them
        /// still point into x.
        indices: Option<O::Read>,
        /// Destination of the scattered or gathered values.
        y: O::Store,
    },
    /// Rows of an embedding table. Gather: lookup by index. Scatter: its vjp, added in the order of the indices.
    Rows {
        /// Number of indices, and shape of the embedding table.
        p: Rows,
        /// Direction: gather rows of the embedding table, or scatter gradients into it.
        way: GatherScatter,
        /// Embedding table to look up, or gradients of the rows to scatter.
        x: O::Read,
        /// U32: table row of each index. An index beyond the table reads zeros and adds nothing.
        indices: O::Read,
        /// Rows that were looked up, or the gradient of the embedding table.
        y: O::Store,
    },
    /// RoIAlign, in two directions. Gather: boxes of images, resampled. Scatter: the gradient (vjp).
    RoiAlign {
        /// Shapes of images and bins, scale and number of sample points of RoIAlign.
        p: RoiAlign,
        /// Direction: gather (resample boxes) or scatter (their gradients).
        way: GatherScatter,
        /// Images `[n, h, w, c]`, or gradients of bins `[boxes, rows, columns, c]`.
        x: O::Read,
        /// Boxes, F32 `[boxes, 5]`: image, left, top, right, bottom.
        boxes: O::Read,
        /// Destination: bins of the boxes, or the gradient of the images.
        y: O::Store,
    },
    /// RoI max pooling: boxes of images, divided into bins, with the maximum of each bin.
    RoiPool {
        /// Shapes of images and bins, and scale of the box coordinates.
        p: RoiPool,
        /// Images `[n, h, w, c]` to pool.
        x: O::Read,
        /// Boxes, F32 `[boxes, 5]`: image, left, top, right, bottom.
        boxes: O::Read,
        /// U32 output with the shape of y: position of the maximum inside its image, in row-major order (the first if
        /// several are equal), or [`RoiPool::NO_POSITION`].
        indices: O::Write,
        /// Destination of one value for each bin, `[boxes, rows, columns, c]`.
        y: O::Store,
    },
    /// Gradient (vjp) of RoI max pooling, x with the shape of the bins and y with that of the images: `y[position] = Σ
    /// x`, bins in their order, 0 elsewhere.
    RoiUnpool {
        /// Shapes and scale of the forward RoI max pooling.
        p: RoiPool,
        /// Gradients of the bins, `[boxes, rows, columns, c]`.
        x: O::Read,
        /// Boxes of the forward pass, F32 `[boxes, 5]`.
        boxes: O::Read,
        /// Positions of the maxima, which [`Launch::RoiPool`] wrote.
        indices: O::Read,
        /// Destination of the gradient of the images.
        y: O::Store,
    },

    // Normalisations and losses.
    /// Forward pass of a batch, layer, group or RMS normalisation.
    Norm {
        /// Shape, groups and ε of the normalisation, and the source of its statistics.
        p: Norm,
        /// Tensor x to normalise.
        x: O::Read,
        /// Optional scale and shift of each channel after the normalisation, F32.
        affine: Option<[O::Read; 2]>,
        /// Statistics, F32: receives mean and biased variance of each group, or provides them.
        saved: O::Write,
        /// Destination of the normalised tensor, with the shape of x.
        y: O::Store,
    },
    /// Gradient (vjp) of a normalisation, for x and for scale and shift. Provided statistics are constants.
    NormVjp {
        /// Descriptor of the normalisation's forward pass.
        p: Norm,
        /// Input and statistics that the normalisation's forward pass saved.
        x: NormSaved<O::Read>,
        /// Gradient of the normalisation's result.
        dy: O::Read,
        /// Destination of the gradient of the normalisation's input x.
        dx: O::Store,
        /// Optional destinations of the gradients of scale and shift.
        affine: Option<[O::Store; 2]>,
    },
    /// Softmax of each row, or its logarithm, over the columns that a row reads.
    Softmax {
        /// Shape of the scores, columns that a row reads, and whether results are logarithms.
        p: Softmax,
        /// Scores x of the softmax, `[matrices, rows, columns]`.
        x: O::Read,
        /// Lengths of the sequences `[matrices]`, U8 or U32, or the mask of the columns with the shape of x, of any
        /// type; none if the columns need neither.
        selection: Option<O::Read>,
        /// Destination of the weights or their logarithms, with the shape of x.
        y: O::Store,
    },
    /// Gradient (vjp) of a softmax, or of its logarithm, from its result.
    SoftmaxVjp {
        /// Descriptor of the softmax's forward pass.
        p: Softmax,
        /// Result y of the softmax's forward pass.
        y: O::Read,
        /// Gradient of the softmax's result.
        dy: O::Read,
        /// Destination of the gradient of the scores.
        dx: O::Store,
    },
    /// Attention whose scores and weights are not stored.
    Attention {
        /// Sizes of the attention, and columns that a row of scores reads.
        p: Attention,
        /// Queries, keys, values and lengths.
        x: AttentionArgs<O::Read>,
        /// Logarithm L of each row's sum, F32 `[batch, queries]`.
        log_sums: O::Write,
        /// Destination of the results, `[batch, queries, width]`.
        y: O::Store,
    },
    /// Gradients (vjp) of an attention, with casts of the gradients of weights and scores.
    AttentionVjp {
        /// Descriptor of the attention's forward pass.
        p: Attention,
        /// Queries, keys, values and lengths of the attention's forward pass.
        x: AttentionArgs<O::Read>,
        /// Results of the attention's forward pass.
        y: O::Read,
        /// Logarithm of each row's sum, which [`Launch::Attention`] wrote.
        log_sums: O::Read,
        /// Gradient of the results, `[batch, queries, width]`.
        dy: O::Read,
        /// Cast of the gradient dP of the weights, from the slot of dy.
        dp: O::Cast,
        /// Cast of the gradient dS of the scores, from the slot of dP.
        ds: O::Cast,
        /// Destination of the gradient of the queries, from the slot of dS.
        dq: O::Store,
        /// Destination of the gradient of the keys, from the slot of dS.
        dk: O::Store,
        /// Destination of the gradient of the values, from the slot of dy.
        dv: O::Store,
    },
    /// One step of an LSTM cell.
    Lstm {
        /// Sizes of the cell, and the step that is read of x.
        p: Lstm,
        /// Products and cell state of the step.
        x: CellArgs<O::Read>,
        /// Destination of the next hidden state h′, `[rows, hidden]`.
        y: O::Store,
        /// Next cell state c′, f32 `[rows, hidden]`.
        state: O::Write,
    },
    /// Gradients (vjp) of a step of an LSTM cell.
    LstmVjp {
        /// Descriptor of the cell's forward pass.
        p: Lstm,
        /// Products and cell state of the cell's forward pass.
        x: CellArgs<O::Read>,
        /// Gradient of the hidden state h′, `[rows, hidden]`.
        dh: O::Read,
        /// Gradient of the cell state c′, f32 `[rows, hidden]`, with the slot of its exponent. It is 0 if absent.
        dc: Option<Scaled<O::Read, Slot>>,
        /// Destination of the gradient of the sums of both products, `[rows, 4, hidden]`.
        y: O::Store,
        /// Gradient of the cell state c, f32 `[rows, hidden]`, at the exponent from which y is stored.
        state: O::Write,
    },
    /// One step of a GRU cell.
    Gru {
        /// Sizes of the GRU cell, and the step that is read of x.
        p: Gru,
        /// Products and hidden state of the step.
        x: CellArgs<O::Read>,
        /// Destination of the next hidden state h′ of the GRU cell, `[rows, hidden]`.
        y: O::Store,
    },
    /// Gradients (vjp) of a step of a GRU cell.
    GruVjp {
        /// Descriptor of the GRU cell's forward pass.
        p: Gru,
        /// Products and hidden state of the GRU cell's forward pass.
        x: CellArgs<O::Read>,
        /// Gradient of the GRU cell's next hidden state h′, `[rows, hidden]`.
        dh: O::Read,
        /// Destination of the gradient of the products with the hidden state, `[rows, 3, hidden]`.
        y: O::Store,
        /// Gradient of the products with the inputs of all steps, f32 `[rows, steps, 3, hidden]`, at the exponent of its
        /// slot. The launch writes that of its step.
        dx: Scaled<O::Write, Slot>,
        /// Gradient of the hidden state h that the update gate keeps, f32 `[rows, hidden]`, at the exponent from which y is
        /// stored.
        state: O::Write,
    },
    /// Softmax and weighted cross-entropy of logits and labels.
    CrossEntropy {
        /// Shape of the logits, divisor of the loss, and ignored label.
        p: CrossEntropy,
        /// Logits, labels and optional class weights of the loss.
        x: CrossEntropyArgs<O::Read>,
        /// F32 output of the loss: its value, the divisor, then the log-sum-exp of each row.
        out: O::Write,
    },
    /// Gradient (vjp) of the cross-entropy, where the scaled gradient ⟨α, ∇⟩ starts.
    CrossEntropyVjp {
        /// Descriptor of the cross-entropy's forward pass.
        p: CrossEntropy,
        /// Logits, labels and class weights of the cross-entropy's forward pass.
        x: CrossEntropyArgs<O::Read>,
        /// Loss, divisor and log-sum-exps that [`Launch::CrossEntropy`] wrote.
        out: O::Read,
        /// F32: upstream gradient of the cross-entropy, one value.
        g: O::Read,
        /// Destination of the cross-entropy's gradient of the logits.
        dx: O::Store,
    },

    /// Connectionist temporal classification (CTC): losses of sequences, and their gradients, which are computed from
    /// the same alignments.
    Ctc {
        /// Shapes of logits and targets, and the blank class.
        p: Ctc,
        /// Logits, target letters, and the lengths of both.
        x: CtcArgs<O::Read>,
        /// F32 `[batch]` output: CTC loss of each sequence.
        losses: O::Write,
        /// F32 `[batch, frames, classes]` output: gradient of each loss by the logits of its sequence; 0 after its end.
        gradient: Option<O::Write>,
    },

    // Optimizer.
    /// Global norm over all gradients (F32): `norm[0] = √Σ‖g‖²`. Correct also if a square would overflow or underflow
    /// in f32; NaN or ∞ if a gradient is not finite.
    GlobalNorm {
        /// All gradients of which the global norm is taken.
        gradients: O::Gradients,
        /// F32 output of one value, the global norm.
        norm: O::Write,
    },
    /// Optimizer step: updates all parameters and refreshes their half copies. Each parameter has as many elements as
    /// its gradient. Nothing changes, bit for bit, if a row in `guard` blocks the update.
    Optimize {
        /// Update rule of the optimizer, with weight decay and clipping.
        p: Optimizer,
        /// Table from which the update reads hyperparameters and statistics rows.
        table: O::Table,
        /// Slots of the statistics rows on which the update depends.
        guard: UpdateGuard,
        /// F32: norm that [`Launch::GlobalNorm`] wrote; required if `p` clips by it.
        norm: Option<O::Read>,
        /// Parameters that the optimizer updates, with gradients and states.
        parameters: O::Parameters,
    },
}

impl<O: Operands> Launch<O> {
    /// Returns the operator's name, for example `conv`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unary { .. } => "unary",
            Self::Round { .. } => "round",
            Self::RoundBlocks { .. } => "round_blocks",
            Self::Pack { .. } => "pack",
            Self::Unpack { .. } => "unpack",
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
            Self::Softmax { .. } => "softmax",
            Self::SoftmaxVjp { .. } => "softmax_vjp",
            Self::Attention { .. } => "attention",
            Self::AttentionVjp { .. } => "attention_vjp",
            Self::Lstm { .. } => "lstm",
            Self::LstmVjp { .. } => "lstm_vjp",
            Self::Gru { .. } => "gru",
            Self::GruVjp { .. } => "gru_vjp",
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
            Self::Round { format, len, x, y } => Launch::Round { format, len, x: m.read(x), y: m.store(y) },
            Self::RoundBlocks { format, rows, columns, x, y } => {
                Launch::RoundBlocks { format, rows, columns, x: m.read(x), y: m.store(y) }
            }
            Self::Pack { format, len, x, y } => Launch::Pack { format, len, x: m.read(x), y: m.write(y) },
            Self::Unpack { format, len, x, y } => Launch::Unpack { format, len, x: m.read(x), y: m.write(y) },
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
            Self::Softmax { p, x, selection, y } => {
                let (x, selection) = (m.read(x), selection.map(|selection| m.read(selection)));
                Launch::Softmax { p, x, selection, y: m.store(y) }
            }
            Self::SoftmaxVjp { p, y, dy, dx } => {
                let [y, dy] = [y, dy].map(|x| m.read(x));
                Launch::SoftmaxVjp { p, y, dy, dx: m.store(dx) }
            }
            Self::Attention { p, x, log_sums, y } => {
                let x = x.map(|x| m.read(x));
                Launch::Attention { p, x, log_sums: m.write(log_sums), y: m.store(y) }
            }
            Self::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv } => {
                let (x, [y, log_sums, dy]) = (x.map(|x| m.read(x)), [y, log_sums, dy].map(|x| m.read(x)));
                let ([dp, ds], [dq, dk, dv]) = ([dp, ds].map(|cast| m.cast(cast)), [dq, dk, dv].map(|y| m.store(y)));
                Launch::AttentionVjp { p, x, y, log_sums, dy, dp, ds, dq, dk, dv }
            }
            Self::Lstm { p, x, y, state } => {
                let x = x.map(|x| m.read(x));
                Launch::Lstm { p, x, y: m.store(y), state: m.write(state) }
            }
            Self::LstmVjp { p, x, dh, dc, y, state } => {
                let (x, dh, dc) = (x.map(|x| m.read(x)), m.read(dh), dc.map(|dc| dc.map(|dc| m.read(dc))));
                Launch::LstmVjp { p, x, dh, dc, y: m.store(y), state: m.write(state) }
            }
            Self::Gru { p, x, y } => Launch::Gru { p, x: x.map(|x| m.read(x)), y: m.store(y) },
            Self::GruVjp { p, x, dh, y, dx, state } => {
                let (x, dh, y) = (x.map(|x| m.read(x)), m.read(dh), m.store(y));
                Launch::GruVjp { p, x, dh, y, dx: dx.map(|dx| m.write(dx)), state: m.write(state) }
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
