//! Interface of an operator to the compilation of a trace: its node, its inputs, and the launches that it emits.

use super::{
    BufferId, Compiler, Fixed, Gradient, Launch, Node, Operation, Operator, ParamTensor, Purpose, ScaleRule, StatsSync,
    StoreSpec, SyncPayload, Value, ValueCount, cast, cast_value, unary,
};
use crate::{
    Shape, TraceError,
    error::TraceErrorKind,
    parameters::Role,
    sites::{Derivation, SlotKind},
};
use gradscale_core::{
    amp::Precision,
    backend::{DType, Slot},
    ops::{ActivationFlow, GradientFlow, Unary},
};

/// Context in which an operator emits its launches: a node of a trace, and the compilation in progress.
pub(crate) struct Context<'c, 'a, 's> {
    pub node: &'a Node,
    id: usize,
    compiler: &'c mut Compiler<'a, 's>,
}

impl<'c, 'a, 's> Context<'c, 'a, 's> {
    pub(super) const fn new(compiler: &'c mut Compiler<'a, 's>, id: usize, node: &'a Node) -> Self {
        Self { node, id, compiler }
    }

    /// Returns the shape of the node's input `i`.
    pub fn input(&self, i: usize) -> Shape {
        self.compiler.trace.nodes[self.node.inputs[i]].shape
    }

    /// Returns the shape of another node.
    pub fn shape_of(&self, node: usize) -> Shape {
        self.compiler.trace.nodes[node].shape
    }

    /// Returns the precision in which the operator runs; `None` for integers.
    pub fn precision(&self) -> Option<Precision> {
        self.compiler.precision[self.id]
    }

    /// Returns the operators that the program computes, with their nodes.
    pub fn live_operators(&self) -> Vec<(usize, &'a dyn Operator)> {
        let nodes = self.compiler.trace.nodes.iter().enumerate().filter(|&(id, _)| self.compiler.live[id]);
        nodes.filter_map(|(id, node)| Some((id, node.operator()?))).collect()
    }

    /// Returns the purpose for which the program is compiled.
    pub fn purpose(&self) -> Purpose {
        self.compiler.purpose
    }
}

