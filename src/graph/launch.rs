//! Launches of a compiled program: operations of a device, whose operands are buffer ids.

use crate::optim::MOST_STATES;
use gradscale_core::{
    backend::{self, DType, MapOperands, Operands, Slot},
    model::terms::Terms,
    ops::Unary,
    scaled::Scaled,
    stats::Detail,
    store_format::StoreFormat,
};
use std::cell::RefCell;

/// Id of a buffer that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BufferId {
    /// Persistent buffer: tensors of a parameter, or a constant.
    Persistent(usize),
    /// Buffer of this step in the arena, reused as soon as it is not read any more.
    Arena(usize),
    /// Prefetched input of the next step, by its position among the inputs.
    PrefetchedInput(usize),
    /// Scalar buffer that the host writes before an update.
    HostScalar(usize),
    /// Buffer of launches that a fused one replaces, which exists while these run ([`Launch::unfused`]).
    Unfused(usize),
}

/// Reference to a tensor: buffer, type and length. The buffer may be longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub buf: BufferId,
    pub dtype: DType,
    pub len: usize,
}

impl Value {
    /// Creates a reference to `len` f32 values in a buffer.
    pub const fn f32(buf: BufferId, len: usize) -> Self {
        Self { buf, dtype: DType::F32, len }
    }

    /// Returns the length in the type of launches. It fits, because shapes are checked when the trace is recorded.
    pub fn elements(self) -> u32 {
        u32::try_from(self.len).unwrap_or(u32::MAX)
    }
}

/// Scaled gradient ⟨α, ∇X⟩: a value, and the slot of its exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gradient {
    pub value: Value,
    pub slot: Slot,
}

/// Family of operand types of a planned launch: buffer ids instead of buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BufferIds;

impl Operands for BufferIds {
    type Read = BufferId;
    type Write = BufferId;
    type Store = StoreSpec;
    type Cast = CastSpec;
    type Terms = Vec<Scaled<BufferId, Slot>>;
    type Gradients = Vec<BufferId>;
    type Parameters = Vec<ParamUpdate>;
    /// Type of the exponent table in planned launches: unit, because there is only one table.
    type Table = ();
}

/// BufferIds operation of a device, with buffer ids as operands.
pub(crate) type Operation = backend::Launch<BufferIds>;

/// Parameter that an optimizer's launch updates, with the ids of its buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ParamUpdate {
    pub len: u32,
    pub master: BufferId,
    pub grad: BufferId,
    pub state: [Option<BufferId>; 2],
    pub half: Option<BufferId>,
}

/// Destination of an operation's results: a store without its table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StoreSpec {
    pub y: Value,
    pub from: Slot,
    pub to: Slot,
    pub detail: Detail,
    pub add: bool,
    /// Format to which the values are still to be rounded, see [`super::Compiler::round_stores`]. A store that adds has
    /// none.
    pub format: StoreFormat,
    /// Size of the last axis of the tensor, along which values are rounded in blocks. 0 for stores without a format.
    pub columns: usize,
}

/// Cast of values that are not stored, without its table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CastSpec {
    pub from: Slot,
    pub to: Slot,
    pub detail: Detail,
}

impl StoreSpec {
    /// Returns true if the store rounds to another format than FP16.
    pub fn has_format(self) -> bool {
        self.format != StoreFormat::Fp16
    }

    /// Returns the same store with another buffer as its destination.
    fn renamed(self, name: impl Fn(BufferId) -> BufferId) -> Self {
        Self { y: Value { buf: name(self.y.buf), ..self.y }, ..self }
    }

    /// Creates a store at the exponent that the values have, without observation.
    pub const fn passthrough(y: Value, at: Slot) -> Self {
        Self::rescaled(y, at, at)
    }

    /// Creates a store that brings values to another exponent, without observation.
    pub const fn rescaled(y: Value, from: Slot, to: Slot) -> Self {
        Self { y, from, to, detail: Detail::None, add: false, format: StoreFormat::Fp16, columns: 0 }
    }
}

/// ScaleRule that decides the exponent of an operation's first store inside the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ScaleRule {
    /// No rule: the store is not a cast site.
    None,
    /// ScaleRule for other casts: decided from the values.
    FromValues,
    /// ScaleRule for a softmax gradient: decided from the values (paper, Theorem 2).
    FromSoftmax,
    /// ScaleRule for a product: decided from its operands (paper, Theorem 1).
    FromGemmOperands { dy: Gradient, w: Value, terms: Terms },
    /// ScaleRule for a branch: decided for a sum of gradients.
    FromSum,
    /// ScaleRule for a split: decided for a sum of disjoint parts.
    FromConcat,
}

