//! What an operator sees while a trace is compiled: its node, what it reads, and what it may emit.

use super::{
    Buf, Compiler, Fixed, Gradient, Launch, Node, Operation, Part, Purpose, Rule, StatsSync, SyncPayload, Target,
    Value, ValueCount, cast, unary,
};
use crate::{Shape, TraceError, error::TraceErrorKind, parameters::Role, sites::SlotKind};
use gradscale_core::{
    amp::Precision,
    backend::{DType, Slot},
    ops::{Flow, Unary},
    stats::Detail,
};

/// A node of a trace and the compilation of it.
pub(crate) struct Context<'c, 'a, 's> {
    pub node: &'a Node,
    id: usize,
    compiler: &'c mut Compiler<'a, 's>,
}

impl<'c, 'a, 's> Context<'c, 'a, 's> {
    pub(super) const fn new(compiler: &'c mut Compiler<'a, 's>, id: usize, node: &'a Node) -> Self {
        Self { node, id, compiler }
    }

    /// Shape of input `i`.
    pub fn input(&self, i: usize) -> Shape {
        self.compiler.trace.nodes[self.node.inputs[i]].shape
    }

    /// Precision in which it runs; none for integers.
    pub fn precision(&self) -> Option<Precision> {
        self.compiler.precision[self.id]
    }

    /// What for.
    pub fn purpose(&self) -> Purpose {
        self.compiler.purpose
    }
}

/// What a forward pass reads and writes.
impl Context<'_, '_, '_> {
    /// Input `i` in the operator's precision.
    pub fn read(&mut self, i: usize) -> Result<Value, TraceError> {
        self.read_in(i, self.precision())
    }

    /// Input `i` in the operator's precision, integers as they are.
    pub fn read_any(&mut self, i: usize) -> Result<Value, TraceError> {
        let value = self.compiler.values[self.node.inputs[i]];
        let integers = matches!(value.map(|value| value.dtype), Some(DType::U8 | DType::U32));
        self.read_in(i, if integers { None } else { self.precision() })
    }

    /// Input `i` in a precision, or as it is.
    pub fn read_in(&mut self, i: usize, want: Option<Precision>) -> Result<Value, TraceError> {
        let value = self.compiler.operand(self.node.inputs[i], want)?;
        self.compiler.operands[self.id].push(value);
        Ok(value)
    }

    /// Input `i` as f32 in memory, for kernels that read nothing else. Of a half that is exact.
    pub fn read_single(&mut self, i: usize) -> Result<Value, TraceError> {
        let node = self.node.inputs[i];
        let value = self.compiler.operand(node, Some(Precision::Single))?;
        let single = if value.dtype == DType::F32 { value } else { self.compiler.cast(node, DType::F32)? };
        self.compiler.operands[self.id].push(single);
        Ok(single)
    }

    /// Input `i`, of one of these types.
    pub fn read_integers(&mut self, i: usize, what: &'static str, takes: &[DType]) -> Result<Value, TraceError> {
        let value = self.read_in(i, None)?;
        if takes.contains(&value.dtype) {
            return Ok(value);
        }
        Err(self.node.error(TraceErrorKind::Type { what, takes: takes.to_vec(), got: value.dtype }))
    }

    /// x, weights and perhaps a bias, in the operator's precision.
    pub fn read_product(&mut self) -> Result<(Buf, Buf, Option<Buf>), TraceError> {
        let (a, b) = (self.read(0)?.buf, self.read(1)?.buf);
        let bias = if self.node.inputs.len() > 2 { Some(self.read(2)?.buf) } else { None };
        Ok((a, b, bias))
    }

    /// Emits the launch that gives the result, in the operator's precision; single numbers are f32.
    pub fn store(&mut self, operation: impl FnOnce(Target) -> Operation) -> Result<(), TraceError> {
        let half = self.precision() == Some(Precision::Half) && self.node.shape.len() != 1;
        let y = self.new_buffer(if half { DType::F16 } else { DType::F32 }, self.node.shape.len());
        let target = self.compiler.observed(&format!("{}/forward", self.node.name), y)?;
        self.emit(operation(target));
        self.give(y);
        Ok(())
    }

    /// Its result is there.
    pub fn give(&mut self, result: Value) {
        self.compiler.values[self.id] = Some(result);
    }

    /// Keeps something for the backward pass.
    pub fn save(&mut self, value: Value) {
        self.compiler.saved[self.id] = Some(value);
    }

    /// Emits what a batch says of running statistics: they are added up until the update, or, where each call counts by
    /// itself, what has become of them waits for it.
    pub fn follow(&mut self, running: usize, len: usize, of_batch: impl FnOnce(Target) -> Operation) {
        let purpose = self.purpose();
        let known = self.compiler.statistics.iter_mut().find(|(id, _)| *id == running);
        let add = known.is_some() || purpose == Purpose::Train { later: true };
        match known {
            Some((_, calls)) => *calls += 1,
            None => self.compiler.statistics.push((running, 1)),
        }
        let waiting = Fixed::part(running, purpose.statistics());
        let y = Target::keep(Value::single(waiting, len), Slot::ONE);
        let keep = match (self.compiler.shared.each_call, purpose) {
            (Some(keep), Purpose::Train { .. }) => keep,
            (Some(_) | None, _) => return self.emit(of_batch(Target { add, ..y })),
        };
        let times = |a: f32| Unary::Affine { a, b: 0.0 };
        let of_batch = self.emit_temporary(len, Slot::ONE, of_batch);
        if add {
            // No launch reads where it writes.
            let kept = self.emit_temporary(len, Slot::ONE, |y| unary(times(keep), waiting, y));
            self.emit(unary(Unary::Id, kept, y));
        } else {
            self.emit(unary(times(keep), Fixed::part(running, Part::Master), y));
        }
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let rest = (1.0 - f64::from(keep)) as f32;
        self.emit(unary(times(rest), of_batch, Target { add: true, ..y }));
    }
}