/// Impl of the context's methods for the forward pass.
impl Context<'_, '_, '_> {
    /// Returns the value of input `i` in the operator's precision; emits a cast if needed.
    pub fn read(&mut self, i: usize) -> Result<Value, TraceError> {
        self.read_in(i, self.precision())
    }

    /// Returns the value of input `i` in the operator's precision; integers are not converted.
    pub fn read_any(&mut self, i: usize) -> Result<Value, TraceError> {
        let value = self.compiler.values[self.node.inputs[i]];
        let integers = matches!(value.map(|value| value.dtype), Some(DType::U8 | DType::U32));
        self.read_in(i, if integers { None } else { self.precision() })
    }

    /// Returns the value of input `i` in a precision, or unconverted. A value with an exponent is converted to f32 without
    /// it, unless the operator's flow says that it reads exponents.
    pub fn read_in(&mut self, i: usize, want: Option<Precision>) -> Result<Value, TraceError> {
        let stored = self.compiler.operand(self.node.inputs[i], want)?;
        let value = match self.activation_flow() {
            ActivationFlow::TrueValues => self.compiler.true_value(stored),
            ActivationFlow::Product | ActivationFlow::Common | ActivationFlow::Homogeneous => stored,
        };
        self.compiler.operands[self.id].push(value);
        Ok(value)
    }

    /// Returns the effect of the node's operator on the exponents of activations.
    fn activation_flow(&self) -> ActivationFlow {
        self.node.operator().map_or(ActivationFlow::TrueValues, |operator| operator.activation_flow(self.node.op))
    }

    /// Returns the slot of the exponent of the value that was read as input `i`; [`Slot::ONE`] if it has none.
    pub fn activation_slot(&self, i: usize) -> Slot {
        self.compiler.operands[self.id].get(i).map_or(Slot::ONE, |&value| self.compiler.activation_slot(value))
    }

    /// Returns the slot of the smallest exponent of all values that were read, to which a sum brings them.
    pub fn common_slot(&mut self) -> Result<Slot, TraceError> {
        let mut slots =
            self.compiler.operands[self.id].clone().into_iter().map(|value| self.compiler.activation_slot(value));
        let first = slots.next().unwrap_or(Slot::ONE);
        let rest: Vec<Slot> = slots.collect();
        rest.into_iter().try_fold(first, |all, slot| self.compiler.shared.sites.derive(Derivation::Common(all, slot)))
    }

    /// Returns the slot of the exponent of the operator's f32 results.
    fn slot_of_results(&mut self) -> Result<Slot, TraceError> {
        match self.activation_flow() {
            ActivationFlow::Product => {
                let (a, b) = (self.activation_slot(0), self.activation_slot(1));
                self.compiler.shared.sites.derive(Derivation::Product(a, b))
            }
            ActivationFlow::Homogeneous => Ok(self.activation_slot(0)),
            // The operator brings its inputs to the exponent that it stores at.
            ActivationFlow::Common => self.common_slot(),
            ActivationFlow::TrueValues => Ok(Slot::ONE),
        }
    }

    /// Sets the slot of the exponent of a value that the operator stores itself.
    pub fn set_activation_slot(&mut self, value: Value, slot: Slot) {
        if slot != Slot::ONE {
            self.compiler.activation_slots.insert(value.buf, slot);
        }
    }

    /// Returns input `i` as f32 in memory, for kernels that read only f32. The conversion of a half is exact.
    pub fn read_single(&mut self, i: usize) -> Result<Value, TraceError> {
        let node = self.node.inputs[i];
        let value = self.compiler.operand(node, Some(Precision::Single))?;
        let value = self.compiler.true_value(value);
        let single = if value.dtype == DType::F32 { value } else { self.compiler.cast(node, DType::F32)? };
        self.compiler.operands[self.id].push(single);
        Ok(single)
    }

    /// Returns the value of input `i`, which must have one of the types in `takes`.
    pub fn read_integers(&mut self, i: usize, what: &'static str, takes: &[DType]) -> Result<Value, TraceError> {
        let value = self.read_in(i, None)?;
        if takes.contains(&value.dtype) {
            return Ok(value);
        }
        Err(self.node.error(TraceErrorKind::Type { what, takes: takes.to_vec(), got: value.dtype }))
    }

    /// Returns the buffers of x, weights and an optional bias, in the operator's precision.
    pub fn read_product(&mut self) -> Result<(BufferId, BufferId, Option<BufferId>), TraceError> {
        let (a, b) = (self.read(0)?.buf, self.read(1)?.buf);
        let bias = if self.node.inputs.len() > 2 { Some(self.read(2)?) } else { None };
        let bias = match bias {
            Some(bias) => Some(self.scaled_bias(bias)?),
            None => None,
        };
        Ok((a, b, bias))
    }

    /// Returns a bias at the exponent of the product to which it is added.
    fn scaled_bias(&mut self, bias: Value) -> Result<BufferId, TraceError> {
        let slot = self.slot_of_results()?;
        let of_bias = self.compiler.activation_slot(bias);
        if slot == of_bias {
            return Ok(bias.buf);
        }
        let y = self.new_buffer(DType::F32, bias.len);
        self.emit(cast(bias.buf, StoreSpec::rescaled(y, of_bias, slot)));
        Ok(y.buf)
    }

    /// Emits the launch that computes the result, in the operator's precision; scalars are f32.
    pub fn store(&mut self, operation: impl FnOnce(StoreSpec) -> Operation) -> Result<(), TraceError> {
        let half = self.precision() == Some(Precision::Half) && self.node.shape.len() != 1;
        let y = self.new_buffer(if half { DType::F16 } else { DType::F32 }, self.node.shape.len());
        let from = self.slot_of_results()?;
        let target = self.compiler.observed(&format!("{}/forward", self.node.name), y, from, self.node.shape)?;
        let launch = self.compiler.forward_launch(operation(target), target);
        self.compiler.launches.push(launch);
        self.set_output(y);
        Ok(())
    }

    /// Sets the output value of the node.
    pub fn set_output(&mut self, result: Value) {
        self.compiler.values[self.id] = Some(result);
    }

    /// Saves a value of the node for its backward pass.
    pub fn save(&mut self, value: Value) {
        self.compiler.saved[self.id] = Some(value);
    }

    /// Emits the update of running statistics. By default batch statistics accumulate until the optimizer step. If each
    /// call counts separately, the exponential average is applied per call, and its result is committed at the step.
    pub fn update_running_stats(&mut self, running: usize, len: usize, of_batch: impl FnOnce(StoreSpec) -> Operation) {
        if self.compiler.recomputing {
            return;
        }
        let purpose = self.purpose();
        let known = self.compiler.statistics.iter_mut().find(|(id, _)| *id == running);
        let add = known.is_some() || purpose == Purpose::Train { later: true };
        match known {
            Some((_, calls)) => *calls += 1,
            None => self.compiler.statistics.push((running, 1)),
        }
        let waiting = Fixed::tensor(running, purpose.statistics());
        let y = StoreSpec::passthrough(Value::f32(waiting, len), Slot::ONE);
        let keep = match (self.compiler.shared.each_call, purpose) {
            (Some(keep), Purpose::Train { .. }) => keep,
            (Some(_) | None, _) => return self.emit(of_batch(StoreSpec { add, ..y })),
        };
        let times = |a: f32| Unary::Affine { a, b: 0.0 };
        let of_batch = self.emit_temporary(len, Slot::ONE, of_batch);
        if add {
            // A separate buffer, because no launch may read the buffer that it writes.
            let kept = self.emit_temporary(len, Slot::ONE, |y| unary(times(keep), waiting, y));
            self.emit(unary(Unary::Id, kept, y));
        } else {
            self.emit(unary(times(keep), Fixed::tensor(running, ParamTensor::Master), y));
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let rest = (1.0 - f64::from(keep)) as f32;
        self.emit(unary(times(rest), of_batch, StoreSpec { add: true, ..y }));
    }
}

