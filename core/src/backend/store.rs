//! Stores of results, and structs for values that one operator saves for another.

use super::{Backend, Slot};
use crate::stats::Detail;

/// Destination and epilogue of an operator's f32 results `v`.
///
/// ```text
/// u = v · 2^(e[to] − e[from])       as `scale::Factor` says
/// s = u, or y + u with `add`
/// row[to] ← row[to] + stats(s)      in a fixed order, by the device's flush rule for FP16
/// y = round(s)                      to y's type, nearest even
/// ```
///
/// `from` is the slot of the gradient operand ([`Slot::ONE`] in a forward pass), `to` that of the result. A parameter
/// gradient is stored to a slot of its own whose exponent stays 0, so its factor is 2^-α. The row depends on the values
/// s alone, not on y's type. A step stores into a slot with one detail only. Stores into U8 and U32 keep the integer;
/// they are neither scaled nor observed.
#[derive(Debug)]
pub struct Store<'a, B: Backend> {
    /// Destination buffer of the store, in device memory.
    pub y: &'a mut B::Buffer,
    /// Device table with the exponents of all slots and their statistics rows.
    pub table: &'a B::Table,
    /// Slot of the exponent of the values to be stored.
    pub from: Slot,
    /// Slot of the exponent of the stored values, and of their statistics row.
    pub to: Slot,
    /// Maximum detail of statistics to observe; the step's [`super::Control::detail`] limits it.
    pub detail: Detail,
    /// True if the values are added to the destination instead of replacing it.
    pub add: bool,
}

impl<'a, B: Backend> Store<'a, B> {
    /// Creates a store that passes the scale through (ReLU, pooling, reshape) and observes nothing.
    pub fn keep(at: Slot, table: &'a B::Table, y: &'a mut B::Buffer) -> Self {
        Self { y, table, from: at, to: at, detail: Detail::None, add: false }
    }

    /// Creates the store of a cast site: it rescales, and observes as much detail as the step requires.
    pub fn site(from: Slot, to: Slot, table: &'a B::Table, y: &'a mut B::Buffer) -> Self {
        Self { y, table, from, to, detail: Detail::Moments, add: false }
    }

    /// Creates the store of a parameter gradient: unscaled, f32, with counters. `add` is for later micro-batches and
    /// shared weights.
    pub fn param(from: Slot, to: Slot, add: bool, table: &'a B::Table, y: &'a mut B::Buffer) -> Self {
        Self { y, table, from, to, detail: Detail::Counts, add }
    }
}

/// Cast of f32 values `v` that are not stored: an operator computes with the halves, and they never leave the chip.
///
/// ```text
/// u = v · 2^(e[to] − e[from])       as `scale::Factor` says
/// row[to] ← row[to] + stats(u)      as for a `Store`
/// half(u)                           with which the operator continues, nearest even
/// ```
#[derive(Debug)]
pub struct Cast<'a, B: Backend> {
    /// Device table with the exponents of all slots and their statistics rows.
    pub table: &'a B::Table,
    /// Slot of the exponent of the values to be cast.
    pub from: Slot,
    /// Slot of the exponent of the halves, and of their statistics row.
    pub to: Slot,
    /// Maximum detail of statistics to observe; the step's [`super::Control::detail`] limits it.
    pub detail: Detail,
}

/// One parameter of an optimizer's launch, with all tensors that its update uses. Running statistics are parameters too
/// ([`crate::ops::Rule::Ema`]).
#[derive(Debug)]
pub struct Param<'a, T> {
    /// Number of elements of the parameter; buffers may be longer.
    pub len: u32,
    /// Master weights of the parameter, f32.
    pub master: &'a mut T,
    /// Gradient of the parameter, f32 at exponent 0.
    pub grad: &'a T,
    /// Optimizer states of the parameter, f32; as many as the rule has.
    pub state: [Option<&'a mut T>; 2],
    /// Half-precision copy of the parameter's master weights, refreshed by the update.
    pub half: Option<&'a mut T>,
}

/// Tensors that a normalisation saves for its gradient (vjp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormSaved<R> {
    /// Input tensor of the normalisation.
    pub x: R,
    /// Means and biased variances of the groups, F32.
    pub saved: R,
    /// Scale of each channel of the normalisation, F32.
    pub weight: Option<R>,
}

/// Operands of a cross-entropy loss: logits, labels, class weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEntropyArgs<R> {
    /// Logits of the cross-entropy, `[rows, classes]`.
    pub logits: R,
    /// Labels of the cross-entropy, `[rows]`, U8 or U32.
    pub labels: R,
    /// Optional class weights of the cross-entropy, `[classes]`, F32.
    pub weights: Option<R>,
}

/// Operands of the CTC loss (connectionist temporal classification): logits, targets, lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtcArgs<R> {
    /// Logits of the CTC loss, `[batch, frames, classes]`.
    pub logits: R,
    /// Target letters of the CTC loss, U32 `[batch, letters]`.
    pub targets: R,
    /// U32 `[batch]`: number of frames of each input sequence.
    pub input_lengths: R,
    /// U32 `[batch]`: number of letters of each target.
    pub target_lengths: R,
}

/// Operands of an attention: queries, keys, values, lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionArgs<R> {
    /// Queries of the attention, `[batch, queries, depth]`.
    pub q: R,
    /// Keys of the attention, `[batch, keys, depth]`.
    pub k: R,
    /// Values of the attention, `[batch, keys, width]`.
    pub v: R,
    /// Lengths of the sequences `[sequences]`, U8 or U32; none if the columns need none.
    pub lengths: Option<R>,
}

/// Operands of a step of a recurrent cell: products, state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellArgs<R> {
    /// Products of the cell with the inputs of all steps, `[rows, steps, gates, hidden]`.
    pub x: R,
    /// Products of the cell with the hidden state, `[rows, gates, hidden]`.
    pub h: R,
    /// Cell state c of an LSTM or hidden state h of a GRU, `[rows, hidden]`.
    pub state: R,
}

impl<R> NormSaved<R> {
    /// Converts each saved operand of the normalisation with `f`.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> NormSaved<T> {
        NormSaved { x: f(self.x), saved: f(self.saved), weight: self.weight.map(f) }
    }
}

impl<R> CrossEntropyArgs<R> {
    /// Converts each operand of the cross-entropy with `f`.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> CrossEntropyArgs<T> {
        CrossEntropyArgs { logits: f(self.logits), labels: f(self.labels), weights: self.weights.map(f) }
    }
}

impl<R> CellArgs<R> {
    /// Converts each operand of the cell with `f`.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> CellArgs<T> {
        CellArgs { x: f(self.x), h: f(self.h), state: f(self.state) }
    }
}

impl<R> AttentionArgs<R> {
    /// Converts each operand of the attention with `f`.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> AttentionArgs<T> {
        AttentionArgs { q: f(self.q), k: f(self.k), v: f(self.v), lengths: self.lengths.map(f) }
    }
}

impl<R> CtcArgs<R> {
    /// Converts each operand of the CTC loss with `f`.
    pub fn map<T>(self, mut f: impl FnMut(R) -> T) -> CtcArgs<T> {
        CtcArgs {
            logits: f(self.logits),
            targets: f(self.targets),
            input_lengths: f(self.input_lengths),
            target_lengths: f(self.target_lengths),
        }
    }
}
