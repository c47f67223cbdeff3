//! Products of two computed matrices, and attention.

#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Node, Operation, Operator, ScaleRule, mismatch, sizes},
};
use gradscale_core::{
    model::terms::Terms,
    ops::{ActivationFlow, Gemm, GradientFlow, Op, ShapeError},
};

/// Mask of an attention: the keys that a query attends to.
#[derive(Clone, Copy, Debug)]
pub enum AttentionMask<'t> {
    /// All keys.
    None,
    /// Keys up to the query's own position ([`Var::causal_softmax`]).
    Causal,
    /// Keys before the end of their sequence: integers `[n]`, the lengths ([`Var::softmax_within`]).
    Within(Var<'t>),
    /// Keys where a mask is above 0 ([`Var::softmax_where`]). Its shape is `[n, heads, t, s]`, queries before keys; sizes
    /// of 1 are repeated.
    Where(Var<'t>),
}

impl<'t> Var<'t> {
    /// Computes a·b for each n and h: `[n, h, m, k]` times `[n, h, k, p]` is `[n, h, m, p]`. For one product of two
    /// matrices, n = h = 1; for a product with a parameter, prefer [`Var::linear`].
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn matmul(self, b: Self) -> Self {
        self.matrices(b, false)
    }

    /// Computes a·bᵀ for each n and h: `[n, h, m, k]` times `[n, h, p, k]` is `[n, h, m, p]`.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn matmul_transposed(self, b: Self) -> Self {
        self.matrices(b, true)
    }

    fn matrices(self, b: Self, transposed: bool) -> Self {
        self.try_record(|| {
            let ([n, h, m, k], [bn, bh, rows, columns]) = (self.shape().sizes(), b.shape().sizes());
            let (depth, p) = if transposed { (columns, rows) } else { (rows, columns) };
            if (bn, bh, depth) != (n, h, k) {
                let [rows, columns] = if transposed { [None, Some(k)] } else { [Some(k), None] };
                return Err(mismatch("matmul", "right operand", b, [Some(n), Some(h), rows, columns]));
            }
            let shape = Shape::from([n, h, m, p]);
            for of in [self.shape(), b.shape(), shape] {
                sizes("matmul", of)?;
            }
            let op = if n * h == 1 { Op::Matmul } else { Op::BatchedMatmul };
            Ok(self.record_op("matmul", op, Matmul { transposed }, &[b], shape))
        })
    }

    /// Computes scaled dot-product attention, softmax(q·kᵀ / √d)·v, of queries `[n, heads, t, d]`, keys
    /// `[n, heads, s, d]` and values `[n, heads, s, e]`. With `causal` a query attends to the keys up to its own
    /// position. The queries are divided before their product, so that it fits in halves; the softmax is f32.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn attention(self, name: &str, k: Self, v: Self, causal: bool) -> Self {
        self.attention_with(name, k, v, if causal { AttentionMask::Causal } else { AttentionMask::None })
    }

    /// Computes [`Var::attention`] under a mask, which says which keys a query attends to.
    ///
    /// # Errors
    /// Shapes that do not fit, or an error of the mask's softmax ([`AttentionMask`]).
    pub fn attention_with(self, name: &str, k: Self, v: Self, mask: AttentionMask<'t>) -> Self {
        self.try_record(|| {
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let scale = (1.0 / (self.shape().channels().max(1) as f64).sqrt()) as f32;
            let part = |var: Self, what: &str| var.named(&format!("{name}.{what}"));
            let scores = part(part(self.scale(scale), "scale").matmul_transposed(k), "scores");
            let weights = match mask {
                AttentionMask::None => scores.softmax(),
                AttentionMask::Causal => scores.causal_softmax(),
                AttentionMask::Within(lengths) => scores.softmax_within(lengths),
                AttentionMask::Where(mask) => scores.softmax_where(mask),
            };
            let weights = part(weights, "softmax");
            Ok(part(weights.matmul(v), "mix"))
        })
    }
}

