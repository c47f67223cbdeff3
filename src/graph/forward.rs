//! Forward pass: one walk along the tape, with the precision of every read.

use super::{
    BufferId, Compiler, Context, Fixed, Launch, NodeKind, Operation, ParamTensor, Purpose, ScaleRule, StoreSpec, Value,
    cast, cast_value, store_blocks::columns_of,
};
use crate::{Shape, TraceError, error::TraceErrorKind, parameters::Role, sites::SlotKind};
use gradscale_core::{
    amp::Precision,
    backend::{DType, Slot},
    stats::Detail,
    store_format::StoreFormat,
};
use std::{mem, ops::Range};

impl Compiler<'_, '_> {
    /// Emits the forward launches of all live nodes; returns the buffers of the inputs.
    pub(super) fn forward(&mut self) -> Result<Vec<BufferId>, TraceError> {
        let trace = self.trace;
        let mut inputs = Vec::new();
        for (id, node) in trace.nodes.iter().enumerate() {
            if let NodeKind::Input(dtype) = node.work {
                let value = match self.shared.preassigned_inputs.get(inputs.len()).copied().flatten() {
                    Some(buf) => Value { buf, dtype, len: node.shape.len() },
                    None => self.new_buffer(dtype, node.shape.len()),
                };
                inputs.push(value.buf);
                self.values[id] = Some(value);
            }
        }
        for id in 0..trace.nodes.len() {
            if !self.live[id] {
                continue;
            }
            self.node(id)?;
            self.origins.resize(self.launches.len(), (id, false));
        }
        Ok(inputs)
    }

    /// Returns the values of nodes, and emits those of them that no launch has computed, with all that they depend on.
    pub(super) fn evaluate(&mut self, wanted: &[usize]) -> Result<Vec<Value>, TraceError> {
        let trace = self.trace;
        let (mut missing, mut open) = (Vec::new(), wanted.to_vec());
        while let Some(id) = open.pop() {
            if self.values[id].is_none() && !missing.contains(&id) {
                missing.push(id);
                open.extend(&trace.nodes[id].inputs);
            }
        }
        // A node comes after those that it reads.
        missing.sort_unstable();
        for id in missing {
            self.node(id)?;
        }
        wanted.iter().map(|&id| self.value(id)).collect()
    }

    /// Emits the forward launches of a part of the network again, into new buffers, which replace the values that its
    /// gradients read. Those of the first time are then not used by the backward pass, so their memory is free before.
    pub(super) fn recompute(&mut self, part: Range<usize>) -> Result<(), TraceError> {
        let (casts, true_values) = (mem::take(&mut self.casts), mem::take(&mut self.true_values));
        let is_operator = |id: &usize| self.live[*id] && self.trace.nodes[*id].operator().is_some();
        let nodes: Vec<usize> = part.filter(is_operator).collect();
        for &id in &nodes {
            (self.values[id], self.saved[id]) = (None, None);
            self.operands[id].clear();
        }
        self.recomputing = true;
        for id in nodes {
            let syncs = self.stats_syncs.len();
            self.node(id)?;
            if self.stats_syncs.len() != syncs {
                let words = "batch norm over all ranks cannot be computed again in the backward pass";
                return Err(self.trace.nodes[id].error(TraceErrorKind::Range(words.to_owned())));
            }
            self.origins.resize(self.launches.len(), (id, false));
        }
        self.recomputing = false;
        // Casts of values outside of the part, whose gradients come later.
        for (key, value) in casts {
            self.casts.entry(key).or_insert(value);
        }
        for (key, value) in true_values {
            self.true_values.entry(key).or_insert(value);
        }
        Ok(())
    }

    /// Emits the forward launches of one node.
    fn node(&mut self, id: usize) -> Result<(), TraceError> {
        let node = &self.trace.nodes[id];
        match &node.work {
            NodeKind::Input(_) => self.input(id)?,
            NodeKind::Parameter(p) | NodeKind::Frozen(p) => {
                let [single, _] = self.parts_of_parameter(*p);
                self.values[id] = Some(Value::f32(Fixed::tensor(*p, single), node.shape.len()));
            }
            NodeKind::Operator(operator) => operator.forward(&mut Context::new(self, id, node))?,
        }
        Ok(())
    }