/// Buffers and launches of either pass.
impl Context<'_, '_, '_> {
    /// Of the step.
    pub fn new_buffer(&mut self, dtype: DType, len: usize) -> Value {
        self.compiler.new_buffer(dtype, len)
    }

    /// Values that no step changes: f32.
    pub fn constant(&mut self, values: Vec<f32>) -> Buf {
        self.compiler.constant(values)
    }

    /// The number 0, f32.
    pub fn zero(&self) -> Buf {
        self.compiler.fixed.zero()
    }

    /// Emits a launch that decides no exponent.
    pub fn emit(&mut self, operation: Operation) {
        self.compiler.launches.push(operation.into());
    }

    /// Emits a launch whose first store's exponent is decided by a rule.
    pub fn emit_by(&mut self, rule: Rule, operation: Operation) {
        self.compiler.launches.push(Launch { rule, operation });
    }

    /// Returns `true` if batch norm synchronises its statistics across ranks (`SyncBatchNorm`).
    pub fn syncs_batch_norm(&self) -> bool {
        self.compiler.shared.distributed.sync_batch_norm && matches!(self.compiler.purpose, Purpose::Train { .. })
    }

    /// Inserts a synchronisation of batch statistics before the next launch.
    pub fn sync_batch_stats(&mut self, channels: usize, count: ValueCount, payload: SyncPayload) {
        let before = self.compiler.launches.len();
        self.compiler.stats_syncs.push(StatsSync { before, node: self.id, channels, count, payload });
    }

    /// Emits f32 values between two launches of one operator, at the exponent of `at`.
    pub fn emit_temporary(&mut self, len: usize, at: Slot, operation: impl FnOnce(Target) -> Operation) -> Buf {
        let value = self.new_buffer(DType::F32, len);
        self.emit(operation(Target::keep(value, at)));
        value.buf
    }

    /// What was kept of this node.
    pub fn saved(&self) -> Option<Value> {
        self.saved_of(self.id)
    }

    /// What was kept of another.
    pub fn saved_of(&self, node: usize) -> Option<Value> {
        self.compiler.saved[node]
    }
}

