//! What a device is asked to do, as data.

use gradscale_core::{
    backend::{self, DType, MapOperands, Operands, Slot},
    descriptor::Unary,
    model::terms::Terms,
    scaled::Scaled,
    stats::Detail,
};

/// A buffer of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Buf {
    /// Outlives steps: parameters, their gradients, constants.
    Fixed(usize),
    /// Of this step: reused as soon as nobody reads it any more.
    Arena(usize),
    /// An input of a coming step.
    Ahead(usize),
}

/// A place and what lies there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub buf: Buf,
    pub dtype: DType,
}

/// ⟨α, ∇X⟩: a gradient and the slot of its exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Gradient {
    pub value: Value,
    pub slot: Slot,
}

/// Operands of a program: numbers of buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Planned;

impl Operands for Planned {
    type Read = Buf;
    type Write = Buf;
    type Store = Target;
    type Terms = Vec<Scaled<Buf, Slot>>;
    type Gradients = Vec<Buf>;
    type Parameters = Vec<Updated>;
    /// There is one.
    type Table = ();
}

/// What a device is asked to do, as data.
pub(crate) type Operation = backend::Launch<Planned>;

/// A parameter in an update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Updated {
    pub master: Buf,
    pub grad: Buf,
    pub state: [Option<Buf>; 2],
    pub half: Option<Buf>,
}

/// Where results go: a store without its table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Target {
    pub y: Buf,
    pub from: Slot,
    pub to: Slot,
    pub detail: Detail,
    pub add: bool,
}

impl Target {
    /// As the exponent is, unobserved.
    pub const fn keep(y: Buf, at: Slot) -> Self {
        Self { y, from: at, to: at, detail: Detail::None, add: false }
    }
}

/// How the first target's exponent is decided, if at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// It is no site.
    None,
    /// From the values.
    Cast,
    /// The same; the values come from a softmax (paper, Theorem 2).
    Softmax,
    /// A product of these two (paper, Theorem 1).
    Product { dy: Gradient, w: Value, terms: Terms },
    /// A sum of gradients.
    Branch,
    /// A sum of parts that do not meet: the gradient of what was split.
    Split,
}

/// An operation, and how the exponent of its first store is decided.
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

/// The cast from one place to another.
pub(crate) fn cast(x: Buf, y: Target) -> Operation {
    Operation::Unary { op: Unary::Id, x, y }
}

impl Launch {
    /// All buffers that are read or written.
    pub fn buffers(&self) -> Vec<Buf> {
        let mut all = Vec::new();
        let _ = self.operation.clone().map(&mut EachBuffer(|buf| {
            all.push(buf);
            buf
        }));
        all
    }

    /// Gives each buffer another name.
    pub fn rename(&mut self, mut name: impl FnMut(Buf) -> Buf) {
        self.operation = self.operation.clone().map(&mut EachBuffer(&mut name));
        if let Rule::Product { dy, w, .. } = &mut self.rule {
            for value in [&mut dy.value, w] {
                value.buf = name(value.buf);
            }
        }
    }

    /// Where the operation stores, in the order of its fields.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        let _ = self.operation.clone().map(&mut EachTarget(|target| {
            targets.push(target);
            target
        }));
        targets
    }

    /// The site that a rule decides, and whose exponent the values come with.
    pub fn site(&self) -> Option<Target> {
        if self.rule == Rule::None { None } else { self.targets().first().copied() }
    }

    /// The same into another place.
    pub fn stored_at(&self, first: Target) -> Self {
        let mut place = Some(first);
        let operation = self.operation.clone().map(&mut EachTarget(|target| place.take().unwrap_or(target)));
        Self { operation, rule: self.rule }
    }
}

/// Changes every buffer.
struct EachBuffer<F>(F);

impl<F: FnMut(Buf) -> Buf> MapOperands<Planned, Planned> for EachBuffer<F> {
    fn read(&mut self, read: Buf) -> Buf {
        self.0(read)
    }
    fn write(&mut self, write: Buf) -> Buf {
        self.0(write)
    }
    fn store(&mut self, store: Target) -> Target {
        Target { y: self.0(store.y), ..store }
    }
    fn terms(&mut self, terms: Vec<Scaled<Buf, Slot>>) -> Vec<Scaled<Buf, Slot>> {
        terms.into_iter().map(|term| term.map(&mut self.0)).collect()
    }
    fn gradients(&mut self, gradients: Vec<Buf>) -> Vec<Buf> {
        gradients.into_iter().map(&mut self.0).collect()
    }
    fn parameters(&mut self, parameters: Vec<Updated>) -> Vec<Updated> {
        let each = |Updated { master, grad, state, half }| Updated {
            master: self.0(master),
            grad: self.0(grad),
            state: state.map(|state| state.map(&mut self.0)),
            half: half.map(&mut self.0),
        };
        parameters.into_iter().map(each).collect()
    }
    fn table(&mut self, (): ()) {}
}

/// Changes every store.
struct EachTarget<F>(F);

impl<F: FnMut(Target) -> Target> MapOperands<Planned, Planned> for EachTarget<F> {
    fn read(&mut self, read: Buf) -> Buf {
        read
    }
    fn write(&mut self, write: Buf) -> Buf {
        write
    }
    fn store(&mut self, store: Target) -> Target {
        self.0(store)
    }
    fn terms(&mut self, terms: Vec<Scaled<Buf, Slot>>) -> Vec<Scaled<Buf, Slot>> {
        terms
    }
    fn gradients(&mut self, gradients: Vec<Buf>) -> Vec<Buf> {
        gradients
    }
    fn parameters(&mut self, parameters: Vec<Updated>) -> Vec<Updated> {
        parameters
    }
    fn table(&mut self, (): ()) {}
}

/// Parts of a parameter, each a fixed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Master,
    Gradient,
    Half,
    State0,
    State1,
}

/// Parts of each parameter.
const PARTS: usize = 5;
/// A zero, a one, the norm of all gradients, the loss.
const COMMON: usize = 4;

/// The fixed buffers: parts of all parameters, four numbers, constants of programs.
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

    /// Losses of all micro-batches of a step add here.
    pub const fn loss(self) -> Buf {
        Buf::Fixed(self.parameters * PARTS + 3)
    }

    pub const fn constant(self, index: usize) -> Buf {
        Buf::Fixed(self.parameters * PARTS + COMMON + index)
    }
}