    /// Emits the cast of an input to half, under O2 and O3.
    fn input(&mut self, id: usize) -> Result<(), TraceError> {
        if let (Some(Precision::Half), Some(Value { dtype: DType::F32, .. })) = (self.precision[id], self.values[id]) {
            let half = self.cast(id, DType::F16)?;
            self.values[id] = Some(half);
        }
        Ok(())
    }

    /// Returns a node's value for a read in a precision. A half is not converted if f32 is wanted, because that cast is
    /// exact. The cast site is at the store of its gradient.
    pub(super) fn operand(&mut self, node: usize, want: Option<Precision>) -> Result<Value, TraceError> {
        if let (NodeKind::Parameter(p) | NodeKind::Frozen(p), Some(Precision::Half)) =
            (&self.trace.nodes[node].work, want)
        {
            if self.rounds_weight(node, *p) {
                return self.cast(node, DType::F16);
            }
            if self.shared.sites.block_scaling().is_some() {
                // Memory has no halves then.
                return self.value(node);
            }
            if !self.halves.contains(p) {
                self.halves.push(*p);
            }
            let (len, [_, half]) = (self.trace.nodes[node].shape.len(), self.parts_of_parameter(*p));
            return Ok(Value { buf: Fixed::tensor(*p, half), dtype: DType::F16, len });
        }
        let value = self.value(node)?;
        let is_input = matches!(self.trace.nodes[node].work, NodeKind::Input(_));
        match (value.dtype, want) {
            (DType::F32, Some(Precision::Half)) => self.cast(node, DType::F16),
            (DType::F16, Some(Precision::Half)) if is_input && self.rounds(SlotKind::Forward) => {
                self.cast(node, DType::F16)
            }
            (DType::U8 | DType::U32, Some(Precision::Half)) => self.cast(node, DType::F16),
            (DType::U8 | DType::U32, Some(Precision::Single)) => self.cast(node, DType::F32),
            _ => Ok(value),
        }
    }

    /// Returns true if the program rounds values of the forward pass of that kind to another format than FP16.
    fn rounds(&self, kind: SlotKind) -> bool {
        self.scales_forward && self.shared.sites.format_of(kind) != StoreFormat::Fp16
    }

    /// Returns true if a parameter that is read in half is a site. A bias, which is one row of numbers, is none, because
    /// products add it in f32.
    fn rounds_weight(&self, node: usize, parameter: usize) -> bool {
        let sizes = self.trace.nodes[node].shape.sizes();
        let is_matrix = sizes.into_iter().filter(|&size| size > 1).count() > 1;
        is_matrix && self.shared.parameters[parameter].role == Role::Weight && self.rounds(SlotKind::Weight)
    }

    /// Returns the parts of a parameter that the program reads, in f32 and in half. Only weights have averages.
    fn parts_of_parameter(&self, parameter: usize) -> [ParamTensor; 2] {
        match self.shared.parameters[parameter].role {
            Role::Weight => self.purpose.weights(),
            Role::Statistics | Role::Constant => [ParamTensor::Master, ParamTensor::Half],
        }
    }

    fn value(&self, node: usize) -> Result<Value, TraceError> {
        let missing = || TraceErrorKind::Range("is read before it is computed".to_owned());
        self.values[node].ok_or_else(|| self.trace.nodes[node].error(missing()))
    }

