//! Compilation of a trace to launches: precisions and casts, the backward pass, memory.
//!
//! A compiled [`Program`] depends on shapes and policy only, and not on exponents, learning rates or data.

use super::{
    AuxOutput, BufferId, DistributedPlan, Fixed, Gradient, Launch, NodeKind, Operator, ParameterInfo, Program, Purpose,
    StatsSync, StoreSpec, Trace, Traced, Value, cast, memory, plan::plan,
};
use crate::{
    Layers, TraceError,
    exec::Constants,
    parameters::Role,
    sites::{Sites, SlotKind},
};
use gradscale_core::{
    amp::{AmpPolicy, Precision},
    backend::{DType, Slot},
    ops::Attention,
};
use std::{collections::HashMap, sync::Arc};

/// Settings and state that all programs of a training share.
pub(crate) struct CompileOptions<'a> {
    pub policy: &'a AmpPolicy,
    pub layers: &'a Layers,
    /// Storage type of gradients of weights that were read in half, before they are converted to f32.
    pub weight_gradients: Precision,
    /// True if gradients of all intermediate values are stored in f32, also those of half values.
    pub single_gradients: bool,
    pub parameters: &'a [ParameterInfo],
    pub sites: &'a mut Sites,
    pub constants: &'a mut Constants,
    /// Prefix of the names of cast sites.
    pub prefix: &'a str,
    /// True if every buffer of a program is kept until the end of the step.
    pub retain_buffers: bool,
    /// Momentum of running statistics, if each call of a layer updates them separately.
    pub each_call: Option<f32>,
    pub distributed: DistributedPlan,
    /// Returns true if the device has an attention in one launch each way ([`gradscale_core::backend::Backend::fuses_attention`]).
    pub fuses_attention: &'a dyn Fn(&Attention) -> bool,
    /// Preassigned buffers of the first inputs; `None` for buffers of the program.
    pub preassigned_inputs: &'a [Option<BufferId>],
}

/// State of the compilation of a trace: the launches, sites and buffers emitted so far.
pub(super) struct Compiler<'a, 's> {
    pub trace: &'a Trace,
    pub purpose: Purpose,
    pub shared: &'a mut CompileOptions<'s>,
    pub fixed: Fixed,
    /// Type and length of each virtual buffer of the program.
    pub buffers: Vec<(DType, usize)>,
    pub launches: Vec<Launch>,
    pub stats_syncs: Vec<StatsSync>,
    pub origins: Vec<(usize, bool)>,
    /// Precision in which each node runs; `None` for integers.
    pub precision: Vec<Option<Precision>>,
    pub values: Vec<Option<Value>>,
    /// Values that each node has read as inputs.
    pub operands: Vec<Vec<Value>>,
    pub casts: HashMap<(usize, DType), Value>,
    /// True if forward stores have exponents.
    pub scales_forward: bool,
    /// Slot of the exponent of each buffer with an activation that has one.
    pub activation_slots: HashMap<BufferId, Slot>,
    /// True values, in f32, of buffers whose values have an exponent.
    pub true_values: HashMap<BufferId, Value>,
    /// Value that each node has saved: offsets of a pooling, statistics of a norm, losses.
    pub saved: Vec<Option<Value>>,
    pub needs_gradient: Vec<bool>,
    pub live: Vec<bool>,
    pub gradients: Vec<Vec<Gradient>>,
    /// Gradient besides that of its result that was passed to each node: of the value that it has saved if that is a further
    /// result, the state of a cell, or of products that have its shape.
    pub passed: Vec<Option<Gradient>>,
    pub contributes: Vec<usize>,
    pub statistics: Vec<(usize, u32)>,
    pub halves: Vec<usize>,
    pub order: Vec<Slot>,
    /// Number of times that a slot was requested by its name.
    pub calls: HashMap<Slot, u32>,
    pub traced: Vec<Traced>,
    pub constants: Vec<usize>,
    /// True while the forward launches of a part are emitted a second time, in the backward pass.
    pub recomputing: bool,
    /// Casts of weight gradients that are emitted after the launch that computes them.
    pub deferred_casts: Vec<Launch>,
}

