//! Products of matrices that the network computes, and attention.

use super::{Var, Work, mismatch};
use crate::{Shape, TraceError};
use gradscale_core::{
    descriptor::{Gemm, ShapeError},
    op::Op,
};

impl<'t> Var<'t> {
    /// a·b for each n and h: `[n, h, m, k]` times `[n, h, k, p]` is `[n, h, m, p]`. One product of two matrices has
    /// n = h = 1; where one of them is a parameter, [`Var::linear`] is the usual way.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn matmul(self, b: Self) -> Result<Self, TraceError> {
        self.matrices(b, false)
    }

    /// a·bᵀ for each n and h: `[n, h, m, k]` times `[n, h, p, k]` is `[n, h, m, p]`.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn matmul_transposed(self, b: Self) -> Result<Self, TraceError> {
        self.matrices(b, true)
    }

    fn matrices(self, b: Self, transposed: bool) -> Result<Self, TraceError> {
        let ([n, h, m, k], [bn, bh, rows, columns]) = (self.shape().sizes(), b.shape().sizes());
        let (depth, p) = if transposed { (columns, rows) } else { (rows, columns) };
        if (bn, bh, depth) != (n, h, k) {
            return Err(mismatch("matmul", b.shape(), self.shape()));
        }
        let shape = Shape::from([n, h, m, p]);
        for of in [self.shape(), b.shape(), shape] {
            super::sizes("matmul", of)?;
        }
        let op = if n * h == 1 { Op::Matmul } else { Op::BatchedMatmul };
        Ok(self.then("matmul", op, Work::Matmul { transposed }, &[b], shape))
    }

    /// e^x / Σ e^x over channels, in f32.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn softmax(self) -> Result<Self, TraceError> {
        self.weights(false)
    }

    /// [`Var::softmax`] in which row i of each `[w, c]` matrix sees its first i + 1 columns only; the others are 0.
    ///
    /// # Errors
    /// No channels, or too many elements.
    pub fn causal_softmax(self) -> Result<Self, TraceError> {
        self.weights(true)
    }

    fn weights(self, causal: bool) -> Result<Self, TraceError> {
        self.sizes("softmax")?;
        if self.shape().channels() == 0 {
            return Err(TraceError::new("softmax", ShapeError::Empty));
        }
        Ok(self.then("softmax", Op::Softmax, Work::Softmax { causal }, &[], self.shape()))
    }

    /// Scaled dot-product attention: softmax(q·kᵀ / √d)·v, of queries `[n, heads, t, d]`, keys `[n, heads, s, d]` and
    /// values `[n, heads, s, e]`. `causal`: a query sees the keys up to its own place. The queries are divided before
    /// their product, so that it fits halves; the softmax is f32.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn attention(self, name: &str, k: Self, v: Self, causal: bool) -> Result<Self, TraceError> {
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let scale = (1.0 / (self.shape().channels().max(1) as f64).sqrt()) as f32;
        let part = |var: Self, what: &str| var.named(&format!("{name}.{what}"));
        let scores = part(part(self.scale(scale), "scale").matmul_transposed(k)?, "scores");
        let weights = part(scores.weights(causal)?, "softmax");
        Ok(part(weights.matmul(v)?, "mix"))
    }
}

/// The products of a node: of a `[m, k]`, b `[k, p]` or its transpose, one for each of `batch`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrices {
    pub batch: u32,
    pub m: u32,
    pub p: u32,
    pub k: u32,
}

impl Matrices {
    /// From the shapes of a and the result, which were checked when the node was written.
    pub fn new(name: &str, a: Shape, y: Shape) -> Result<Self, TraceError> {
        let ([n, h, m, k], [.., p]) = (super::sizes(name, a)?, super::sizes(name, y)?);
        Ok(Self { batch: n * h, m, p, k })
    }

    /// y = a·b.
    pub fn forward(self, transposed: bool) -> Result<Gemm, ShapeError> {
        let Self { batch, m, p, k } = self;
        let gemm = Gemm::new(m, p, k)?.batched(batch, [m * k, k * p, m * p])?;
        if transposed { gemm.transpose_b() } else { Ok(gemm) }
    }

    /// da = dy·bᵀ.
    pub fn of_a(self, transposed: bool) -> Result<Gemm, ShapeError> {
        let Self { batch, m, p, k } = self;
        let gemm = Gemm::new(m, k, p)?.batched(batch, [m * p, k * p, m * k])?;
        if transposed { Ok(gemm) } else { gemm.transpose_b() }
    }

    /// db = aᵀ·dy (of a, dy), or, transposed, dyᵀ·a (of dy, a).
    pub fn of_b(self, transposed: bool) -> Result<Gemm, ShapeError> {
        let Self { batch, m, p, k } = self;
        let gemm = if transposed {
            Gemm::new(p, k, m)?.batched(batch, [m * p, m * k, p * k])?
        } else {
            Gemm::new(k, p, m)?.batched(batch, [m * k, m * p, k * p])?
        };
        gemm.transpose_a()
    }
}