/// What a backward pass reads and writes.
impl Context<'_, '_, '_> {
    /// Whether input `i` wants a gradient.
    pub fn wants(&self, i: usize) -> bool {
        self.node.inputs.get(i).is_some_and(|&input| self.compiler.needs_gradient[input])
    }

    /// What was read of the i-th input.
    pub fn operand(&self, i: usize) -> Value {
        self.compiler.operands[self.id][i]
    }

    /// The result of the forward pass.
    pub fn result(&self) -> Option<Value> {
        self.compiler.values[self.id]
    }

    /// What becomes of the exponent on the way to the input.
    pub fn flow(&self) -> Flow {
        self.node.op.flow()
    }

    /// Emits a launch whose result is the gradient of input `i`.
    pub fn emit_gradient(
        &mut self, i: usize, dy: Gradient, flow: Flow, rule: Rule, operation: impl FnOnce(Target) -> Operation,
    ) -> Result<(), TraceError> {
        let (target, rule) = self.destination(i, dy, flow, rule)?;
        self.emit_by(rule, operation(target));
        Ok(())
    }

    /// f32 values at the exponent of a gradient, filled by a launch that is no site.
    pub fn temporary_gradient(
        &mut self, len: usize, at: Gradient, operation: impl FnOnce(Target) -> Operation,
    ) -> Gradient {
        let buf = self.emit_temporary(len, at.slot, operation);
        Gradient { value: Value::single(buf, len), slot: at.slot }
    }

    /// Where the gradient of input `i` goes, and by which rule. A parameter's goes to f32 at exponent 0. Another's is
    /// stored as its operand was: in half that is a site if values are rounded there.
    pub fn destination(
        &mut self, i: usize, dy: Gradient, flow: Flow, rule: Rule,
    ) -> Result<(Target, Rule), TraceError> {
        let input = self.node.inputs[i];
        let half = self.stores_half_gradient(i);
        if let super::Work::Parameter(p) = self.compiler.trace.nodes[input].work
            && self.compiler.shared.parameters[p].role == Role::Weight
        {
            let target = match self.compiler.shared.weight_gradients {
                Precision::Half if half => self.half_parameter(i, p, dy)?,
                Precision::Half | Precision::Single => self.compiler.parameter(p, dy),
            };
            return Ok((target, Rule::None));
        }
        let dtype = if half { DType::F16 } else { DType::F32 };
        let y = self.new_buffer(dtype, self.input(i).len());
        let rounds = half && (flow != Flow::Pass || dy.value.dtype == DType::F32);
        let (target, rule, slot) = if rounds {
            let kind = if dy.value.dtype == DType::F32 { "cast" } else { "dgrad" };
            let which = if i == 0 { String::new() } else { format!(".{i}") };
            let to = self.compiler.slot(&format!("{}/{kind}{which}", self.node.name), SlotKind::Site)?;
            (Target { y, from: dy.slot, to, detail: Detail::Moments, add: false }, rule, to)
        } else {
            (Target::keep(y, dy.slot), Rule::None, dy.slot)
        };
        self.compiler.gradients[input].push(Gradient { value: y, slot });
        Ok((target, rule))
    }

    /// Whether the gradient of input `i` is stored in half: as its operand was, unless all gradients are f32.
    fn stores_half_gradient(&self, i: usize) -> bool {
        let operand = self.compiler.operands[self.id].get(i);
        !self.compiler.shared.single_gradients && operand.is_some_and(|operand| operand.dtype == DType::F16)
    }

    /// What has come so far as the gradient of input `i`, from the first of those that read it.
    pub fn first_gradient(&self, i: usize) -> Option<Gradient> {
        self.compiler.gradients[self.node.inputs[i]].first().copied()
    }

    /// Hands on a gradient of input `i` that other readers of this input will write to.
    pub fn begin_gradient(&mut self, i: usize, gradient: Gradient) {
        self.compiler.gradients[self.node.inputs[i]].push(gradient);
    }

    /// A parameter's gradient that is half before it is f32, as that of a half weight is in PyTorch: scaled f32 of the
    /// operator, rounded once at a site of its own, then unscaled in f32.
    fn half_parameter(&mut self, i: usize, p: usize, dy: Gradient) -> Result<Target, TraceError> {
        let len = self.input(i).len();
        let is_bias = self.node.operator().is_some_and(|operator| operator.bias() == Some(i));
        let name = match i {
            _ if is_bias => format!("{}/bgrad", self.node.name),
            1 => format!("{}/wgrad", self.node.name),
            _ => format!("{}/wgrad.{i}", self.node.name),
        };
        let (single, half) = (self.new_buffer(DType::F32, len), self.new_buffer(DType::F16, len));
        let to = self.compiler.slot(&name, SlotKind::Site)?;
        let rounded = Target { y: half, from: dy.slot, to, detail: Detail::Moments, add: false };
        self.compiler.casts_behind.push(Launch { rule: Rule::Cast, operation: cast(single.buf, rounded) });
        let unscaled = self.compiler.parameter(p, Gradient { value: half, slot: to });
        self.compiler.casts_behind.push(cast(half.buf, unscaled).into());
        Ok(Target::keep(single, dy.slot))
    }

    /// Hands a gradient on as it is: the same memory, unless it must be stored elsewhere or in another type.
    pub fn pass_through(&mut self, i: usize, dy: Gradient) -> Result<(), TraceError> {
        let input = self.node.inputs[i];
        let half = self.stores_half_gradient(i);
        let parameter = matches!(self.compiler.trace.nodes[input].work, super::Work::Parameter(_));
        if parameter || half && dy.value.dtype == DType::F32 {
            return self.emit_gradient(i, dy, Flow::Site, Rule::Cast, |y| cast(dy.value.buf, y));
        }
        self.compiler.gradients[input].push(dy);
        Ok(())
    }
}
