//! Autograd tape: the operators of a network, recorded while its closure runs.
//!
//! Tracing computes nothing. The trace is compiled for a device once ([`super::compile`]) and run whenever the same
//! trace is recorded again. So a step knows all of its sites before its first launch, and memory is planned as a whole.

use super::Operator;
use crate::{
    Parameter, Shape, TraceError,
    error::{OperandMismatch, TraceErrorKind},
    parameters::Owner,
};
use gradscale_core::{
    backend::DType,
    ops::{Op, ShapeError},
};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    ops::Range,
    sync::Arc,
};

/// Source of a node's values: an input, a parameter or an operator.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Input(DType),
    Parameter(usize),
    /// Parameter that is a constant in this part of the network, by its index.
    Frozen(usize),
    Operator(Arc<dyn Operator>),
}

impl PartialEq for NodeKind {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Input(one), Self::Input(two)) => one == two,
            (Self::Parameter(one), Self::Parameter(two)) | (Self::Frozen(one), Self::Frozen(two)) => one == two,
            (Self::Operator(one), Self::Operator(two)) => one.same(&**two),
            (Self::Input(_) | Self::Parameter(_) | Self::Frozen(_) | Self::Operator(_), _) => false,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub name: String,
    pub op: Op,
    pub work: NodeKind,
    pub inputs: Vec<usize>,
    pub shape: Shape,
}

impl Node {
    /// Returns the operator of the node; `None` for inputs and parameters.
    pub fn operator(&self) -> Option<&dyn Operator> {
        match &self.work {
            NodeKind::Operator(operator) => Some(&**operator),
            NodeKind::Input(_) | NodeKind::Parameter(_) | NodeKind::Frozen(_) => None,
        }
    }

    /// Creates a trace error with the name of the node.
    pub fn error(&self, kind: impl Into<TraceErrorKind>) -> TraceError {
        TraceError::new(&self.name, kind)
    }

    /// Converts a size to u32, as descriptors have it.
    pub fn size(&self, len: usize) -> Result<u32, TraceError> {
        size(&self.name, len)
    }

    /// Returns the node's sizes n, h, w, c as u32, as descriptors have them.
    pub fn sizes(&self) -> Result<[u32; 4], TraceError> {
        sizes(&self.name, self.shape)
    }
}

/// Trace of a network: its recorded operators and their connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trace {
    /// Hash of the trace. It is the first field, so that a comparison of different traces usually ends at it.
    pub hash: u64,
    pub nodes: Vec<Node>,
    pub output: usize,
    /// Named values besides the output that can be read when the program has run.
    pub aux_outputs: Vec<(String, usize)>,
    /// Nodes of the backward passes of custom operators, which run in f32 and only there.
    pub gradient_nodes: Vec<Range<usize>>,
    /// Parts of the network whose values the backward pass computes again instead of keeping them.
    pub recomputed: Vec<Range<usize>>,
}

impl Trace {
    /// Computes the hash of operators, connections and shapes. Settings and names are left out, because they rarely
    /// distinguish networks.
    fn hashed(&self) -> u64 {
        // One multiplication per word, because this runs in every step; equal hashes are followed by a comparison.
        let mix = |hash: u64, word: usize| (hash.rotate_left(5) ^ word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let node = |hash: u64, node: &Node| {
            let work = match node.work {
                NodeKind::Input(dtype) => dtype as usize,
                NodeKind::Parameter(number) | NodeKind::Frozen(number) => number,
                NodeKind::Operator(_) => node.op as usize,
            };
            let hash = mix(mix(hash, work), node.inputs.len());
            node.inputs.iter().copied().chain(node.shape.sizes()).fold(hash, mix)
        };
        mix(self.nodes.iter().fold(0, node), self.output)
    }
}

/// Tape on which the closure of a step records its operators.
#[derive(Debug)]
pub struct Tape {
    trace: RefCell<Trace>,
    names: RefCell<HashMap<&'static str, u32>>,
    /// Node of each parameter that was used, by parameter and by whether it was frozen.
    parameter_nodes: RefCell<HashMap<(usize, bool), usize>>,
    training: bool,
    /// True while parameters are recorded as constants.
    frozen: Cell<bool>,
    /// True while calls of batch norm do not update running statistics.
    stats_frozen: Cell<bool>,
    /// True while a part is recorded that the backward pass computes again.
    recomputing: Cell<bool>,
    /// Owner of the parameters that the network may use.
    owner: Owner,
    /// Number of parameters that the owner has.
    parameters: usize,
    /// Shape of the first recorded parameter that belongs to another owner.
    foreign: Cell<Option<Shape>>,
    /// Error of the first operator that the tape could not record.
    failed: RefCell<Option<TraceError>>,
}

/// Value of the network being traced. It can be used any number of times; the gradients of all uses are added.
///
/// Shape errors are deferred. The tape records the first error, and the trainer's call that runs the closure returns
/// it, with the name of the operator or layer. Until the closure ends, a scalar replaces the result that could not be
/// computed. The section on errors of each operator describes the errors that this call returns.
#[derive(Clone, Copy, Debug)]
#[must_use = "a value that nothing uses changes nothing"]
pub struct Var<'t> {
    tape: &'t Tape,
    id: usize,
}