/// Impl of the context's methods for both passes.
impl Context<'_, '_, '_> {
    /// Allocates a virtual buffer of the program.
    pub fn new_buffer(&mut self, dtype: DType, len: usize) -> Value {
        self.compiler.new_buffer(dtype, len)
    }

    /// Adds a constant of f32 values to the program and returns its buffer.
    pub fn constant(&mut self, values: Vec<f32>) -> BufferId {
        self.compiler.constant(values)
    }

    /// Returns the buffer of the f32 constant 0.
    pub fn zero(&self) -> BufferId {
        self.compiler.fixed.scalar_zero()
    }

    /// Emits a launch that decides no exponent.
    pub fn emit(&mut self, operation: Operation) {
        self.compiler.launches.push(operation.into());
    }

    /// Emits a launch for whose first store a rule decides the exponent.
    pub fn emit_with_scale_rule(&mut self, rule: ScaleRule, operation: Operation) {
        self.compiler.launches.push(Launch::new(operation, rule));
    }

    /// Returns `true` if batch norm synchronises its statistics across ranks (`SyncBatchNorm`).
    pub fn syncs_batch_norm(&self) -> bool {
        self.compiler.shared.distributed.sync_batch_norm && matches!(self.compiler.purpose, Purpose::Train { .. })
    }

    /// Inserts a synchronisation of batch statistics over all ranks before the next launch.
    pub fn sync_batch_stats(&mut self, channels: usize, count: ValueCount, payload: SyncPayload) {
        let before = self.compiler.launches.len();
        self.compiler.stats_syncs.push(StatsSync { before, node: self.id, channels, count, payload });
    }

    /// Emits a launch that computes f32 values for another launch of the same operator, at the exponent of `at`.
    pub fn emit_temporary(&mut self, len: usize, at: Slot, operation: impl FnOnce(StoreSpec) -> Operation) -> BufferId {
        let value = self.new_buffer(DType::F32, len);
        self.emit(operation(StoreSpec::passthrough(value, at)));
        value.buf
    }

    /// Returns the value that the node has saved in its forward pass.
    pub fn saved(&self) -> Option<Value> {
        self.saved_of(self.id)
    }

    /// Returns the value that another node has saved in its forward pass.
    pub fn saved_of(&self, node: usize) -> Option<Value> {
        self.compiler.saved[node]
    }
}

