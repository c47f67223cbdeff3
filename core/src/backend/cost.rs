//! Memory traffic and arithmetic of a launch, computed from its shapes.

use super::{AttentionArgs, Backend, Buffer, CellArgs, Launch, OnDevice, Operands, Store};
use crate::ops::{
    Attention, AttentionShape, BinaryOp, Broadcast, Conv2d, GatherScatter, Gemm, GemmShape, NormOver, Pass, PoolOp,
    ReduceOp, Rule, SoftmaxColumns, Unary,
};
use core::fmt;

/// Cost of one launch: memory traffic and arithmetic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Memory traffic of the launch: bytes of all operands. Each element that a descriptor names counts once for a read
    /// and once for a write. A device moves at least this, because caches may have to fetch elements again.
    pub bytes: u64,
    /// Arithmetic of the launch in floating-point operations. An addition, multiplication, division, comparison or
    /// function counts as one. Products count all their terms, also those that padding sets to 0, as cuDNN and PyTorch
    /// count them. Casts, copies, statistics of sites and work that depends on the values of boxes count as 0.
    pub operations: u64,
}

/// Arithmetic operations per element of a normalisation: sum 1, sum of squares 2, difference 1, quotient 1.
const NORM_OPERATIONS: u64 = 5;
/// Operations per element of a normalisation's gradient: normalised value 2, sum of dy 1, sum of dy times the
/// normalised value 2, two products and two differences of the result.
const NORM_VJP_OPERATIONS: u64 = 9;
/// Operations per logit of a log-sum-exp: maximum, difference, exponential, sum.
const LOG_SUM_EXP_OPERATIONS: u64 = 4;
/// Operations per logit of a cross-entropy's gradient: difference, exponential, label term, factor.
const CROSS_ENTROPY_VJP_OPERATIONS: u64 = 4;
/// Operations per score of a softmax: those of a log-sum-exp, and a quotient, or a difference for the logarithm.
const SOFTMAX_OPERATIONS: u64 = LOG_SUM_EXP_OPERATIONS + 1;
/// Operations per score of a softmax's gradient: product, sum, difference, product. For the logarithm: sum, exponential,
/// product, difference.
const SOFTMAX_VJP_OPERATIONS: u64 = 4;
/// Operations per score of an attention's gradient besides products: the weight's difference and exponential, and the
/// difference and product of dS.
const ATTENTION_VJP_OPERATIONS: u64 = 4;
/// Operations per hidden unit of an LSTM cell: four sums, four functions, three for c′, a function and a product for h′.
const LSTM_OPERATIONS: u64 = 13;
/// Operations per hidden unit of an LSTM cell's gradient: the twelve up to tanh c′ again, five for the gradient of c′, one
/// for that of c, and four for the gradient of each sum.
const LSTM_VJP_OPERATIONS: u64 = 12 + 5 + 1 + 16;
/// Operations per hidden unit of a GRU cell: two sums and functions, a product, a sum and a function for n, three for h′.
const GRU_OPERATIONS: u64 = 10;
/// Operations per hidden unit of a GRU cell's gradient: the seven up to n again, five for the gradient of n, one for that
/// of its product with h, four for r, five for z, and one for h.
const GRU_VJP_OPERATIONS: u64 = 7 + 5 + 1 + 4 + 5 + 1;
/// Operations per state and direction of a CTC alignment: the logarithm of a sum of three exponentials, and the logit.
const CTC_OPERATIONS: u64 = 9;
/// Operations per sample point of a box and channel: four products with the interpolation weights, and their sum.
const POINT_OPERATIONS: u64 = 8;

/// Returns the number of elements of a tensor with the given shape.
fn len<const N: usize>(shape: [u32; N]) -> u64 {
    shape.into_iter().map(u64::from).product()
}

/// Returns the size in bytes of the first `elements` elements of a buffer.
fn bytes<T: Buffer>(buffer: &T, elements: u64) -> u64 {
    elements * buffer.dtype().size() as u64
}

/// Returns the memory traffic in bytes for storing `elements` elements: twice as many if the store adds to the
/// destination.
fn stored<B: Backend>(store: &Store<'_, B>, elements: u64) -> u64 {
    bytes(&*store.y, elements) * if store.add { 2 } else { 1 }
}

/// Returns the memory traffic in bytes for reading the operands of a step of a cell with that many units and gates. Of x
/// one step is read.
fn of_cell<T: Buffer>(x: &CellArgs<&T>, units: u64, gates: u64) -> u64 {
    bytes(x.x, gates) + bytes(x.h, gates) + bytes(x.state, units)
}