impl Tape {
    pub(crate) fn new(training: bool, owner: Owner, parameters: usize) -> Self {
        let (trace, names, parameter_nodes) = Default::default();
        let (frozen, stats_frozen, recomputing, foreign, failed) = Default::default();
        Self {
            trace,
            names,
            parameter_nodes,
            training,
            frozen,
            stats_frozen,
            recomputing,
            owner,
            parameters,
            foreign,
            failed,
        }
    }

    /// Returns true in a training step, for layers that behave differently in evaluation.
    #[must_use]
    pub const fn training(&self) -> bool {
        self.training
    }

    /// Records a parameter and returns it as a value.
    ///
    /// A parameter of other [`crate::Parameters`] than the trainer's makes the step an error.
    pub fn parameter(&self, parameter: &Parameter) -> Var<'_> {
        self.check(parameter);
        let frozen = self.frozen.get();
        let write = || {
            self.push(Node {
                name: format!("parameter{}", parameter.id),
                op: Op::Reshape,
                work: if frozen { NodeKind::Frozen(parameter.id) } else { NodeKind::Parameter(parameter.id) },
                inputs: Vec::new(),
                shape: parameter.shape,
            })
        };
        let id = *self.parameter_nodes.borrow_mut().entry((parameter.id, frozen)).or_insert_with(write);
        Var { tape: self, id }
    }

    /// Records `network` with parameters as constants. They get no gradient from it. If a step's loss depends on them
    /// nowhere else, the step changes neither them nor their optimizer state. Gradients of its input flow through it.
    /// For example, a generator is trained with the output of a discriminator, which does not learn from it. Running
    /// statistics are updated as usual; see [`Tape::freeze_running_stats`].
    ///
    /// ```
    /// use gradscale::{Input, Cpu, Method, Parameters, Pass, Trainer, nn::{Linear, Module}, optim::Adam};
    /// let mut parameters = Parameters::seeded(0);
    /// let generator = Linear::new(&mut parameters.at("generator"), 1, 2);
    /// let critic = Linear::new(&mut parameters.at("critic"), 2, 1);
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Adam::new(0.1), Method::mixed())?;
    /// let before = trainer.parameters()?;
    /// let gradients = trainer.backward(Pass::new([Input::f32([3, 1], &[1.0, 2.0, 3.0])]).with_loss("generator"), |[noise]| {
    ///     let made = generator.forward(noise);
    ///     made.tape().frozen(|| critic.forward(made)).mean()
    /// })?;
    /// trainer.step(gradients)?;
    /// let moved: Vec<String> = trainer.parameters()?.into_iter().zip(before)
    ///     .filter(|(now, before)| now.1.data != before.1.data).map(|((name, _), _)| name).collect();
    /// assert_eq!(moved, ["generator.weight", "generator.bias"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "no_grad")]
    #[doc(alias = "detach")]
    pub fn frozen<T>(&self, network: impl FnOnce() -> T) -> T {
        let before = self.frozen.replace(true);
        let result = network();
        self.frozen.set(before);
        result
    }

    /// Records `network` without updates of running statistics, although in training each batch is normalised by its
    /// own statistics. Use it for a pass that another program of the same iteration also computes, so that its batch
    /// counts once.
    pub fn freeze_running_stats<T>(&self, network: impl FnOnce() -> T) -> T {
        let before = self.stats_frozen.replace(true);
        let result = network();
        self.stats_frozen.set(before);
        result
    }

    /// Records `network` as a part whose values are not kept for the backward pass, which computes them again from the
    /// part's inputs (gradient checkpointing). It takes memory for the inputs of each such part and the values of one of
    /// them, and the time of one more forward pass. All results have the same bits: dropout draws the same masks, and
    /// running statistics and counts of activations follow the first computation only. Inside such a part a further one has no
    /// effect of its own.
    ///
    /// ```
    /// use gradscale::{Cpu, Input, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// let mut parameters = Parameters::seeded(0);
    /// let blocks: Vec<_> = (0..8).map(|i| Linear::new(&mut parameters.at(&format!("block{i}")), 16, 16)).collect();
    /// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
    /// let gradients = trainer.backward([Input::f32([64, 16], &[0.5; 1024])], |[x]| {
    ///     // Two blocks of four.
    ///     let halves = blocks.chunks(4);
    ///     halves.fold(x, |x, four| x.tape().recompute(|| four.iter().fold(x, |x, block| block.forward(x).gelu()))).mean()
    /// })?;
    /// trainer.step(gradients)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Batch norm over all ranks ([`BatchNormScope::World`](crate::distributed::BatchNormScope::World)) inside the part.
    #[doc(alias = "checkpoint")]
    #[doc(alias = "remat")]
    pub fn recompute<T>(&self, network: impl FnOnce() -> T) -> T {
        let (start, is_inner) = (self.len(), self.recomputing.replace(true));
        let result = network();
        if !is_inner {
            self.recomputing.set(false);
            let end = self.len();
            self.trace.borrow_mut().recomputed.push(start..end);
        }
        result
    }

    /// Returns true if an operator that is recorded now updates its running statistics.
    pub(crate) fn updates_running_stats(&self) -> bool {
        self.training && !self.stats_frozen.get()
    }

    /// Records an operator without inputs and returns its result.
    pub(crate) fn record_source(&self, kind: &'static str, op: Op, operator: impl Operator, shape: Shape) -> Var<'_> {
        let name = self.number(kind);
        if let Err(error) = sizes(&name, shape) {
            return self.fail(error);
        }
        let work = NodeKind::Operator(Arc::new(operator));
        Var { tape: self, id: self.push(Node { name, op, work, inputs: Vec::new(), shape }) }
    }

    /// Records the backward pass of a custom operator.
    pub(crate) fn record_gradient<T>(&self, backward: impl FnOnce() -> T) -> T {
        let start = self.len();
        let result = backward();
        let end = self.len();
        self.trace.borrow_mut().gradient_nodes.push(start..end);
        result
    }

    pub(crate) fn input(&self, index: usize, shape: Shape, dtype: DType) -> Var<'_> {
        let node = Node {
            name: format!("input{index}"),
            op: Op::Reshape,
            work: NodeKind::Input(dtype),
            inputs: Vec::new(),
            shape,
        };
        Var { tape: self, id: self.push(node) }
    }

    /// Records the error of a parameter that belongs to another owner, or was added to a clone.
    pub(crate) fn check(&self, parameter: &Parameter) {
        let own = parameter.owner == self.owner && parameter.id < self.parameters;
        if !own && self.foreign.get().is_none() {
            self.foreign.set(Some(parameter.shape));
        }
    }

    /// Records an error if it is the first, and returns a scalar in place of the result.
    fn fail(&self, error: TraceError) -> Var<'_> {
        let work = NodeKind::Input(DType::F32);
        let node = Node { name: error.name.clone(), op: Op::Reshape, work, inputs: Vec::new(), shape: Shape::SCALAR };
        self.failed.borrow_mut().get_or_insert(error);
        Var { tape: self, id: self.push(node) }
    }

    /// Returns the error of the first operator that the tape could not record.
    pub(crate) fn error(&self) -> Option<TraceError> {
        self.failed.borrow().clone()
    }

    /// Ends the recording with the closure's result and returns the trace.
    pub(crate) fn finish(self, output: usize) -> Result<Trace, TraceError> {
        // This error precedes the errors that follow from it.
        if let Some(shape) = self.foreign.get() {
            return Err(TraceError::new("parameter", TraceErrorKind::Foreign(shape)));
        }
        match self.failed.into_inner() {
            Some(error) => Err(error),
            None => {
                let trace = Trace { output, ..self.trace.into_inner() };
                Ok(Trace { hash: trace.hashed(), ..trace })
            }
        }
    }

    /// Returns the number of nodes that the tape has recorded.
    pub(crate) fn len(&self) -> usize {
        self.trace.borrow().nodes.len()
    }

    fn push(&self, node: Node) -> usize {
        let nodes = &mut self.trace.borrow_mut().nodes;
        nodes.push(node);
        nodes.len() - 1
    }

    /// Returns the next automatic name of an operator kind: `relu`, `relu2`, …
    pub(crate) fn number(&self, kind: &'static str) -> String {
        let mut names = self.names.borrow_mut();
        let number = names.entry(kind).or_default();
        *number += 1;
        if *number == 1 { kind.to_owned() } else { format!("{kind}{number}") }
    }
}

