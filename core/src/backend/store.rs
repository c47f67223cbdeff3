//! Where results go, and what operators hand to each other.

use super::{Backend, Slot};
use crate::stats::Detail;

/// Where an operator's f32 results `v` go, and how: destination and epilogue.
///
/// ```text
/// u = v · 2^(e[to] − e[from])       as `scale::Factor` says
/// s = u, or y + u with `add`
/// row[to] ← row[to] + stats(s)      in a fixed order, by the device's flush rule for FP16
/// y = round(s)                      to y's type, nearest even
/// ```
///
/// `from` is the slot of the gradient operand ([`Slot::ONE`] in a forward pass), `to` that of the result. A parameter
/// gradient goes to a slot of its own whose exponent stays 0: its factor is 2^-α. The row depends on the values s
/// alone, not on y's type. A step stores into a slot with one detail only. Stores into U8 and U32 keep the integer;
/// they are neither scaled nor observed.
#[derive(Debug)]
pub struct Store<'a, B: Backend> {
    /// Destination.
    pub y: &'a mut B::Buffer,
    /// The exponents and rows.
    pub table: &'a B::Table,
    /// Slot of the exponent that the values have.
    pub from: Slot,
    /// Slot of the exponent that they get, and of the row.
    pub to: Slot,
    /// What to observe, at most: the step's [`super::Control::detail`] limits it.
    pub detail: Detail,
    /// Whether to add to what is there.
    pub add: bool,
}

impl<'a, B: Backend> Store<'a, B> {
    /// The scale passes through (ReLU, pooling, reshape); nothing is observed.
    pub fn keep(at: Slot, table: &'a B::Table, y: &'a mut B::Buffer) -> Self {
        Self { y, table, from: at, to: at, detail: Detail::None, add: false }
    }

    /// A cast site: rescaled and observed, in as much detail as the step asks for.
    pub fn site(from: Slot, to: Slot, table: &'a B::Table, y: &'a mut B::Buffer) -> Self {
        Self { y, table, from, to, detail: Detail::Moments, add: false }
    }

    /// A parameter gradient: unscaled, f32, counted; `add` for later micro-batches and shared weights.
    pub fn param(from: Slot, to: Slot, add: bool, table: &'a B::Table, y: &'a mut B::Buffer) -> Self {
        Self { y, table, from, to, detail: Detail::Counts, add }
    }
}

/// One parameter and all that its update touches. Running statistics are parameters too
/// ([`crate::ops::Rule::Ema`]).
#[derive(Debug)]
pub struct Param<'a, T> {
    /// How many elements it has; buffers may be longer.
    pub len: u32,
    /// f32.
    pub master: &'a mut T,
    /// f32, at exponent 0.
    pub grad: &'a T,
    /// f32; as many as the rule keeps.
    pub state: [Option<&'a mut T>; 2],
    /// Copy of the master in half.
    pub half: Option<&'a mut T>,
}

/// What a normalisation leaves for its vjp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormSaved<R> {
    /// Its input.
    pub x: R,
    /// F32: means and biased variances.
    pub saved: R,
    /// F32: weight of each channel.
    pub weight: Option<R>,
}

/// What a classification loss compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropyArgs<R> {
    /// `[rows, classes]`.
    pub logits: R,
    /// `[rows]`, U8 or U32.
    pub labels: R,
    /// `[classes]`, F32.
    pub weights: Option<R>,
}

/// What connectionist temporal classification compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtcArgs<R> {
    /// `[batch, frames, classes]`.
    pub logits: R,
    /// U32 `[batch, letters]`.
    pub targets: R,
    /// U32 `[batch]`: frames of each sequence.
    pub input_lengths: R,
    /// U32 `[batch]`: letters of each target.
    pub target_lengths: R,
}

impl<R> NormSaved<R> {
    /// The same with other operands.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> NormSaved<T> {
        NormSaved { x: f(self.x), saved: f(self.saved), weight: self.weight.map(f) }
    }
}

impl<R> CrossEntropyArgs<R> {
    /// The same with other operands.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> CrossEntropyArgs<T> {
        CrossEntropyArgs { logits: f(self.logits), labels: f(self.labels), weights: self.weights.map(f) }
    }
}

impl<R> CtcArgs<R> {
    /// The same with other operands.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> CtcArgs<T> {
        CtcArgs {
            logits: f(self.logits),
            targets: f(self.targets),
            input_lengths: f(self.input_lengths),
            target_lengths: f(self.target_lengths),
        }
    }
}
