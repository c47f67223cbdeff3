//! Product of a recurrent cell with its hidden state, for a step of a sequence. The gradient of its weights is one product
//! over all steps.

use super::{
    cell::StepProducts,
    linear::{Linear, vjp_of_bias_of, vjp_of_x},
    sequence::fill,
    slice::{Way, part},
};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, StoreSpec},
};
use gradscale_core::{
    backend::Slot,
    ops::{ActivationFlow, Gemm, GradientFlow, Op},
};
use std::any::Any;

impl<'t> Var<'t> {
    /// Applies the product of a cell with the hidden state in the step of x. If `is_sum`, the cell reads only sums with the
    /// products x, so that both have one gradient.
    pub(crate) fn step_product(self, name: &str, x: StepProducts<'t>, is_sum: bool, weight: Self, bias: Self) -> Self {
        let operator = StepProduct { of: x.all.id(), step: x.step, is_first: x.is_first, is_sum };
        self.product_by(name, Op::Recurrent, operator, weight, Some(bias))
    }
}

/// Operator of the product with the hidden state in a step, with the inputs of [`Linear`].
#[derive(Clone, Copy, Debug, PartialEq)]
struct StepProduct {
    /// Node of the products with the inputs of all steps.
    of: usize,
    /// Step; `None` if there is no other.
    step: Option<usize>,
    /// True for the step that is computed first, whose gradient is computed last.
    is_first: bool,
    /// True if the gradient of the node `of` is that of these products.
    is_sum: bool,
}

impl Operator for StepProduct {
    fn activation_flow(&self, op: Op) -> ActivationFlow {
        Linear.activation_flow(op)
    }

    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        Linear.forward(at)
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        Linear.onnx(at)
    }

    fn bias(&self) -> Option<usize> {
        Linear.bias()
    }

    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        // With sites of their own, steps have gradients at exponents of their own.
        if self.step.is_none() || at.each_call_has_sites() || !at.needs_grad_of(self.of) {
            return Linear.vjp(at, dy);
        }
        let own = if self.is_sum { None } else { Some(self.gather(at, dy)?) };
        if self.is_first {
            self.vjp_of_weights(at, own)?;
        }
        vjp_of_x(at, dy)
    }
}

impl StepProduct {
    /// Emits the copy of the step's gradient into a tensor of all steps, which the backward passes of the steps pass on as
    /// that of the node `of`.
    fn gather(self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<Gradient, TraceError> {
        let all = at.shape_of(self.of);
        let whole = match at.gradient_passed_to(self.of) {
            Some(whole) => whole,
            None => {
                // Steps without a gradient remain 0.
                let value = at.new_buffer(dy.value.dtype, all.len());
                fill(at, StoreSpec::passthrough(value, Slot::ONE))?;
                let whole = Gradient { value, slot: dy.slot };
                at.pass_gradient(self.of, whole);
                whole
            }
        };
        let p = part(at.node, [all, at.node.shape], 2, self.step.unwrap_or(0), Way::Into)?;
        at.emit(Operation::Copy { p, x: dy.value.buf, y: StoreSpec::rescaled(whole.value, dy.slot, whole.slot) });
        Ok(whole)
    }

    /// Emits the gradients of weights and bias from the products' gradient and the hidden states of all steps. The gradient
    /// is that of the sums if there is no `own`.
    fn vjp_of_weights(self, at: &mut Context<'_, '_, '_>, own: Option<Gradient>) -> Result<(), TraceError> {
        let node = at.node;
        let state = at.operand(0);
        let sums = if own.is_some() { own } else { at.whole_gradient(self.of, state.dtype)? };
        let Some(products) = sums else { return Ok(()) };
        let mut slots = Vec::new();
        let mut steps = Vec::new();
        for (id, operator) in at.live_operators() {
            if let Some(other) = (operator as &dyn Any).downcast_ref::<Self>()
                && other.of == self.of
                && let Some(step) = other.step
            {
                steps.push((id, step));
                slots.push(at.operand_slot_of(id, 0));
            }
        }
        let common = at.common_of(&slots)?;
        let ([n, .., hidden], count) = (at.input(0).sizes(), steps.len());
        let (piece, all) = (Shape::from([n, 1, 1, hidden]), Shape::from([n, 1, count, hidden]));
        let states = at.new_buffer(state.dtype, all.len());
        for ((id, step), slot) in steps.into_iter().zip(slots) {
            let (p, x) = (part(node, [all, piece], 2, step, Way::Into)?, at.operand_of(id, 0).buf);
            // The smallest exponent of all is exact for each.
            at.emit(Operation::Copy { p, x, y: StoreSpec::rescaled(states, slot, common) });
        }
        let (rows, outputs) = (node.size(n * count)?, node.size(node.shape.channels())?);
        if at.needs_grad(1) {
            let p = Gemm::new(outputs, node.size(hidden)?, rows).and_then(Gemm::transpose_a);
            let p = p.map_err(|error| node.error(error))?;
            let (a, b) = (products.value.buf, states.buf);
            let dy = at.gradient_at(products, common)?;
            at.emit_gradient(1, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| Operation::Gemm {
                p,
                a,
                b,
                bias: None,
                y,
            })?;
        }
        vjp_of_bias_of(at, products, rows)
    }
}