impl<'t> Var<'t> {
    /// Returns the tape on which the value is recorded.
    #[must_use]
    pub const fn tape(self) -> &'t Tape {
        self.tape
    }

    /// Returns the shape of the value, n, h, w, c.
    #[must_use]
    pub fn shape(self) -> Shape {
        self.tape.trace.borrow().nodes[self.id].shape
    }

    pub(crate) const fn id(self) -> usize {
        self.id
    }

    /// Names the last operator; its sites are named after it.
    pub fn named(self, name: &str) -> Self {
        self.tape.trace.borrow_mut().nodes[self.id].name = name.to_owned();
        self
    }

    /// Makes the value readable under a name after the step has run ([`Trainer::output`](crate::Trainer::output)). Use
    /// it for logits besides a loss, or for a hidden state with which the next step starts.
    ///
    /// A name that is used for two values of a step.
    /// A name that two values of a step have.
    pub fn output(self, name: &str) -> Self {
        let beside = &mut self.tape.trace.borrow_mut().aux_outputs;
        if beside.iter().any(|(known, _)| known == name) {
            let kind = TraceErrorKind::Range("two outputs of this name".to_owned());
            self.tape.failed.borrow_mut().get_or_insert(TraceError::new(name, kind));
        }
        beside.push((name.to_owned(), self.id));
        self
    }

    /// Reports that a layer does not fit its input, with a sentence as the error of the step. The returned scalar
    /// replaces the layer's result.
    pub fn bail(self, name: &str, words: impl Into<String>) -> Self {
        self.tape.fail(TraceError::new(name, TraceErrorKind::Range(words.into())))
    }

    /// Records a value with `write`, or records its error on the tape.
    pub(crate) fn try_record(self, write: impl FnOnce() -> Result<Self, TraceError>) -> Self {
        write().unwrap_or_else(|error| self.tape.fail(error))
    }

    /// Returns the operator that computed the value, if there is one.
    pub(crate) fn operator(self) -> Option<Arc<dyn Operator>> {
        match &self.tape.trace.borrow().nodes[self.id].work {
            NodeKind::Operator(operator) => Some(operator.clone()),
            NodeKind::Input(_) | NodeKind::Parameter(_) | NodeKind::Frozen(_) => None,
        }
    }

    /// Records an operator with an automatic name and returns its result.
    pub(crate) fn record_op(
        self, kind: &'static str, op: Op, operator: impl Operator, others: &[Self], shape: Shape,
    ) -> Self {
        let name = self.tape.number(kind);
        self.record_named_op(name, op, operator, others, shape)
    }

    /// Records an operator of this value and others, with a result of that shape.
    pub(crate) fn record_named_op(
        self, name: String, op: Op, operator: impl Operator, others: &[Self], shape: Shape,
    ) -> Self {
        let inputs = std::iter::once(&self).chain(others).map(|var| var.id).collect();
        let work = NodeKind::Operator(Arc::new(operator));
        Self { tape: self.tape, id: self.tape.push(Node { name, op, work, inputs, shape }) }
    }

    /// Returns the value's sizes n, h, w, c as u32, as descriptors have them.
    pub(crate) fn sizes(self, name: &str) -> Result<[u32; 4], TraceError> {
        sizes(name, self.shape())
    }
}