/// Returns the memory traffic in bytes for reading the operands of an attention.
fn of_attention<T: Buffer>(p: &Attention, x: &AttentionArgs<&T>) -> u64 {
    let lengths = x.lengths.map_or(0, |lengths| bytes(lengths, p.lengths_len().into()));
    bytes(x.q, p.q_len().into()) + bytes(x.k, p.k_len().into()) + bytes(x.v, p.v_len().into()) + lengths
}

/// Returns the number of multiplications and additions of a convolution, which is the same in its three passes.
fn products(p: &Conv2d) -> u64 {
    let [_, kernel_h, kernel_w, inputs] = p.w();
    2 * len(p.y()) * len([kernel_h, kernel_w, inputs])
}

/// Returns the arithmetic operations per weight of an optimizer's update rule.
const fn of_rule(rule: Rule) -> u64 {
    match rule {
        // Momentum and its product, learning rate and its product.
        Rule::Sgd { nesterov: false, .. } => 4,
        Rule::Sgd { nesterov: true, .. } => 6,
        // Three for m, four for v, two bias corrections, the root, ε, the quotient, the learning rate and its product.
        Rule::Adam { .. } => 13,
        Rule::Ema { .. } => 3,
    }
}

impl<B: Backend> Launch<OnDevice<'_, B>> {
    /// Computes memory traffic and arithmetic from the shapes of the launch and the types of its buffers.
    ///
    /// ```
    /// # use gradscale_core::{backend::{Backend, Cost, Launch, OnDevice}, ops::Unary};
    /// fn is_bound_by_memory<B: Backend>(launch: &Launch<OnDevice<'_, B>>) -> bool {
    ///     let Cost { bytes, operations } = launch.cost();
    ///     // An H100 computes 295 operations in the time of one byte.
    ///     operations < 295 * bytes
    /// }
    /// ```
    #[must_use]
    pub fn cost(&self) -> Cost {
        let (bytes, operations) = match self {
            Self::Unary { op, len, x, y } => {
                let len = u64::from(*len);
                let operations = if *op == Unary::Id { 0 } else { len };
                (bytes(*x, len) + stored(y, len), operations)
            }
            Self::Round { len, x, y, .. } => {
                let len = u64::from(*len);
                (bytes(*x, len) + stored(y, len), len)
            }
            Self::RoundBlocks { rows, columns, x, y, .. } => {
                let len = len([*rows, *columns]);
                // The largest magnitude of a block, and its rounding.
                (bytes(*x, len) + stored(y, len), 2 * len)
            }
            Self::Pack { len, x, y, .. } | Self::Unpack { len, x, y, .. } => {
                let len = u64::from(*len);
                (bytes(*x, len) + bytes(*y, len), 0)
            }
            Self::Binary { p, a, b, y } => {
                let all = len(p.shape());
                (bytes(*a, all) + bytes(*b, p.b_len().into()) + stored(y, all), all)
            }
            Self::Sum { len, terms, y } => {
                let len = u64::from(*len);
                let read: u64 = terms.iter().map(|term| bytes(term.data, len)).sum();
                (read + stored(y, len), len * (terms.len() as u64).saturating_sub(1))
            }
            Self::Reduce { p, x, y } => {
                let all = len(p.shape());
                (bytes(*x, all) + stored(y, p.y_len().into()), all)
            }
            Self::Copy { p, x, y } => {
                // Dimensions with stride 0 repeat an element, which is read once.
                let read = p.dims().iter().filter(|dim| dim.x != 0).map(|dim| u64::from(dim.len)).product();
                (bytes(*x, if p.count() == 0 { 0 } else { read }) + stored(y, p.count().into()), 0)
            }
            Self::Gemm { p, a, b, bias, y } => {
                let (GemmShape { m, n, k }, batch, [a_stride, b_stride, _]) = (p.shape(), p.batch(), p.strides());
                // With stride 0 all products of a batch share one matrix.
                let count = |stride: u32| if stride == 0 { batch.min(1) } else { batch };
                let (operands, results) = (
                    bytes(*a, len([m, k, count(a_stride)])) + bytes(*b, len([k, n, count(b_stride)])),
                    len([m, n, batch]),
                );
                let (added, sums) = bias.map_or((0, 0), |bias| (bytes(bias, n.into()), results));
                (operands + added + stored(y, results), 2 * len([m, n, batch]) * u64::from(k) + sums)
            }
            Self::Conv { p, pass, a, b, bias, y } => {
                let [x, w, out] = [len(p.x()), len(p.w()), len(p.y())];
                let ([first, second, result], channels) = match pass {
                    Pass::Forward => ([x, w, out], p.y()[3]),
                    Pass::Data => ([out, w, x], p.x()[3]),
                    Pass::Weight => ([x, out, w], 0),
                };
                let (added, sums) = bias.map_or((0, 0), |bias| (bytes(bias, channels.into()), result));
                (bytes(*a, first) + bytes(*b, second) + added + stored(y, result), products(p) + sums)
            }
            Self::Pool { p, x, indices, y } => {
                let results = len(p.y());
                let offsets = indices.as_ref().map_or(0, |indices| bytes(&**indices, results));
                (bytes(*x, len(p.x())) + offsets + stored(y, results), results * len(p.window()))
            }
            Self::Unpool { p, way, x, indices, y } => {
                let ([wide, narrow], area) = ([len(p.x()), len(p.y())], len(p.window()));
                let (read, written) = match way {
                    GatherScatter::Gather => (wide, narrow),
                    GatherScatter::Scatter => (narrow, wide),
                };
                let operations = match (p.op(), way) {
                    (PoolOp::Max, GatherScatter::Gather) => 0,
                    (PoolOp::Max, GatherScatter::Scatter) => narrow,
                    (PoolOp::Average, GatherScatter::Gather | GatherScatter::Scatter) => narrow * area,
                };
                let offsets = indices.map_or(0, |indices| bytes(indices, narrow));
                (bytes(*x, read) + offsets + stored(y, written), operations)
            }
            Self::Rows { p, way, x, indices, y } => {
                let (rows, table) = (len([p.count(), p.width()]), len([p.table(), p.width()]));
                let written = match way {
                    GatherScatter::Gather => (rows, 0),
                    GatherScatter::Scatter => (table, rows),
                };
                (bytes(*x, rows) + bytes(*indices, p.count().into()) + stored(y, written.0), written.1)
            }
            Self::RoiAlign { p, way, x, boxes, y } => {
                let (images, bins) = (len(p.x()), len(p.y()));
                let (read, written) = match way {
                    GatherScatter::Gather => (images, bins),
                    GatherScatter::Scatter => (bins, images),
                };
                let points = bins * len([p.samples(), p.samples()]);
                (bytes(*x, read) + bytes(*boxes, len([p.y()[0], 5])) + stored(y, written), POINT_OPERATIONS * points)
            }
            Self::RoiPool { p, x, boxes, indices, y } => {
                let (images, bins) = (len(p.x()), len(p.y()));
                let boxes = bytes(*boxes, len([p.y()[0], 5]));
                (bytes(*x, images) + boxes + bytes(&**indices, bins) + stored(y, bins), 0)
            }
            Self::RoiUnpool { p, x, boxes, indices, y } => {
                let (images, bins) = (len(p.x()), len(p.y()));
                let boxes = bytes(*boxes, len([p.y()[0], 5]));
                (bytes(*x, bins) + boxes + bytes(*indices, bins) + stored(y, images), bins)
            }
            Self::Norm { p, x, affine, saved, y } => {
                let all = len(p.x());
                let statistics = bytes(&**saved, 2 * u64::from(p.groups()));
                let each = if p.is_given() { 2 } else { NORM_OPERATIONS };
                let channels = p.x()[3].into();
                let (parameters, scaled) =
                    affine.as_ref().map_or((0, 0), |both| (both.map(|x| bytes(x, channels)).into_iter().sum(), 2));
                (bytes(*x, all) + statistics + parameters + stored(y, all), (each + scaled) * all)
            }
            Self::NormVjp { p, x, dy, dx, affine } => {
                let (all, channels) = (len(p.x()), u64::from(p.x()[3]));
                let statistics = bytes(x.saved, 2 * u64::from(p.groups()));
                let weight = x.weight.map_or(0, |weight| bytes(weight, channels));
                let parameters: u64 =
                    affine.as_ref().map_or(0, |both| both.iter().map(|store| stored(store, channels)).sum());
                let read = bytes(x.x, all) + bytes(*dy, all) + statistics + weight;
                (read + stored(dx, all) + parameters, NORM_VJP_OPERATIONS * all)
            }
            Self::Softmax { p, x, selection, y } => {
                // Columns that a row does not read count too, because they are written.
                let all = len(p.shape());
                let selected = selection.map_or(0, |selection| bytes(selection, p.selection_len().into()));
                (bytes(*x, all) + selected + stored(y, all), SOFTMAX_OPERATIONS * all)
            }
            Self::SoftmaxVjp { p, y, dy, dx } => {
                let all = len(p.shape());
                (bytes(*y, all) + bytes(*dy, all) + stored(dx, all), SOFTMAX_VJP_OPERATIONS * all)
            }
            Self::Attention { p, x, log_sums, y } => {
                let [rows, results] = [p.rows(), p.y_len()].map(u64::from);
                let AttentionShape { keys, depth, width, .. } = p.shape();
                let scores = rows * u64::from(keys);
                let operations = (2 * u64::from(depth + width) + SOFTMAX_OPERATIONS) * scores;
                (of_attention(p, x) + bytes(&**log_sums, rows) + stored(y, results), operations)
            }
            Self::AttentionVjp { p, x, y, log_sums, dy, dp: _, ds: _, dq, dk, dv } => {
                let [rows, results] = [p.rows(), p.y_len()].map(u64::from);
                let AttentionShape { keys, depth, width, .. } = p.shape();
                let scores = rows * u64::from(keys);
                let read = of_attention(p, x) + bytes(*y, results) + bytes(*log_sums, rows) + bytes(*dy, results);
                let written =
                    stored(dq, p.q_len().into()) + stored(dk, p.k_len().into()) + stored(dv, p.v_len().into());
                // Products for S, dq and dk, and for dP and dv; a product and a sum for each element of δ.
                let products = 2 * u64::from(3 * depth + 2 * width) * scores + 2 * results;
                (read + written, products + ATTENTION_VJP_OPERATIONS * scores)
            }
            Self::Lstm { p, x, y, state } => {
                let (units, gates) = (u64::from(p.state_len()), u64::from(p.gates_len()));
                (of_cell(x, units, gates) + stored(y, units) + bytes(&**state, units), LSTM_OPERATIONS * units)
            }
            Self::LstmVjp { p, x, dh, dc, y, state } => {
                let (units, gates) = (u64::from(p.state_len()), u64::from(p.gates_len()));
                let read = of_cell(x, units, gates) + bytes(*dh, units) + dc.map_or(0, |dc| bytes(dc.data, units));
                (read + stored(y, gates) + bytes(&**state, units), LSTM_VJP_OPERATIONS * units)
            }
            Self::Gru { p, x, y } => {
                let (units, gates) = (u64::from(p.state_len()), u64::from(p.gates_len()));
                (of_cell(x, units, gates) + stored(y, units), GRU_OPERATIONS * units)
            }
            Self::GruVjp { p, x, dh, y, dx, state } => {
                let (units, gates) = (u64::from(p.state_len()), u64::from(p.gates_len()));
                let read = of_cell(x, units, gates) + bytes(*dh, units);
                let written = bytes(&*dx.data, gates) + bytes(&**state, units);
                (read + stored(y, gates) + written, GRU_VJP_OPERATIONS * units)
            }
            Self::CrossEntropy { p, x, out } => {
                let [rows, classes] = p.shape().map(u64::from);
                let weights = x.weights.map_or(0, |weights| bytes(weights, classes));
                let read = bytes(x.logits, rows * classes) + bytes(x.labels, rows) + weights;
                (read + bytes(&**out, 2 + rows), LOG_SUM_EXP_OPERATIONS * rows * classes)
            }
            Self::CrossEntropyVjp { p, x, out, g, dx } => {
                let [rows, classes] = p.shape().map(u64::from);
                let weights = x.weights.map_or(0, |weights| bytes(weights, classes));
                let read = bytes(x.logits, rows * classes) + bytes(x.labels, rows) + weights;
                let given = bytes(*out, 2 + rows) + bytes(*g, 1);
                (read + given + stored(dx, rows * classes), CROSS_ENTROPY_VJP_OPERATIONS * rows * classes)
            }
            Self::Ctc { p, x, losses, gradient } => {
                let ([batch, frames, _], all) = (p.logits(), len(p.logits()));
                let lengths = bytes(x.input_lengths, batch.into()) + bytes(x.target_lengths, batch.into());
                let read = bytes(x.logits, all) + bytes(x.targets, len([batch, p.letters()])) + lengths;
                let states = len([batch, frames]) * (2 * u64::from(p.letters()) + 1);
                // Without a gradient, alignments are followed in one direction only.
                let (written, directions) = gradient.as_ref().map_or((0, 1), |gradient| (bytes(&**gradient, all), 2));
                let operations = LOG_SUM_EXP_OPERATIONS * all + directions * CTC_OPERATIONS * states;
                (read + bytes(&**losses, batch.into()) + written, operations)
            }
            Self::GlobalNorm { gradients, norm } => {
                let all: u64 = gradients.iter().map(|gradient| gradient.len() as u64).sum();
                let read: u64 = gradients.iter().map(|gradient| bytes(*gradient, gradient.len() as u64)).sum();
                (read + bytes(&**norm, 1), 2 * all)
            }
            Self::Optimize { p, table: _, guard: _, norm, parameters } => {
                let one = |one: &super::Param<'_, B::Buffer>| {
                    let len = u64::from(one.len);
                    let states: u64 = one.state.iter().flatten().map(|state| 2 * bytes(&**state, len)).sum();
                    let half = one.half.as_ref().map_or(0, |half| bytes(&**half, len));
                    2 * bytes(&*one.master, len) + bytes(one.grad, len) + states + half
                };
                let len: u64 = parameters.iter().map(|one| u64::from(one.len)).sum();
                let limit = norm.map_or(0, |norm| bytes(norm, 1));
                (parameters.iter().map(one).sum::<u64>() + limit, of_rule(p.rule()) * len)
            }
        };
        Cost { bytes, operations }
    }
}

