//! Linear operator: products with a weight matrix.

#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, mismatch, other_shape, size},
};
use gradscale_core::{
    model::terms::Terms,
    ops::{ActivationFlow, Gemm, GradientFlow, Op, Reduce, ReduceOp},
};

impl<'t> Var<'t> {
    /// Applies a linear layer over the channels of x: `x·weightᵀ + bias`, weights `[out, in]`.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn linear(self, name: &str, weight: Self, bias: Option<Self>) -> Self {
        self.product(name, Op::Linear, weight, bias)
    }

    /// Applies the linear layer [`Var::linear`] in the precision of another operator.
    pub(crate) fn product(self, name: &str, op: Op, weight: Self, bias: Option<Self>) -> Self {
        self.product_by(name, op, Linear, weight, bias)
    }

    /// Applies a linear layer by an operator that has its inputs and its result.
    pub(super) fn product_by(
        self, name: &str, op: Op, operator: impl Operator, weight: Self, bias: Option<Self>,
    ) -> Self {
        self.try_record(|| {
            let [n, h, w, c] = self.shape().sizes();
            let [out, .., features] = weight.shape().sizes();
            if weight.shape().len() != out * features {
                return Err(mismatch(name, "weight", weight, [Some(out), Some(1), Some(1), Some(features)]));
            }
            if features != c {
                let expected = [None, None, None, Some(features)];
                return Err(mismatch(name, "input", self, expected).in_layer("Linear"));
            }
            if let Some(bias) = bias.filter(|bias| bias.shape().len() != out) {
                return Err(other_shape(name, "bias", bias, [out].into()).in_layer("Linear"));
            }
            let rows = size(name, self.shape().rows())?;
            Gemm::new(rows, size(name, out)?, size(name, c)?).map_err(|error| TraceError::new(name, error))?;
            let others: Vec<Self> = std::iter::once(weight).chain(bias).collect();
            Ok(self.record_named_op(name.to_owned(), op, operator, &others, Shape::from([n, h, w, out])))
        })
    }
}

/// Operator of a linear layer, with inputs x, weights `[out, in]` and an optional bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Linear;

/// Returns the sizes m, n, k of the layer's product: rows of x, outputs, inputs.
fn mnk(at: &Context<'_, '_, '_>) -> Result<[u32; 3], TraceError> {
    let node = at.node;
    Ok([node.size(node.shape.rows())?, node.size(node.shape.channels())?, node.size(at.input(0).channels())?])
}

impl Operator for Linear {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        op.activation_flow()
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (a, b, bias) = at.read_product()?;
        let [m, n, k] = mnk(at)?;
        let p = Gemm::new(m, n, k).and_then(Gemm::transpose_b).map_err(|error| at.node.error(error))?;
        at.store(|y| Operation::Gemm { p, a, b, bias, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (out, c) = (at.node().shape.channels(), at.shape(0).channels());
        let x = at.x(0)?;
        // [out, …, c], whatever sizes are in between.
        let weight = at.ordered(1, [3, 1, 2, 0], &[c, out])?;
        let mut y = at.emit("MatMul", &[&x, &weight], &[]);
        if at.node().inputs.len() > 2 {
            let bias = at.shaped(2, &[out])?;
            y = at.emit("Add", &[&y, &bias], &[]);
        }
        at.set_output(y);
        Ok(())
    }

    fn bias(&self) -> Option<usize> {
        Some(2)
    }

    /// Emits the gradients of a linear layer: dw = dyᵀ·x, db = Σ dy, dx = dy·w.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let node = at.node;
        let [m, n, k] = mnk(at)?;
        let (x, g) = (at.operand(0), dy.value.buf);
        if at.needs_grad(1) {
            let p = Gemm::new(n, k, m).and_then(Gemm::transpose_a).map_err(|error| node.error(error))?;
            let (a, b) = (g, x.buf);
            let dy = at.gradient_times(dy, 0)?;
            at.emit_gradient(1, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Gemm {
                p,
                a,
                b,
                bias: None,
                y,
            })?;
        }
        vjp_of_bias(at, dy)?;
        vjp_of_x(at, dy)
    }
}

/// Emits the gradient of a linear layer's input 0.
pub(super) fn vjp_of_x(at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    if !at.needs_grad(0) {
        return Ok(());
    }
    let [m, n, k] = mnk(at)?;
    let p = Gemm::new(m, k, n).map_err(|error| at.node.error(error))?;
    let (w, a) = (at.operand(1), dy.value.buf);
    let dy = at.gradient_times(dy, 1)?;
    let rule = ScaleRule::FromGemmOperands { dy, w, terms: Terms::linear(n) };
    let b = w.buf;
    at.emit_gradient(0, dy, GradientFlow::Cast, rule, |y| Operation::Gemm { p, a, b, bias: None, y })
}

/// Emits the gradient of a product's bias, its input 2: the sum over all rows.
pub(super) fn vjp_of_bias(at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
    let rows = at.node.size(at.node.shape.rows())?;
    vjp_of_bias_of(at, dy, rows)
}

/// Emits the gradient of a product's bias from a gradient of that many rows.
pub(super) fn vjp_of_bias_of(at: &mut Context<'_, '_, '_>, dy: Gradient, rows: u32) -> Result<(), TraceError> {
    if !at.needs_grad(2) {
        return Ok(());
    }
    let node = at.node;
    let p = Reduce::new(ReduceOp::Sum, 1, rows, node.size(node.shape.channels())?);
    let (p, x) = (p.map_err(|error| node.error(error))?, dy.value.buf);
    at.emit_gradient(2, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Reduce { p, x, y })
}
