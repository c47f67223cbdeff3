//! The backward pass: one walk over the tape, handing ⟨α, ∇X⟩ from rule to rule (paper, Algorithm 1).

use super::{Compiler, Fixed, Gradient, Launch, Operation, Part, Purpose, Rule, Target, Traced, Value, cast};
use crate::{TraceError, error::TraceErrorKind, parameters::Role, sites::SlotKind, trace::Work};
use gradscale_core::{
    amp::Precision,
    backend::{DType, Slot},
    rules::Flow,
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
        // Here ⟨α₀, ∂L⟩ begins, with α₀ = 0 and ∂L = 1.
        let one = Gradient { value: Value { buf: self.fixed.one(), dtype: DType::F32 }, slot: Slot::ONE };
        self.gradients[trace.output].push(one);
        if let Work::Parameter(p) = output.work {
            // A loss that is a parameter.
            let target = self.parameter(p, one);
            self.launches.push(cast(one.value.buf, target).into());
        }
        for (id, node) in trace.nodes.iter().enumerate().rev() {
            if !self.live[id] || !self.needs_gradient[id] {
                continue;
            }
            let Some(dy) = self.combined(id)? else { continue };
            self.traced.push(Traced { name: node.name.clone(), gradient: dy, shape: node.shape });
            self.vjp(id, node, dy)?;
            self.launches.append(&mut self.casts_behind);
            self.origins.resize(self.launches.len(), (id, true));
        }
        Ok(())
    }

    /// The gradient of a node: the sum over its consumers.
    fn combined(&mut self, id: usize) -> Result<Option<Gradient>, TraceError> {
        let terms = std::mem::take(&mut self.gradients[id]);
        let (Some(&first), more) = (terms.first(), terms.len() > 1) else { return Ok(None) };
        if !more {
            return Ok(Some(first));
        }
        let node = &self.trace.nodes[id];
        // The f32 sum is a site like any other: one rounding. Behind an f32 value it stays f32, at the exponent of the
        // first part.
        let half = self.values[id].is_some_and(|value| value.dtype == DType::F16);
        let y = self.new_buffer(if half { DType::F16 } else { DType::F32 }, node.shape.len());
        let terms = terms.iter().map(|term| Scaled::new(term.value.buf, term.slot)).collect();
        let to = if half { self.slot(&format!("{}/sum", node.name), SlotKind::Site)? } else { first.slot };
        let detail = if half { Detail::Moments } else { Detail::None };
        let target = Target { y: y.buf, from: first.slot, to, detail, add: false };
        let rule = match node.work {
            _ if !half => Rule::None,
            Work::Split => Rule::Split,
            _ => Rule::Branch,
        };
        self.launches.push(Launch { rule, operation: Operation::Sum { terms, y: target } });
        Ok(Some(Gradient { value: y, slot: to }))
    }

    /// A parameter's gradient: f32 at exponent 0, added to what this step has already stored there.
    fn parameter(&mut self, p: usize, dy: Gradient) -> Target {
        let again = self.contributes.contains(&p);
        if !again {
            self.contributes.push(p);
        }
        let add = again || self.purpose == (Purpose::Train { later: true });
        let (y, to) = (Fixed::part(p, Part::Gradient), self.shared.parameters[p].slot);
        Target { y, from: dy.slot, to, detail: Detail::Counts, add }
    }

    /// A parameter's gradient that is half before it is f32, as that of a half weight is in PyTorch: scaled f32 of the
    /// operator, rounded once at a site of its own, then unscaled in f32.
    fn half_parameter(&mut self, id: usize, i: usize, p: usize, dy: Gradient) -> Result<Target, TraceError> {
        let node = &self.trace.nodes[id];
        let len = self.trace.nodes[node.inputs[i]].shape.len();
        let name = match (&node.work, i) {
            (Work::Linear | Work::Conv(_) | Work::ConvTranspose(_), 2) => format!("{}/bgrad", node.name),
            (_, 1) => format!("{}/wgrad", node.name),
            _ => format!("{}/wgrad.{i}", node.name),
        };
        let (single, half) = (self.new_buffer(DType::F32, len), self.new_buffer(DType::F16, len));
        let to = self.slot(&name, SlotKind::Site)?;
        let rounded = Target { y: half.buf, from: dy.slot, to, detail: Detail::Moments, add: false };
        self.casts_behind.push(Launch { rule: Rule::Cast, operation: cast(single.buf, rounded) });
        let unscaled = self.parameter(p, Gradient { value: half, slot: to });
        self.casts_behind.push(cast(half.buf, unscaled).into());
        Ok(Target::keep(single.buf, dy.slot))
    }

    /// Whether input `i` of a node wants a gradient.
    pub(super) fn wants(&self, id: usize, i: usize) -> bool {
        self.trace.nodes[id].inputs.get(i).is_some_and(|&input| self.needs_gradient[input])
    }

    /// Where the gradient of input `i` of node `id` goes, and by which rule. A parameter's goes to f32 at exponent 0.
    /// Another's is stored as its operand was: in half that is a site if values are rounded there.
    pub(super) fn destination(
        &mut self, id: usize, i: usize, dy: Gradient, flow: Flow, rule: Rule,
    ) -> Result<(Target, Rule), TraceError> {
        let node = &self.trace.nodes[id];
        let input = node.inputs[i];
        if let Work::Parameter(p) = self.trace.nodes[input].work
            && self.shared.parameters[p].role == Role::Weight
        {
            let half = self.operands[id].get(i).is_some_and(|operand| operand.dtype == DType::F16);
            let target = match self.shared.weight_gradients {
                Precision::Half if half => self.half_parameter(id, i, p, dy)?,
                Precision::Half | Precision::Single => self.parameter(p, dy),
            };
            return Ok((target, Rule::None));
        }
        let dtype = match self.operands[id].get(i).map(|operand| operand.dtype) {
            Some(DType::F16) => DType::F16,
            _ => DType::F32,
        };
        let y = self.new_buffer(dtype, self.trace.nodes[input].shape.len());
        let rounds = dtype == DType::F16 && (flow != Flow::Pass || dy.value.dtype == DType::F32);
        let (target, rule, slot) = if rounds {
            let kind = if dy.value.dtype == DType::F32 { "cast" } else { "dgrad" };
            let which = if i == 0 { String::new() } else { format!(".{i}") };
            let to = self.slot(&format!("{}/{kind}{which}", node.name), SlotKind::Site)?;
            (Target { y: y.buf, from: dy.slot, to, detail: Detail::Moments, add: false }, rule, to)
        } else {
            (Target::keep(y.buf, dy.slot), Rule::None, dy.slot)
        };
        self.gradients[input].push(Gradient { value: y, slot });
        Ok((target, rule))
    }

    /// Hands a gradient on as it is: the same memory, unless it must be stored elsewhere or in another type.
    pub(super) fn hand_on(&mut self, id: usize, i: usize, dy: Gradient) -> Result<(), TraceError> {
        let input = self.trace.nodes[id].inputs[i];
        let half = self.operands[id].get(i).is_some_and(|operand| operand.dtype == DType::F16);
        let parameter = matches!(self.trace.nodes[input].work, Work::Parameter(_));
        if parameter || half && dy.value.dtype == DType::F32 {
            let (target, rule) = self.destination(id, i, dy, Flow::Site, Rule::Cast)?;
            self.launches.push(Launch { rule, operation: cast(dy.value.buf, target) });
        } else {
            self.gradients[input].push(dy);
        }
        Ok(())
    }

    /// An f32 buffer at the exponent of `at`, filled by an operation that is not a site.
    pub(super) fn temporary(
        &mut self, len: usize, at: Gradient, operation: impl FnOnce(Target) -> Operation,
    ) -> Gradient {
        let buf = self.inside(len, at.slot, operation);
        Gradient { value: Value { buf, dtype: DType::F32 }, slot: at.slot }
    }

    /// Emits an operation whose result is the gradient of input `i` of node `id`.
    pub(super) fn contribute(
        &mut self, (id, i): (usize, usize), dy: Gradient, flow: Flow, rule: Rule,
        operation: impl FnOnce(Target) -> Operation,
    ) -> Result<(), TraceError> {
        let (target, rule) = self.destination(id, i, dy, flow, rule)?;
        self.launches.push(Launch { rule, operation: operation(target) });
        Ok(())
    }
}