/// BufferIds operation, and the rule for the exponent of its first store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    pub operation: Operation,
    pub rule: ScaleRule,
    /// Launches that run in its place in a step in which one of their sites decides; empty for launches whose first store is
    /// their only site.
    pub unfused: Vec<Launch>,
}

impl From<Operation> for Launch {
    fn from(operation: Operation) -> Self {
        Self::new(operation, ScaleRule::None)
    }
}

/// Returns the operation that casts a value to another.
pub(crate) fn cast(x: BufferId, y: StoreSpec) -> Operation {
    unary(Unary::Id, x, y)
}

/// Returns the operation that casts a value to another, and rounds it at once to the format of the store.
pub(crate) fn cast_value(x: Value, y: StoreSpec) -> Operation {
    match (x.dtype, y.format) {
        (DType::F32 | DType::F16, StoreFormat::E5m2 | StoreFormat::E4m3) => round(x.buf, y),
        (DType::F32 | DType::F16, StoreFormat::Fp16) | (DType::U8 | DType::U32, _) => cast(x.buf, y),
    }
}

/// Returns the operation that rounds values to the format of a store.
pub(super) fn round(x: BufferId, y: StoreSpec) -> Operation {
    let to = StoreSpec { format: StoreFormat::Fp16, ..y };
    Operation::Round { format: y.format, len: y.y.elements(), x, y: to }
}

/// Returns the operation that applies a unary function to as many elements as are stored.
pub(crate) fn unary(op: Unary, x: BufferId, y: StoreSpec) -> Operation {
    Operation::Unary { op, len: y.y.elements(), x, y }
}

impl Launch {
    /// Creates the launch of an operation for whose first store a rule decides the exponent.
    pub const fn new(operation: Operation, rule: ScaleRule) -> Self {
        Self { operation, rule, unfused: Vec::new() }
    }

    /// Returns all buffers that the operation reads or writes.
    pub fn buffers(&self) -> Vec<BufferId> {
        let all = RefCell::new(Vec::new());
        let seen = |buf| {
            all.borrow_mut().push(buf);
            buf
        };
        let _ = self.operation.clone().map(&mut RewriteBuffers { buffer: seen, store: |y: StoreSpec| y.renamed(seen) });
        all.into_inner()
    }

    /// Returns the buffers that the operation writes.
    pub fn written_buffers(&self) -> Vec<BufferId> {
        let mut written = WrittenBuffers(Vec::new());
        let _ = self.operation.clone().map(&mut written);
        written.0
    }

    /// Replaces the id of each buffer of the operation.
    pub fn rename(&mut self, name: impl Fn(BufferId) -> BufferId) {
        self.rename_with(&name);
    }

    fn rename_with(&mut self, name: &dyn Fn(BufferId) -> BufferId) {
        self.unfused.iter_mut().for_each(|launch| launch.rename_with(name));
        self.operation =
            self.operation.clone().map(&mut RewriteBuffers { buffer: name, store: |y: StoreSpec| y.renamed(name) });
        if let ScaleRule::FromGemmOperands { dy, w, .. } = &mut self.rule {
            for value in [&mut dy.value, w] {
                value.buf = name(value.buf);
            }
        }
    }

    /// Returns the first store, whose exponent the rule decides and at which values are computed.
    pub fn site(&self) -> Option<StoreSpec> {
        let mut first = None;
        if self.rule != ScaleRule::None {
            let store = |y| *first.get_or_insert(y);
            let _ = self.operation.clone().map(&mut RewriteBuffers { buffer: |buf| buf, store });
        }
        first
    }

    /// Returns the launch with another destination as its first store.
    pub fn stored_at(&self, first: StoreSpec) -> Self {
        let mut place = Some(first);
        Self::new(self.with_stores(|y| place.take().unwrap_or(y)), self.rule)
    }

    /// Returns true if a store of the launch has another format than FP16.
    pub fn has_format(&self) -> bool {
        let mut found = false;
        self.with_stores(|y| {
            found |= y.has_format();
            y
        });
        found
    }

    /// Returns the operation with other stores.
    pub fn with_stores(&self, store: impl FnMut(StoreSpec) -> StoreSpec) -> Operation {
        self.operation.clone().map(&mut RewriteBuffers { buffer: |buf| buf, store })
    }
}

/// Operand mapping that changes every buffer id that is not stored to, and every store.
struct RewriteBuffers<F, G> {
    buffer: F,
    store: G,
}

