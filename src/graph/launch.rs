//! Planned launches: operations of a device with buffer ids.

use crate::optim::MOST_STATES;
use gradscale_core::{
    backend::{self, DType, MapOperands, Operands, Slot},
    model::terms::Terms,
    ops::Unary,
    scaled::Scaled,
    stats::Detail,
};
use std::cell::RefCell;

/// Id of a buffer that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Buf {
    /// Persistent buffer: tensors of a parameter, or a constant.
    Fixed(usize),
    /// Buffer of this step in the arena, reused as soon as it is not read any more.
    Arena(usize),
    /// Prefetched input of the next step, by its position among the inputs.
    Ahead(usize),
    /// Scalar buffer that the host writes before an update.
    Number(usize),
}

/// Reference to a tensor: buffer, type and length. The buffer may be longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub buf: Buf,
    pub dtype: DType,
    pub len: usize,
}

impl Value {
    /// Creates a reference to `len` f32 values in a buffer.
    pub const fn single(buf: Buf, len: usize) -> Self {
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
pub(crate) struct Planned;

impl Operands for Planned {
    type Read = Buf;
    type Write = Buf;
    type Store = Target;
    type Terms = Vec<Scaled<Buf, Slot>>;
    type Gradients = Vec<Buf>;
    type Parameters = Vec<Updated>;
    /// Unit type, because there is only one table.
    type Table = ();
}

/// Planned operation of a device, with buffer ids as operands.
pub(crate) type Operation = backend::Launch<Planned>;

/// Parameter that an optimizer's launch updates, with the ids of its buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Updated {
    pub len: u32,
    pub master: Buf,
    pub grad: Buf,
    pub state: [Option<Buf>; 2],
    pub half: Option<Buf>,
}

/// Destination of an operation's results: a store without its table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Target {
    pub y: Value,
    pub from: Slot,
    pub to: Slot,
    pub detail: Detail,
    pub add: bool,
}

impl Target {
    /// Returns the same store with another buffer as its destination.
    fn renamed(self, name: impl Fn(Buf) -> Buf) -> Self {
        Self { y: Value { buf: name(self.y.buf), ..self.y }, ..self }
    }

    /// Creates a store at the exponent that the values have, without observation.
    pub const fn keep(y: Value, at: Slot) -> Self {
        Self { y, from: at, to: at, detail: Detail::None, add: false }
    }
}

/// Rule that decides the exponent of an operation's first store inside the step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// No rule: the store is not a cast site.
    None,
    /// Rule for other casts: decided from the values.
    Cast,
    /// Rule for a softmax gradient: decided from the values (paper, Theorem 2).
    Softmax,
    /// Rule for a product: decided from its operands (paper, Theorem 1).
    Product { dy: Gradient, w: Value, terms: Terms },
    /// Rule for a branch: decided for a sum of gradients.
    Branch,
    /// Rule for a split: decided for a sum of disjoint parts.
    Split,
}

/// Planned operation, and the rule for the exponent of its first store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    pub operation: Operation,
    pub rule: Rule,
}

impl From<Operation> for Launch {
    fn from(operation: Operation) -> Self {
        Self { operation, rule: Rule::None }
    }
}

/// Returns the operation that casts a value to another.
pub(crate) fn cast(x: Buf, y: Target) -> Operation {
    unary(Unary::Id, x, y)
}

/// Returns the operation that applies a unary function to as many elements as are stored.
pub(crate) fn unary(op: Unary, x: Buf, y: Target) -> Operation {
    Operation::Unary { op, len: y.y.elements(), x, y }
}

impl Launch {
    /// Returns all buffers that the operation reads or writes.
    pub fn buffers(&self) -> Vec<Buf> {
        let all = RefCell::new(Vec::new());
        let seen = |buf| {
            all.borrow_mut().push(buf);
            buf
        };
        let _ = self.operation.clone().map(&mut Each { buffer: seen, store: |y: Target| y.renamed(seen) });
        all.into_inner()
    }

