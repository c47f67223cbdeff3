//! Backward pass: one walk over the tape, passing ⟨α, ∇X⟩ from rule to rule (paper, Algorithm 1).

use super::{
    Compiler, Context, Fixed, Gradient, Launch, NodeKind, Operation, Operator, ParamTensor, Purpose, ScaleRule,
    StoreSpec, Traced, Value, cast, store_blocks::columns_of,
};
use crate::{Shape, TraceError, error::TraceErrorKind, sites::SlotKind};
use gradscale_core::{
    backend::{DType, Slot},
    scaled::Scaled,
    stats::Detail,
};

impl Compiler<'_, '_> {
    pub(super) fn backward(&mut self) -> Result<(), TraceError> {
        let trace = self.trace;
        let output = &trace.nodes[trace.output];
        if output.shape.len() != 1 || !self.needs_gradient[trace.output] {
            return Err(TraceError::new(&output.name, TraceErrorKind::Loss(output.shape)));
        }
        // ⟨α₀, ∂L⟩ starts here, with α₀ = 0 and ∂L = 1.
        let one = Gradient { value: Value::f32(self.fixed.scalar_one(), 1), slot: Slot::ONE };
        self.gradients[trace.output].push(one);
        if let NodeKind::Parameter(p) = output.work {
            // The loss itself is a parameter.
            let target = self.parameter(p, one);
            self.launches.push(cast(one.value.buf, target).into());
        }
        let mut parts = trace.recomputed.clone();
        for (id, node) in trace.nodes.iter().enumerate().rev() {
            if !self.live[id] || !self.needs_gradient[id] {
                continue;
            }
            let Some(dy) = self.accumulate_consumer_grads(id)? else { continue };
            if let Some(i) = parts.iter().position(|part| part.contains(&id)) {
                self.recompute(parts.swap_remove(i))?;
            }
            self.traced.push(Traced { name: node.name.clone(), gradient: dy, shape: node.shape });
            if let NodeKind::Operator(operator) = &node.work {
                operator.vjp(&mut Context::new(self, id, node), dy)?;
            }
            self.launches.append(&mut self.deferred_casts);
            self.origins.resize(self.launches.len(), (id, true));
        }
        Ok(())
    }

    /// Emits the gradient of a node: the sum over the gradients of its consumers.
    fn accumulate_consumer_grads(&mut self, id: usize) -> Result<Option<Gradient>, TraceError> {
        let terms = std::mem::take(&mut self.gradients[id]);
        let (Some(&first), more) = (terms.first(), terms.len() > 1) else { return Ok(None) };
        if !more {
            return Ok(Some(first));
        }
        let node = &self.trace.nodes[id];
        // The f32 sum is a site like any other, with one rounding. For an f32 value the gradient stays f32, at the
        // exponent of the first part.
        let half = !self.shared.single_gradients && self.values[id].is_some_and(|value| value.dtype == DType::F16);
        let y = self.new_buffer(if half { DType::F16 } else { DType::F32 }, node.shape.len());
        let terms = terms.iter().map(|term| Scaled::new(term.value.buf, term.slot)).collect();
        let to = if half { self.slot(&format!("{}/sum", node.name), SlotKind::Site)? } else { first.slot };
        let target =
            if half { self.site_store(y, first.slot, to, node.shape) } else { StoreSpec::rescaled(y, first.slot, to) };
        let of_operator = node.operator().map_or(ScaleRule::FromSum, Operator::rule_of_sum);
        let rule = if half { of_operator } else { ScaleRule::None };
        self.launches.push(Launch::new(Operation::Sum { len: y.elements(), terms, y: target }, rule));
        Ok(Some(Gradient { value: y, slot: to }))
    }

    /// Returns the store of a parameter's gradient: f32 at exponent 0, added to the gradients that this step has
    /// already stored there.
    pub(super) fn parameter(&mut self, p: usize, dy: Gradient) -> StoreSpec {
        let again = self.contributes.contains(&p);
        if !again {
            self.contributes.push(p);
        }
        let add = again || self.purpose == (Purpose::Train { later: true });
        let parameter = self.shared.parameters[p];
        let y = Value::f32(Fixed::tensor(p, ParamTensor::Gradient), parameter.len);
        StoreSpec { detail: Detail::Counts, add, ..StoreSpec::rescaled(y, dy.slot, parameter.slot) }
    }

    /// Returns the store of a gradient of that shape at a cast site, in the site's format.
    pub(super) fn site_store(&self, y: Value, from: Slot, to: Slot, shape: Shape) -> StoreSpec {
        let format = self.shared.sites.format(to);
        StoreSpec { detail: Detail::Moments, format, columns: columns_of(shape), ..StoreSpec::rescaled(y, from, to) }
    }
}