/// Sizes of a tensor, displayed with × between them, for example 12x360x480x64.
struct Sizes<const N: usize>([u32; N]);

impl<const N: usize> fmt::Display for Sizes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, size)| write!(f, "{}{size}", if i == 0 { "" } else { "x" }))
    }
}

/// Display of a launch's sizes, for example `forward 12x360x480x64 7x7x64`.
struct Shape<'a, O: Operands>(&'a Launch<O>);

const fn direction(way: GatherScatter) -> &'static str {
    match way {
        GatherScatter::Gather => "gather",
        GatherScatter::Scatter => "scatter",
    }
}

const fn of_unary(op: Unary) -> &'static str {
    match op {
        Unary::Id => "cast",
        Unary::Neg => "neg",
        Unary::Abs => "abs",
        Unary::Sign => "sign",
        Unary::Relu => "relu",
        Unary::LeakyRelu(_) => "leaky_relu",
        Unary::Tanh => "tanh",
        Unary::Sigmoid => "sigmoid",
        Unary::Gelu => "gelu",
        Unary::Silu => "silu",
        Unary::Hardswish => "hardswish",
        Unary::Erf => "erf",
        Unary::Sin => "sin",
        Unary::Cos => "cos",
        Unary::Exp => "exp",
        Unary::Ln => "ln",
        Unary::Sqrt => "sqrt",
        Unary::Recip => "recip",
        Unary::Pow(_) => "pow",
        Unary::Affine { .. } => "affine",
        Unary::Dropout { .. } => "dropout",
    }
}