    pub(super) fn cast(&mut self, node: usize, to: DType) -> Result<Value, TraceError> {
        if let Some(&value) = self.casts.get(&(node, to)) {
            return Ok(value);
        }
        let from = self.value(node)?;
        let y = self.new_buffer(to, self.trace.nodes[node].shape.len());
        let (name, kind) = match self.trace.nodes[node].work {
            NodeKind::Parameter(p) | NodeKind::Frozen(p) if to == DType::F16 && self.rounds_weight(node, p) => {
                // The node's own name is its number in the trace.
                (format!("{}/weight", self.shared.sites.name(self.shared.parameters[p].slot)), SlotKind::Weight)
            }
            NodeKind::Parameter(_) | NodeKind::Frozen(_) | NodeKind::Input(_) | NodeKind::Operator(_) => {
                (format!("{}/cast/forward", self.trace.nodes[node].name), SlotKind::Forward)
            }
        };
        let shape = self.trace.nodes[node].shape;
        let target = self.observed_as(&name, kind, y, self.activation_slot(from), shape)?;
        let launch = self.forward_launch(cast_value(from, target), target);
        self.launches.push(launch);
        self.casts.insert((node, to), y);
        Ok(y)
    }

    /// Returns a store of the forward pass, for values with the exponent of `from`. Halves are counted, so that an
    /// overflow can be attributed to a name. They have an exponent of their own if forward stores have exponents;
    /// otherwise, like f32 values, none.
    pub(super) fn observed(&mut self, name: &str, y: Value, from: Slot, shape: Shape) -> Result<StoreSpec, TraceError> {
        self.observed_as(name, SlotKind::Forward, y, from, shape)
    }

    fn observed_as(
        &mut self, name: &str, kind: SlotKind, y: Value, from: Slot, shape: Shape,
    ) -> Result<StoreSpec, TraceError> {
        let columns = columns_of(shape);
        if self.recomputing && y.dtype == DType::F16 {
            // The values have been counted, and their exponent is decided.
            let to = self.shared.sites.slot(&format!("{}{name}", self.shared.prefix), kind)?;
            if self.scales_forward {
                self.activation_slots.insert(y.buf, to);
            }
            let format = self.shared.sites.format(to);
            return Ok(StoreSpec { format, columns, ..StoreSpec::rescaled(y, from, to) });
        }
        let observes = matches!(self.purpose, Purpose::Train { .. });
        if y.dtype == DType::F16 && (observes || self.scales_forward) {
            let to = if observes {
                self.slot(name, kind)?
            } else {
                self.shared.sites.evaluation_slot(&format!("{}{name}", self.shared.prefix), kind)?
            };
            let detail = match (observes, self.scales_forward) {
                (true, true) => Detail::Moments,
                (true, false) => Detail::Counts,
                (false, _) => Detail::None,
            };
            if self.scales_forward {
                self.activation_slots.insert(y.buf, to);
            }
            let format = self.shared.sites.format(to);
            return Ok(StoreSpec { detail, format, columns, ..StoreSpec::rescaled(y, from, to) });
        }
        Ok(StoreSpec::rescaled(y, from, Slot::ONE))
    }

    /// Returns the launch of a forward store. If its values have an exponent of their own, their rule may decide it
    /// inside the step.
    pub(super) fn forward_launch(&self, operation: Operation, target: StoreSpec) -> Launch {
        let decides = self.scales_forward && target.to != Slot::ONE && target.detail != Detail::None;
        Launch::new(operation, if decides { ScaleRule::FromValues } else { ScaleRule::None })
    }

    /// Returns the slot of the exponent of an activation; [`Slot::ONE`] if it has none.
    pub(super) fn activation_slot(&self, value: Value) -> Slot {
        self.activation_slots.get(&value.buf).copied().unwrap_or(Slot::ONE)
    }

    /// Returns an activation without its exponent: the value itself if it has none, and f32 otherwise, since true values
    /// may exceed half.
    pub(super) fn true_value(&mut self, value: Value) -> Value {
        let slot = self.activation_slot(value);
        if slot == Slot::ONE {
            return value;
        }
        if let Some(&known) = self.true_values.get(&value.buf) {
            return known;
        }
        let y = self.new_buffer(DType::F32, value.len);
        self.launches.push(cast(value.buf, StoreSpec::rescaled(y, slot, Slot::ONE)).into());
        self.true_values.insert(value.buf, y);
        y
    }
}