/// Operator of batched matrix products, with inputs a and b. Inputs: a, b; one product for each n and h; b may be
/// transposed.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Matmul {
    transposed: bool,
}

impl Operator for Matmul {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (a, b, bias) = at.read_product()?;
        let p = Matrices::new(at.node, at.input(0))?.forward(self.transposed).map_err(|error| at.node.error(error))?;
        at.store(|y| Operation::Gemm { p, a, b, bias, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (a, mut b) = (at.x(0)?, at.x(1)?);
        if self.transposed {
            b = at.permuted(&b, [0, 1, 3, 2]);
        }
        let y = at.emit("MatMul", &[&a, &b], &[]);
        at.set_output(y);
        Ok(())
    }

    /// Emits the gradients of both operands. Both may be computed values; then both gradients are sites.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let (node, transposed) = (at.node, self.transposed);
        let (a, b, g) = (at.operand(0), at.operand(1), dy.value.buf);
        let matrices = Matrices::new(node, at.input(0))?;
        if at.needs_grad(1) {
            let p = matrices.of_b(transposed).map_err(|error| node.error(error))?;
            let dy = at.gradient_times(dy, 0)?;
            let rule = ScaleRule::FromGemmOperands { dy, w: a, terms: Terms::linear(matrices.m) };
            let (a, b) = if transposed { (g, a.buf) } else { (a.buf, g) };
            at.emit_gradient(1, dy, GradientFlow::Cast, rule, |y| Operation::Gemm { p, a, b, bias: None, y })?;
        }
        if at.needs_grad(0) {
            let p = matrices.of_a(transposed).map_err(|error| node.error(error))?;
            let dy = at.gradient_times(dy, 1)?;
            let rule = ScaleRule::FromGemmOperands { dy, w: b, terms: Terms::linear(matrices.p) };
            let (a, b) = (g, b.buf);
            at.emit_gradient(0, dy, GradientFlow::Cast, rule, |y| Operation::Gemm { p, a, b, bias: None, y })?;
        }
        Ok(())
    }
}

/// Matrix products of a node: a `[m, k]` times b `[k, p]` or its transpose, one for each of `batch`.
#[derive(Clone, Copy, Debug)]
struct Matrices {
    batch: u32,
    m: u32,
    p: u32,
    k: u32,
}

impl Matrices {
    /// Computes the sizes from the shapes of a and the result, which were checked when the node was recorded.
    fn new(node: &Node, a: Shape) -> Result<Self, TraceError> {
        let ([n, h, m, k], [.., p]) = (sizes(&node.name, a)?, node.sizes()?);
        Ok(Self { batch: n * h, m, p, k })
    }

    /// Returns the forward product y = a·b of the matrices.
    fn forward(self, transposed: bool) -> Result<Gemm, ShapeError> {
        let Self { batch, m, p, k } = self;
        let gemm = Gemm::new(m, p, k)?.batched(batch, [m * k, k * p, m * p])?;
        if transposed { gemm.transpose_b() } else { Ok(gemm) }
    }

    /// Returns the product da = dy·bᵀ, the gradient of a.
    fn of_a(self, transposed: bool) -> Result<Gemm, ShapeError> {
        let Self { batch, m, p, k } = self;
        let gemm = Gemm::new(m, k, p)?.batched(batch, [m * p, k * p, m * k])?;
        if transposed { Ok(gemm) } else { gemm.transpose_b() }
    }

    /// Returns the product db = aᵀ·dy (operands a, dy), or, transposed, dyᵀ·a (operands dy, a).
    fn of_b(self, transposed: bool) -> Result<Gemm, ShapeError> {
        let Self { batch, m, p, k } = self;
        let gemm = if transposed {
            Gemm::new(p, k, m)?.batched(batch, [m * p, m * k, p * k])?
        } else {
            Gemm::new(k, p, m)?.batched(batch, [m * k, m * p, k * p])?
        };
        gemm.transpose_a()
    }
}
