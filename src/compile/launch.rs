//! What a device is asked to do, as data.

use gradscale_core::{
    backend::{DType, Slot},
    descriptor::{Binary, Conv2d, Gemm, Norm, Pass, Pool, Reduce, Rows, Strided, Unary, Way, Xent},
    model::terms::Terms,
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    /// x.
    Unary(Unary),
    /// a, b.
    Binary(Binary),
    /// Terms, with the slot of each.
    Sum(Vec<Slot>),
    /// x.
    Reduce(Reduce),
    /// x.
    Copy(Strided),
    /// a, b, bias.
    Gemm(Gemm),
    /// a, b, bias.
    Conv(Conv2d, Pass),
    /// x; writes offsets.
    Pool(Pool),
    /// x, offsets.
    Unpool(Pool, Way),
    /// x, indices.
    Rows(Rows, Way),
    /// x, scale, shift; writes or reads statistics.
    Norm(Norm),
    /// x, statistics, scale, dy; stores dx, dscale, dshift.
    NormVjp(Norm),
    /// Logits, labels, weights; writes loss and what its vjp needs.
    Xent(Xent),
    /// Logits, labels, weights, what `Xent` wrote, g.
    XentVjp(Xent),
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Launch {
    pub operation: Operation,
    pub reads: Vec<Option<Buf>>,
    /// Results that are not stored through an epilogue: offsets, statistics, losses.
    pub writes: Option<Buf>,
    pub targets: Vec<Target>,
    pub rule: Rule,
}

impl Launch {
    pub fn new(operation: Operation, reads: &[Buf], target: Target) -> Self {
        let reads = reads.iter().copied().map(Some).collect();
        Self { operation, reads, writes: None, targets: vec![target], rule: Rule::None }
    }

    /// All buffers that are read or written.
    pub fn buffers(&self) -> impl Iterator<Item = Buf> + '_ {
        let targets = self.targets.iter().map(|target| target.y);
        self.reads.iter().flatten().copied().chain(self.writes).chain(targets)
    }

    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut Buf> {
        let rule: Box<dyn Iterator<Item = &mut Buf>> = match &mut self.rule {
            Rule::Product { dy, w, .. } => Box::new([&mut dy.value.buf, &mut w.buf].into_iter()),
            _ => Box::new(std::iter::empty()),
        };
        let targets = self.targets.iter_mut().map(|target| &mut target.y);
        self.reads.iter_mut().flatten().chain(&mut self.writes).chain(targets).chain(rule)
    }
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
