//! One step of an LSTM cell, as one operator with two results.

#[cfg(feature = "onnx")]
use super::cell::{gate_of, products_of_step};
use super::{
    cell::StepProducts,
    sequence::{add_to_place, fill},
};
#[cfg(feature = "onnx")]
use crate::onnx::Writer;
use crate::{
    Shape, TraceError, Var,
    graph::{Context, Gradient, Operation, Operator, ScaleRule, StoreSpec, cast},
};
use gradscale_core::{
    amp::Precision,
    backend::{CellArgs, DType, Slot},
    ops::{GradientFlow, Lstm, Op},
    scaled::Scaled,
};

impl<'t> Var<'t> {
    /// Computes the next state h′, c′ of an LSTM cell `name` from its products with the hidden state, which are this
    /// value `[…, 4·hidden]`, and with the inputs.
    pub(crate) fn lstm_step(self, name: &str, x: StepProducts<'t>, c: Self) -> [Self; 2] {
        let of_cell = |what: &str| format!("{name}.{what}");
        let h = self.try_record(|| {
            let p = x.descriptor(name, self, c)?;
            Ok(self.record_named_op(of_cell("h"), Op::Recurrent, LstmStep(p), &[x.all, c], c.shape()))
        });
        // The type of c′ in the plan is that of c.
        let state = NextState { of: h.id() };
        [h, h.record_named_op(of_cell("c"), Op::Slice, state, &[c], c.shape())]
    }
}

/// Operator of a step of an LSTM cell, with inputs h-products, x-products and c. Its result is h′; it saves c′.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LstmStep(Lstm);

impl LstmStep {
    fn state_len(self) -> usize {
        self.0.state_len() as usize
    }
}

impl Operator for LstmStep {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let (h, x, c) = (at.read(0)?.buf, at.read(1)?.buf, at.read_in(2, None)?.buf);
        let state = at.new_buffer(DType::F32, self.state_len());
        at.save(state);
        at.store(|y| Operation::Lstm { p: self.0, x: CellArgs { x, h, state: c }, y, state: state.buf })
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let (of_hidden, of_input, c) = (at.x(0)?, products_of_step(at, &self.0)?, at.x(2)?);
        let sums = at.emit("Add", &[&of_input, &of_hidden], &[]);
        let gates: [String; 4] = std::array::from_fn(|gate| {
            let sum = gate_of(at, &sums, gate);
            at.emit(if gate == 2 { "Tanh" } else { "Sigmoid" }, &[&sum], &[])
        });
        let kept = at.emit("Mul", &[&gates[1], &c], &[]);
        let new = at.emit("Mul", &[&gates[0], &gates[2]], &[]);
        let state = at.emit("Add", &[&kept, &new], &[]);
        at.save(state.clone());
        let tanh = at.emit("Tanh", &[&state], &[]);
        let h = at.emit("Mul", &[&gates[3], &tanh], &[]);
        at.set_output(h);
        Ok(())
    }

    /// Emits the gradient of the sums of both products, which is the cell's site, and that of c, f32 at the exponent of
    /// the gradient of h′.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let [h, x, c] = [0, 1, 2].map(|i| at.operand(i).buf);
        let dc = at.passed_gradient().map(|dc| Scaled::new(dc.value.buf, dc.slot));
        let (y, rule) = at.destination(0, dy, GradientFlow::Cast, ScaleRule::FromValues)?;
        let of_state = at.new_buffer(DType::F32, self.state_len());
        let (x, dh, state) = (CellArgs { x, h, state: c }, dy.value.buf, of_state.buf);
        at.emit_with_scale_rule(rule, Operation::LstmVjp { p: self.0, x, dh, dc, y, state });
        let of_sums = Gradient { value: y.y, slot: y.to };
        if at.needs_grad(1) {
            let [step, steps] = self.0.step();
            if steps == 1 {
                at.forward_grad(1, of_sums)?;
            } else {
                let [rows, hidden] = self.0.shape().map(|size| size as usize);
                add_to_place(at, 1, Shape::from([rows, 1, 1, 4 * hidden]), [2, step as usize], of_sums)?;
            }
        }
        if at.needs_grad(2) {
            at.forward_grad(2, Gradient { value: of_state, slot: dy.slot })?;
        }
        Ok(())
    }
}

/// Operator of the state c′ that the node of a cell has computed, with inputs h′ and c.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NextState {
    of: usize,
}

impl Operator for NextState {
    fn forward(&self, at: &mut Context<'_, '_, '_>) -> Result<(), TraceError> {
        let Some(state) = at.saved_of(self.of) else { return Ok(()) };
        // Levels that store everything in half do so with states.
        if at.precision() == Some(Precision::Half) {
            return at.store(|y| cast(state.buf, y));
        }
        at.set_output(state);
        Ok(())
    }

    #[cfg(feature = "onnx")]
    fn onnx(&self, at: &mut Writer<'_>) -> Result<(), TraceError> {
        let state = at.saved(self.of).ok_or_else(|| at.unsupported("this cell kept no state"))?;
        at.set_output(state);
        Ok(())
    }

    fn reads_saved(&self) -> Option<usize> {
        Some(self.of)
    }

    /// Passes the gradient of c′ to the cell, which computes all gradients at once. If nothing depends on h′, its
    /// gradient is 0.
    fn vjp(&self, at: &mut Context<'_, '_, '_>, dy: Gradient) -> Result<(), TraceError> {
        let dy = single(at, dy);
        at.pass_gradient(self.of, dy);
        if at.peek_grad(0).is_none() {
            let zeros = at.new_buffer(DType::F32, dy.value.len);
            fill(at, StoreSpec::passthrough(zeros, Slot::ONE))?;
            at.push_grad(0, Gradient { value: zeros, slot: dy.slot });
        }
        Ok(())
    }
}

/// Returns a gradient in f32, as kernels of cells read it; the conversion of a half is exact.
fn single(at: &mut Context<'_, '_, '_>, dy: Gradient) -> Gradient {
    match dy.value.dtype {
        DType::F16 => {
            let (x, len) = (dy.value, dy.value.len);
            at.temporary_gradient(len, dy, |y| cast(x.buf, y))
        }
        DType::F32 | DType::U8 | DType::U32 => dy,
    }
}