/// Impl of the context's methods for the backward pass.
impl Context<'_, '_, '_> {
    /// Returns true if the node's input `i` needs a gradient.
    pub fn needs_grad(&self, i: usize) -> bool {
        self.node.inputs.get(i).is_some_and(|&input| self.compiler.needs_gradient[input])
    }

    /// Returns the value that the node's forward pass read as input `i`.
    pub fn operand(&self, i: usize) -> Value {
        self.compiler.operands[self.id][i]
    }

    /// Returns the output value of the node's forward pass; without its exponent if the operator reads true values.
    pub fn result(&mut self) -> Option<Value> {
        let value = self.compiler.values[self.id]?;
        Some(match self.activation_flow() {
            ActivationFlow::TrueValues => self.compiler.true_value(value),
            ActivationFlow::Product | ActivationFlow::Common | ActivationFlow::Homogeneous => value,
        })
    }

    /// Returns a gradient at the exponent of its product with the value that was read as input `i`.
    pub fn gradient_times(&mut self, dy: Gradient, i: usize) -> Result<Gradient, TraceError> {
        let slot = self.activation_slot(i);
        let slot = self.compiler.shared.sites.derive(Derivation::Product(dy.slot, slot))?;
        Ok(Gradient { slot, ..dy })
    }

    /// Returns the effect of the operator on the exponent of its data gradient.
    pub fn flow(&self) -> GradientFlow {
        self.node.op.flow()
    }

    /// Emits a launch whose result is the gradient of the node's input `i`.
    pub fn emit_gradient(
        &mut self, i: usize, dy: Gradient, flow: GradientFlow, rule: ScaleRule,
        operation: impl FnOnce(StoreSpec) -> Operation,
    ) -> Result<(), TraceError> {
        let (target, rule) = self.destination(i, dy, flow, rule)?;
        self.emit_with_scale_rule(rule, operation(target));
        Ok(())
    }

    /// Emits a launch that computes f32 values at the exponent of a gradient and is not a site.
    pub fn temporary_gradient(
        &mut self, len: usize, at: Gradient, operation: impl FnOnce(StoreSpec) -> Operation,
    ) -> Gradient {
        let buf = self.emit_temporary(len, at.slot, operation);
        Gradient { value: Value::f32(buf, len), slot: at.slot }
    }

    /// Returns the store and the rule for the gradient of input `i`. The gradient of a parameter is stored in f32 at
    /// exponent 0. Any other has the type of its operand; in half it is a site if values are rounded.
    pub fn destination(
        &mut self, i: usize, dy: Gradient, flow: GradientFlow, rule: ScaleRule,
    ) -> Result<(StoreSpec, ScaleRule), TraceError> {
        let input = self.node.inputs[i];
        let half = self.stores_half_gradient(i);
        if let super::NodeKind::Parameter(p) = self.compiler.trace.nodes[input].work
            && self.compiler.shared.parameters[p].role == Role::Weight
        {
            let target = match self.compiler.shared.weight_gradients {
                Precision::Half if half => self.half_parameter(i, p, dy)?,
                Precision::Half | Precision::Single => self.compiler.parameter(p, dy),
            };
            return Ok((target, ScaleRule::None));
        }
        let dtype = if half { DType::F16 } else { DType::F32 };
        let y = self.new_buffer(dtype, self.input(i).len());
        let rounds = half && (flow != GradientFlow::PassThrough || dy.value.dtype == DType::F32);
        let (target, rule, slot) = if rounds {
            let kind = if dy.value.dtype == DType::F32 { "cast" } else { "dgrad" };
            let which = if i == 0 { String::new() } else { format!(".{i}") };
            let to = self.compiler.slot(&format!("{}/{kind}{which}", self.node.name), SlotKind::Site)?;
            (self.compiler.site_store(y, dy.slot, to, self.input(i)), rule, to)
        } else {
            (StoreSpec::passthrough(y, dy.slot), ScaleRule::None, dy.slot)
        };
        self.compiler.gradients[input].push(Gradient { value: y, slot });
        Ok((target, rule))
    }

    /// Returns true if the gradient of input `i` is stored in half: if its operand was half, unless all gradients are
    /// f32.
    fn stores_half_gradient(&self, i: usize) -> bool {
        let operand = self.compiler.operands[self.id].get(i);
        let is_half = |operand: &Value| {
            // A half whose true values were read.
            let unscaled = || self.compiler.true_values.values().any(|known| known.buf == operand.buf);
            operand.dtype == DType::F16 || self.compiler.scales_forward && unscaled()
        };
        !self.compiler.shared.single_gradients && operand.is_some_and(is_half)
    }

    /// Emits the backward pass of a custom operator, which is recorded as nodes: `given` is that of the gradient that it
    /// receives, `wanted` are those of the gradients that it returns. All are f32 and have no exponent.
    pub fn evaluate_gradient(
        &mut self, given: usize, dy: Gradient, wanted: &[usize],
    ) -> Result<Vec<Gradient>, TraceError> {
        let y = self.new_buffer(DType::F32, dy.value.len);
        self.emit(cast(dy.value.buf, StoreSpec::rescaled(y, dy.slot, Slot::ONE)));
        self.compiler.values[given] = Some(y);
        let values = self.compiler.evaluate(wanted)?;
        let unscaled = |value| Gradient { value: self.compiler.true_value(value), slot: Slot::ONE };
        Ok(values.into_iter().map(unscaled).collect())
    }

    /// Returns the first gradient of input `i` that one of its consumers has computed.
    pub fn peek_grad(&self, i: usize) -> Option<Gradient> {
        self.compiler.gradients[self.node.inputs[i]].first().copied()
    }

    /// Adds a gradient of input `i` into which other consumers of this input will also write.
    pub fn push_grad(&mut self, i: usize, gradient: Gradient) {
        self.compiler.gradients[self.node.inputs[i]].push(gradient);
    }

    /// Passes an f32 gradient through unchanged, to be added to gradients of other consumers of input `i`. Their sum rounds
    /// once.
    pub fn forward_term(&mut self, i: usize, dy: Gradient) -> Result<(), TraceError> {
        match self.compiler.trace.nodes[self.node.inputs[i]].work {
            super::NodeKind::Parameter(_) => return self.forward_grad(i, dy),
            super::NodeKind::Input(_) | super::NodeKind::Frozen(_) | super::NodeKind::Operator(_) => {}
        }
        self.push_grad(i, dy);
        Ok(())
    }

    /// Returns true if each call of a layer in a step has sites of its own.
    pub fn each_call_has_sites(&self) -> bool {
        self.compiler.shared.sites.each_call()
    }

    /// Returns true if the value of another node needs a gradient.
    pub fn needs_grad_of(&self, node: usize) -> bool {
        self.compiler.needs_gradient[node]
    }

    /// Returns the value that another node's forward pass read as input `i`.
    pub fn operand_of(&self, node: usize, i: usize) -> Value {
        self.compiler.operands[node][i]
    }

    /// Returns the slot of the exponent of the value that another node read as input `i`.
    pub fn operand_slot_of(&self, node: usize, i: usize) -> Slot {
        self.compiler.activation_slot(self.operand_of(node, i))
    }

    /// Returns the slot of the smallest exponent of several slots.
    pub fn common_of(&mut self, slots: &[Slot]) -> Result<Slot, TraceError> {
        let Some((&first, rest)) = slots.split_first() else { return Ok(Slot::ONE) };
        rest.iter().try_fold(first, |all, &slot| self.compiler.shared.sites.derive(Derivation::Common(all, slot)))
    }

    /// Returns a gradient at the exponent of its product with values at a slot.
    pub fn gradient_at(&mut self, dy: Gradient, slot: Slot) -> Result<Gradient, TraceError> {
        let slot = self.compiler.shared.sites.derive(Derivation::Product(dy.slot, slot))?;
        Ok(Gradient { slot, ..dy })
    }

    /// Returns the gradient of another node, which its consumers have assembled in f32, in the type of the other operand
    /// of a product. The cast to half is the node's site, and its gradient from then on.
    pub fn whole_gradient(&mut self, node: usize, dtype: DType) -> Result<Option<Gradient>, TraceError> {
        let Some(&whole) = self.compiler.gradients[node].first() else { return Ok(None) };
        if dtype != DType::F16 || whole.value.dtype == DType::F16 || self.compiler.shared.single_gradients {
            return Ok(Some(whole));
        }
        let half = self.new_buffer(DType::F16, whole.value.len);
        let to = self.compiler.slot(&format!("{}/cast", self.compiler.trace.nodes[node].name), SlotKind::Site)?;
        let shape = self.compiler.trace.nodes[node].shape;
        let target = self.compiler.site_store(half, whole.slot, to, shape);
        self.emit_with_scale_rule(ScaleRule::FromValues, cast_value(whole.value, target));
        let rounded = Gradient { value: half, slot: to };
        self.compiler.gradients[node] = vec![rounded];
        Ok(Some(rounded))
    }

    /// Passes a gradient besides that of its result to another node, whose backward pass comes later: of a further result,
    /// or of products that have the node's shape.
    pub fn pass_gradient(&mut self, node: usize, gradient: Gradient) {
        self.compiler.passed[node] = Some(gradient);
    }

    /// Returns the gradient that has been passed to another node.
    pub fn gradient_passed_to(&self, node: usize) -> Option<Gradient> {
        self.compiler.passed[node]
    }

    /// Returns the gradient of the node's further result, if its consumers have computed one.
    pub fn passed_gradient(&mut self) -> Option<Gradient> {
        self.compiler.passed[self.id].take()
    }

    /// Returns the store of a parameter's gradient that passes through half, like the gradient of a half weight in
    /// PyTorch. The operator's scaled f32 result is rounded once at its own site, and then unscaled in f32.
    fn half_parameter(&mut self, i: usize, p: usize, dy: Gradient) -> Result<StoreSpec, TraceError> {
        let len = self.input(i).len();
        let is_bias = self.node.operator().is_some_and(|operator| operator.bias() == Some(i));
        let name = match i {
            _ if is_bias => format!("{}/bgrad", self.node.name),
            1 => format!("{}/wgrad", self.node.name),
            _ => format!("{}/wgrad.{i}", self.node.name),
        };
        let (single, half) = (self.new_buffer(DType::F32, len), self.new_buffer(DType::F16, len));
        let to = self.compiler.slot(&name, SlotKind::Site)?;
        let operation = cast_value(single, self.compiler.site_store(half, dy.slot, to, self.input(i)));
        self.compiler.deferred_casts.push(Launch::new(operation, ScaleRule::FromValues));
        let unscaled = self.compiler.parameter(p, Gradient { value: half, slot: to });
        self.compiler.deferred_casts.push(cast(half.buf, unscaled).into());
        Ok(StoreSpec::passthrough(single, dy.slot))
    }

    /// Passes a gradient through unchanged: in the same memory, unless it needs another buffer or type.
    pub fn forward_grad(&mut self, i: usize, dy: Gradient) -> Result<(), TraceError> {
        let input = self.node.inputs[i];
        let half = self.stores_half_gradient(i);
        let parameter = matches!(self.compiler.trace.nodes[input].work, super::NodeKind::Parameter(_));
        if parameter || half && dy.value.dtype == DType::F32 {
            return self.emit_gradient(i, dy, GradientFlow::Cast, ScaleRule::FromValues, |y| cast_value(dy.value, y));
        }
        self.compiler.gradients[input].push(dy);
        Ok(())
    }
}