/// Returns the name of a binary function, and the suffix if it is a gradient.
const fn of_binary(op: BinaryOp) -> (&'static str, &'static str) {
    match op {
        BinaryOp::Add => ("add", ""),
        BinaryOp::Sub => ("sub", ""),
        BinaryOp::Mul => ("mul", ""),
        BinaryOp::Div => ("div", ""),
        BinaryOp::Max => ("max", ""),
        BinaryOp::Grad(unary) => (of_unary(unary), "_vjp"),
    }
}

const fn of_reduction(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "sum",
        ReduceOp::Mean => "mean",
        ReduceOp::Max => "max",
        ReduceOp::SumSquares => "sum_squares",
        ReduceOp::ArgMax => "argmax",
    }
}

const fn of_columns(read: SoftmaxColumns) -> &'static str {
    match read {
        SoftmaxColumns::All => "",
        SoftmaxColumns::Causal => " causal",
        SoftmaxColumns::Within => " within",
        SoftmaxColumns::Masked => " masked",
    }
}

const fn turned([a, b]: [bool; 2]) -> &'static str {
    match [a, b] {
        [false, false] => "",
        [true, false] => " a'",
        [false, true] => " b'",
        [true, true] => " a' b'",
    }
}

impl<O: Operands> fmt::Display for Shape<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Launch::Unary { op, len, .. } => write!(f, "{} {len}", of_unary(*op)),
            Launch::Round { format, len, .. } => write!(f, "{format} {len}"),
            Launch::RoundBlocks { format, rows, columns, .. } => write!(f, "{format} {}", Sizes([*rows, *columns])),
            Launch::Pack { format, len, .. } | Launch::Unpack { format, len, .. } => write!(f, "{format} {len}"),
            Launch::Binary { p, .. } => {
                let over = match p.over() {
                    Broadcast::All => "",
                    Broadcast::PerColumn => " by column",
                    Broadcast::PerRow => " by row",
                    Broadcast::One => " by one",
                };
                let (word, gradient) = of_binary(p.op());
                write!(f, "{word}{gradient} {}{over}", Sizes(p.shape()))
            }
            Launch::Sum { len, .. } => write!(f, "{len}"),
            Launch::Reduce { p, .. } => write!(f, "{} {}", of_reduction(p.op()), Sizes(p.shape())),
            Launch::Copy { p, .. } => write!(f, "{}", p.count()),
            Launch::Gemm { p, .. } => gemm(p, f),
            Launch::Conv { p, pass, .. } => {
                let pass = match pass {
                    Pass::Forward => "forward",
                    Pass::Data => "data",
                    Pass::Weight => "weight",
                };
                let [o, kernel_h, kernel_w, _] = p.w();
                write!(f, "{pass} {} {}", Sizes(p.x()), Sizes([kernel_h, kernel_w, o]))?;
                if p.group_count() == 1 { Ok(()) } else { write!(f, " in {}", p.group_count()) }
            }
            Launch::Pool { p, .. } => write!(f, "{} {}", Sizes(p.x()), Sizes(p.window())),
            Launch::Unpool { p, way, .. } => {
                write!(f, "{} {} {}", direction(*way), Sizes(p.x()), Sizes(p.window()))
            }
            Launch::Rows { p, way, .. } => {
                write!(f, "{} {} of {}", direction(*way), Sizes([p.count(), p.width()]), p.table())
            }
            Launch::RoiAlign { p, way, .. } => write!(f, "{} {}", direction(*way), Sizes(p.y())),
            Launch::RoiPool { p, .. } | Launch::RoiUnpool { p, .. } => write!(f, "{}", Sizes(p.y())),
            Launch::Norm { p, .. } | Launch::NormVjp { p, .. } => match p.over() {
                NormOver::Batch => write!(f, "batch {}", Sizes(p.x())),
                NormOver::Group(groups) => write!(f, "{groups} groups {}", Sizes(p.x())),
            },
            Launch::Softmax { p, .. } | Launch::SoftmaxVjp { p, .. } => {
                let columns = if p.is_logarithm() { " logarithm" } else { of_columns(p.read()) };
                write!(f, "{}{columns}", Sizes(p.shape()))
            }
            Launch::Attention { p, .. } | Launch::AttentionVjp { p, .. } => {
                let AttentionShape { queries, keys, depth, width, .. } = p.shape();
                let columns = of_columns(p.read());
                write!(f, "{} {}{columns}", Sizes([p.batch(), queries, keys]), Sizes([depth, width]))
            }
            // Steps of a sequence have one line.
            Launch::Lstm { p, .. } | Launch::LstmVjp { p, .. } => write!(f, "{}", Sizes(p.shape())),
            Launch::Gru { p, .. } | Launch::GruVjp { p, .. } => write!(f, "{}", Sizes(p.shape())),
            Launch::CrossEntropy { p, .. } | Launch::CrossEntropyVjp { p, .. } => write!(f, "{}", Sizes(p.shape())),
            Launch::Ctc { p, .. } => write!(f, "{} {}", Sizes(p.logits()), p.letters()),
            // The lists of parameters are not available for every kind of operands.
            Launch::GlobalNorm { .. } => Ok(()),
            Launch::Optimize { p, .. } => f.write_str(match p.rule() {
                Rule::Sgd { .. } => "sgd",
                Rule::Adam { decoupled: false, .. } => "adam",
                Rule::Adam { decoupled: true, .. } => "adamw",
                Rule::Ema { .. } => "running statistics",
            }),
        }
    }
}

fn gemm(p: &Gemm, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let GemmShape { m, n, k } = p.shape();
    write!(f, "{}{}", Sizes([m, n, k]), turned(p.transposed()))?;
    if p.batch() == 1 { Ok(()) } else { write!(f, " batch {}", p.batch()) }
}

impl<O: Operands> Launch<O> {
    /// Returns the sizes of the launch for display: the operator, and the shape of its first operand. A convolution,
    /// for example, is `forward 12x360x480x64 7x7x64`: pass, x, kernel and outputs.
    pub fn shape(&self) -> impl fmt::Display {
        Shape(self)
    }
}
