//! One step of a GRU cell, as one operator.

#[cfg(feature = "onnx")]
use super::cell::{gate_of, products_of_step};
use super::{cell::StepProducts, sequence::gradient_of_places};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule},
};
use gradscale_core::{
    backend::{CellArgs, DType},
    ops::{GradientFlow, Gru, Op},
    scaled::Scaled,
};

impl<'t> Var<'t> {
    /// Computes the next state h′ of a GRU cell `name` from its products with the hidden state h, which are this value
    /// `[…, 3·hidden]`, from those with the inputs, and from h.
    pub(crate) fn gru_step(self, name: &str, x: StepProducts<'t>, h: Self) -> Self {
        self.try_record(|| {
            let p = x.descriptor(name, self, h)?;
            Ok(self.record_named_op(format!("{name}.h"), Op::Recurrent, GruStep(p), &[x.all, h], h.shape()))
        })
    }
}

/// Operator of a step of a GRU cell, with inputs h-products, x-products and h. Its result is h′.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GruStep(Gru);

impl Operator for GruStep {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (h, x, state) = (at.read(0)?.buf, at.read(1)?.buf, at.read_in(2, None)?.buf);
        at.store(|y| Operation::Gru { p: self.0, x: CellArgs { x, h, state }, y })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (of_hidden, of_input, h) = (at.x(0)?, products_of_step(at, &self.0)?, at.x(2)?);
        let [reset, update] = [0, 1].map(|gate| {
            let both = [&of_input, &of_hidden].map(|products| gate_of(at, products, gate));
            let sum = at.emit("Add", &[&both[0], &both[1]], &[]);
            at.emit("Sigmoid", &[&sum], &[])
        });
        let [x, product] = [&of_input, &of_hidden].map(|products| gate_of(at, products, 2));
        let old = at.emit("Mul", &[&reset, &product], &[]);
        let sum = at.emit("Add", &[&x, &old], &[]);
        let candidate = at.emit("Tanh", &[&sum], &[]);
        let difference = at.emit("Sub", &[&h, &candidate], &[]);
        let kept = at.emit("Mul", &[&update, &difference], &[]);
        let next = at.emit("Add", &[&candidate, &kept], &[]);
        at.set_output(next);
        Ok(())
    }

    /// Emits the gradient of the products with the hidden state, which is the cell's site. That of the products with the
    /// inputs, which differs in the candidate, is written in f32 into the tensor of all steps. That of h is f32 at the
    /// exponent of the gradient of h′, and the product with h adds another.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let [h, x, state] = [0, 1, 2].map(|i| at.operand(i).buf);
        let is_part = self.0.step()[1] > 1 && at.needs_grad(1);
        let of_x = if is_part {
            gradient_of_places(at, 1, dy.slot)?
        } else {
            Gradient { value: at.new_buffer(DType::F32, self.0.x_len() as usize), slot: dy.slot }
        };
        let of_state = at.new_buffer(DType::F32, self.0.state_len() as usize);
        let (y, rule) = at.destination(0, dy, GradientFlow::Cast, ScaleRule::FromValues)?;
        let (x, dx) = (CellArgs { x, h, state }, Scaled::new(of_x.value.buf, of_x.slot));
        let (dh, state) = (dy.value.buf, of_state.buf);
        at.emit_with_scale_rule(rule, Operation::GruVjp { p: self.0, x, dh, y, dx, state });
        if at.needs_grad(1) && !is_part {
            at.forward_grad(1, of_x)?;
        }
        if at.needs_grad(2) {
            at.forward_term(2, Gradient { value: of_state, slot: dy.slot })?;
        }
        Ok(())
    }
}