pub(crate) fn sizes(name: &str, shape: Shape) -> Result<[u32; 4], TraceError> {
    let mut sizes = [0; 4];
    for (to, from) in sizes.iter_mut().zip(shape.sizes()) {
        *to = size(name, from)?;
    }
    size(name, shape.len())?;
    Ok(sizes)
}

pub(crate) fn size(name: &str, size: usize) -> Result<u32, TraceError> {
    let too_large = |_| TraceError::new(name, ShapeError::TooLarge);
    u32::try_from(size).map_err(too_large)
}

/// Operands that are integers by their nature, so that their type explains no mistake.
const INTEGER_OPERANDS: [&str; 6] = ["counted", "indices", "labels", "lengths", "places", "targets"];

/// Creates the error of an operand whose shape is not the expected one, `[n, h, w, c]`; `None` stands for any size.
pub(crate) fn mismatch(name: &str, operand: &'static str, value: Var<'_>, expected: [Option<usize>; 4]) -> TraceError {
    let integers = match value.tape.trace.borrow().nodes[value.id].work {
        NodeKind::Input(dtype @ (DType::U8 | DType::U32)) if !INTEGER_OPERANDS.contains(&operand) => Some(dtype),
        NodeKind::Input(_) | NodeKind::Parameter(_) | NodeKind::Frozen(_) | NodeKind::Operator(_) => None,
    };
    let got = value.shape();
    let mismatch = OperandMismatch { layer: None, operand, got, integers, expected };
    TraceError::new(name, TraceErrorKind::Mismatch(Box::new(mismatch)))
}

/// Creates the error of an operand that must have this shape.
pub(crate) fn other_shape(name: &str, operand: &'static str, value: Var<'_>, expected: Shape) -> TraceError {
    mismatch(name, operand, value, expected.sizes().map(Some))
}

/// Creates the error of an operator that does not support an input of this shape.
pub(crate) fn input(name: &str, error: ShapeError, shape: Shape) -> TraceError {
    TraceError::new(name, TraceErrorKind::Input { error, shape })
}