    /// Replaces the id of each buffer of the operation.
    pub fn rename(&mut self, name: impl Fn(Buf) -> Buf) {
        self.operation = self.operation.clone().map(&mut Each { buffer: &name, store: |y: Target| y.renamed(&name) });
        if let Rule::Product { dy, w, .. } = &mut self.rule {
            for value in [&mut dy.value, w] {
                value.buf = name(value.buf);
            }
        }
    }

    /// Returns the first store, whose exponent the rule decides and at which values are computed.
    pub fn site(&self) -> Option<Target> {
        let mut first = None;
        if self.rule != Rule::None {
            let store = |y| *first.get_or_insert(y);
            let _ = self.operation.clone().map(&mut Each { buffer: |buf| buf, store });
        }
        first
    }

    /// Returns the launch with another destination as its first store.
    pub fn stored_at(&self, first: Target) -> Self {
        let mut place = Some(first);
        let store = |y| place.take().unwrap_or(y);
        let operation = self.operation.clone().map(&mut Each { buffer: |buf| buf, store });
        Self { operation, rule: self.rule }
    }
}

/// Operand mapping that changes every buffer id that is not stored to, and every store.
struct Each<F, G> {
    buffer: F,
    store: G,
}

impl<F: FnMut(Buf) -> Buf, G: FnMut(Target) -> Target> MapOperands<Planned, Planned> for Each<F, G> {
    fn read(&mut self, read: Buf) -> Buf {
        (self.buffer)(read)
    }
    fn write(&mut self, write: Buf) -> Buf {
        (self.buffer)(write)
    }
    fn store(&mut self, store: Target) -> Target {
        (self.store)(store)
    }
    fn terms(&mut self, terms: Vec<Scaled<Buf, Slot>>) -> Vec<Scaled<Buf, Slot>> {
        terms.into_iter().map(|term| term.map(&mut self.buffer)).collect()
    }
    fn gradients(&mut self, gradients: Vec<Buf>) -> Vec<Buf> {
        gradients.into_iter().map(&mut self.buffer).collect()
    }
    fn parameters(&mut self, parameters: Vec<Updated>) -> Vec<Updated> {
        let each = |Updated { len, master, grad, state, half }| Updated {
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

/// Tensor of a parameter in a fixed buffer: master weights, gradient, half copy or optimizer state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Master,
    Gradient,
    Half,
    State0,
    State1,
    State2,
    State3,
}

impl Part {
    /// Returns the element type of the parameter's tensor.
    pub const fn dtype(self) -> DType {
        match self {
            Self::Half => DType::F16,
            Self::Master | Self::Gradient | Self::State0 | Self::State1 | Self::State2 | Self::State3 => DType::F32,
        }
    }
}

/// Tensors that hold the optimizer states of a parameter.
pub(crate) const STATES: [Part; MOST_STATES] = [Part::State0, Part::State1, Part::State2, Part::State3];
/// Number of tensors of each parameter: master weights, gradient, half copy, states.
const PARTS: usize = 3 + MOST_STATES;
/// Number of common scalars: a zero, a one, the norm of all gradients, the loss.
const COMMON: usize = 4;

/// Ids of the fixed buffers: tensors of all parameters, four scalars, constants of programs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub parameters: usize,
}

impl Fixed {
    pub const fn part(parameter: usize, part: Part) -> Buf {
        Buf::Fixed(parameter * PARTS + part as usize)
    }

    pub const fn zero(self) -> Buf {
        Buf::Fixed(self.parameters * PARTS)
    }

    pub const fn one(self) -> Buf {
        Buf::Fixed(self.parameters * PARTS + 1)
    }

    pub const fn norm(self) -> Buf {
        Buf::Fixed(self.parameters * PARTS + 2)
    }

    /// Returns the buffer in which the losses of all micro-batches of a step accumulate.
    pub const fn loss(self) -> Buf {
        Buf::Fixed(self.parameters * PARTS + 3)
    }

    pub const fn constant(self, index: usize) -> Buf {
        Buf::Fixed(self.parameters * PARTS + COMMON + index)
    }
}