/// Compiles a trace to a program: launches, buffers and synchronisation points.
pub(crate) fn compile(
    trace: &Arc<Trace>, purpose: Purpose, shared: &mut CompileOptions<'_>,
) -> Result<Program, TraceError> {
    let fixed = Fixed { parameters: shared.parameters.len() };
    let (plan, mut precision) = plan(shared.policy, shared.layers, trace)?;
    // Scalars, above all losses, are f32 under every policy.
    for (precision, node) in precision.iter_mut().zip(&trace.nodes) {
        if node.shape.len() == 1 && !node.operator().is_some_and(Operator::is_loss) {
            *precision = precision.map(|_| Precision::Single);
        }
    }
    for id in trace.gradient_nodes.iter().cloned().flatten() {
        if trace.nodes[id].operator().is_some() {
            precision[id] = precision[id].map(|_| Precision::Single);
        }
    }
    let count = trace.nodes.len();
    let prefix = shared.prefix.to_owned();
    let mut compiler = Compiler {
        trace,
        purpose,
        fixed,
        buffers: Vec::new(),
        launches: Vec::new(),
        stats_syncs: Vec::new(),
        origins: Vec::new(),
        precision,
        values: vec![None; count],
        operands: vec![Vec::new(); count],
        casts: HashMap::new(),
        scales_forward: purpose != Purpose::Update && shared.sites.forward_active(),
        activation_slots: HashMap::new(),
        true_values: HashMap::new(),
        saved: vec![None; count],
        needs_gradient: vec![false; count],
        live: vec![false; count],
        gradients: vec![Vec::new(); count],
        passed: vec![None; count],
        contributes: Vec::new(),
        statistics: Vec::new(),
        halves: Vec::new(),
        order: Vec::new(),
        calls: HashMap::new(),
        traced: Vec::new(),
        constants: Vec::new(),
        recomputing: false,
        deferred_casts: Vec::new(),
        shared,
    };
    compiler.mark_live();
    let inputs = compiler.forward()?;
    let output = compiler.values[trace.output].unwrap_or(Value::f32(fixed.scalar_zero(), 1));
    let mut output = compiler.true_value(output);
    let mut aux_outputs = compiler.aux_outputs();
    if let Purpose::Train { later } = purpose {
        compiler.backward()?;
        let loss = Value::f32(fixed.loss(), 1);
        let target = StoreSpec { add: later, ..StoreSpec::passthrough(loss, Slot::ONE) };
        compiler.launches.push(cast(output.buf, target).into());
        output = loss;
    }
    compiler.origins.resize(compiler.launches.len(), (trace.output, false));
    let read: Vec<BufferId> = aux_outputs.iter().map(|aux| aux.value.buf).chain([output.buf]).collect();
    compiler.fuse_attention(&read);
    compiler.round_stores()?;
    compiler.declare_operand_formats();
    compiler.store_blocks(&inputs, aux_outputs.iter_mut().map(|aux| &mut aux.value).chain([&mut output]));
    compiler.shrink_waiting_values(read.into_iter());
    let Compiler { launches, origins, buffers, contributes, statistics, halves, order, traced, .. } = compiler;
    let Compiler { scales_forward, .. } = compiler;
    let Compiler { values, constants, stats_syncs, shared, .. } = compiler;
    let plan = plan.into_iter().map(|row| row.stored(&values)).collect();
    let mut program = Program {
        trace: trace.clone(),
        purpose,
        prefix,
        distributed: shared.distributed,
        scales_forward,
        constants,
        repeats: purpose == Purpose::Train { later: false } && shared.sites.repeats(),
        inputs,
        launches,
        stats_syncs,
        buckets: Vec::new(),
        sync_points: Vec::new(),
        origins,
        output,
        aux_outputs,
        contributes,
        statistics,
        halves,
        order,
        arena: Vec::new(),
        gradients: traced,
        plan,
    };
    memory::assign(&mut program, &buffers, shared.retain_buffers);
    program.insert_sync_points(|id| shared.parameters[id].len);
    Ok(program)
}

impl Compiler<'_, '_> {
    /// Marks the nodes on which the output depends (live), and those that depend on a weight.
    fn mark_live(&mut self) {
        self.live[self.trace.output] = true;
        self.trace.aux_outputs.iter().for_each(|&(_, id)| self.live[id] = true);
        for (id, node) in self.trace.nodes.iter().enumerate().rev() {
            if self.live[id] {
                node.inputs.iter().for_each(|&input| self.live[input] = true);
                if let Some(saved) = node.operator().and_then(Operator::reads_saved) {
                    self.live[saved] = true;
                }
            }
        }
        for (id, node) in self.trace.nodes.iter().enumerate() {
            self.needs_gradient[id] = match &node.work {
                NodeKind::Input(_) | NodeKind::Frozen(_) => false,
                NodeKind::Parameter(p) => self.shared.parameters[*p].role == Role::Weight,
                NodeKind::Operator(operator) => {
                    operator.is_differentiable() && node.inputs.iter().any(|&input| self.needs_gradient[input])
                }
            };
        }
    }

    /// Returns the named values that can be read besides the output. A value that does not belong to the program, above
    /// all a parameter, is copied, because it may be overwritten before it is read.
    fn aux_outputs(&mut self) -> Vec<AuxOutput> {
        let trace = self.trace;
        let mut all = Vec::new();
        for (name, id) in &trace.aux_outputs {
            let Some(value) = self.values[*id] else { continue };
            let mut value = self.true_value(value);
            if !matches!(value.buf, BufferId::Arena(_)) {
                let copy = self.new_buffer(value.dtype, value.len);
                self.launches.push(cast(value.buf, StoreSpec::passthrough(copy, Slot::ONE)).into());
                value = copy;
            }
            all.push(AuxOutput { name: name.clone(), value, shape: trace.nodes[*id].shape });
        }
        self.origins.resize(self.launches.len(), (trace.output, false));
        all
    }

    pub fn new_buffer(&mut self, dtype: DType, len: usize) -> Value {
        self.buffers.push((dtype, len));
        Value { buf: BufferId::Arena(self.buffers.len() - 1), dtype, len }
    }

    /// Adds a constant of f32 values to the program and returns its buffer.
    pub fn constant(&mut self, values: Vec<f32>) -> BufferId {
        let number = self.shared.constants.number(values);
        if !self.constants.contains(&number) {
            self.constants.push(number);
        }
        self.fixed.constant(number)
    }

    pub fn slot(&mut self, name: &str, kind: SlotKind) -> Result<Slot, TraceError> {
        let name = format!("{}{name}", self.shared.prefix);
        let first = self.shared.sites.slot(&name, kind)?;
        let calls = self.calls.entry(first).or_default();
        *calls += 1;
        let slot = match *calls {
            1 => first,
            call if kind == SlotKind::Site && self.shared.sites.each_call() => {
                self.shared.sites.slot(&format!("{name}@{call}"), kind)?
            }
            _ => {
                self.shared.sites.share(first);
                return Ok(first);
            }
        };
        self.order.push(slot);
        Ok(slot)
    }
}