impl<F: FnMut(BufferId) -> BufferId, G: FnMut(StoreSpec) -> StoreSpec> MapOperands<BufferIds, BufferIds>
    for RewriteBuffers<F, G>
{
    fn read(&mut self, read: BufferId) -> BufferId {
        (self.buffer)(read)
    }
    fn write(&mut self, write: BufferId) -> BufferId {
        (self.buffer)(write)
    }
    fn store(&mut self, store: StoreSpec) -> StoreSpec {
        (self.store)(store)
    }
    fn cast(&mut self, cast: CastSpec) -> CastSpec {
        cast
    }
    fn terms(&mut self, terms: Vec<Scaled<BufferId, Slot>>) -> Vec<Scaled<BufferId, Slot>> {
        terms.into_iter().map(|term| term.map(&mut self.buffer)).collect()
    }
    fn gradients(&mut self, gradients: Vec<BufferId>) -> Vec<BufferId> {
        gradients.into_iter().map(&mut self.buffer).collect()
    }
    fn parameters(&mut self, parameters: Vec<ParamUpdate>) -> Vec<ParamUpdate> {
        let each = |ParamUpdate { len, master, grad, state, half }| ParamUpdate {
            len,
            master: (self.buffer)(master),
            grad: (self.buffer)(grad),
            state: state.map(|state| state.map(&mut self.buffer)),
            half: half.map(&mut self.buffer),
        };
        parameters.into_iter().map(each).collect()
    }
    fn table(&mut self, (): ()) {}
}

/// Tensor of a parameter in a fixed buffer: master weights, gradient, half copy, optimizer state or average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamTensor {
    Master,
    Gradient,
    Half,
    State0,
    State1,
    State2,
    State3,
    /// Exponential moving average of a weight.
    Average,
    /// Half copy of the average, for evaluations in half.
    AverageHalf,
}

impl ParamTensor {
    /// Returns the element type of the parameter's tensor.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Half | Self::AverageHalf => DType::F16,
            Self::Master
            | Self::Gradient
            | Self::State0
            | Self::State1
            | Self::State2
            | Self::State3
            | Self::Average => DType::F32,
        }
    }
}

/// Tensors that hold the optimizer states of a parameter.
pub(crate) const STATES: [ParamTensor; MOST_STATES] =
    [ParamTensor::State0, ParamTensor::State1, ParamTensor::State2, ParamTensor::State3];
/// Number of tensors of each parameter: master weights, gradient, half copy, states, average and its half copy.
const TENSORS: usize = 5 + MOST_STATES;
/// Number of common scalars: a zero, a one, the norm of all gradients, the loss.
const COMMON: usize = 4;

/// Ids of the fixed buffers: tensors of all parameters, four scalars, constants of programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub parameters: usize,
}

impl Fixed {
    pub const fn tensor(parameter: usize, tensor: ParamTensor) -> BufferId {
        BufferId::Persistent(parameter * TENSORS + tensor as usize)
    }

    pub const fn scalar_zero(self) -> BufferId {
        BufferId::Persistent(self.parameters * TENSORS)
    }

    pub const fn scalar_one(self) -> BufferId {
        BufferId::Persistent(self.parameters * TENSORS + 1)
    }

    pub const fn norm(self) -> BufferId {
        BufferId::Persistent(self.parameters * TENSORS + 2)
    }

    /// Returns the buffer in which the losses of all micro-batches of a step accumulate.
    pub const fn loss(self) -> BufferId {
        BufferId::Persistent(self.parameters * TENSORS + 3)
    }

    pub const fn constant(self, index: usize) -> BufferId {
        BufferId::Persistent(self.parameters * TENSORS + COMMON + index)
    }
}

/// Operand mapping that changes nothing and collects the buffers that are written.
struct WrittenBuffers(Vec<BufferId>);

impl MapOperands<BufferIds, BufferIds> for WrittenBuffers {
    fn read(&mut self, read: BufferId) -> BufferId {
        read
    }
    fn write(&mut self, write: BufferId) -> BufferId {
        self.0.push(write);
        write
    }
    fn store(&mut self, store: StoreSpec) -> StoreSpec {
        self.0.push(store.y.buf);
        store
    }
    fn cast(&mut self, cast: CastSpec) -> CastSpec {
        cast
    }
    fn terms(&mut self, terms: Vec<Scaled<BufferId, Slot>>) -> Vec<Scaled<BufferId, Slot>> {
        terms
    }
    fn gradients(&mut self, gradients: Vec<BufferId>) -> Vec<BufferId> {
        gradients
    }
    fn parameters(&mut self, parameters: Vec<ParamUpdate>) -> Vec<ParamUpdate> {
        self.0.extend(parameters.iter().flat_map(|p| [Some(p.master), p.state[0], p.state[1], p.half]).flatten());
        parameters
    }
    fn table(&mut self, (): ()) {}
}
