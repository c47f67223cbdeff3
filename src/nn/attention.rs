//! Multi-head self-attention.

use super::{Linear, Module, Turn};
use crate::{AttentionMask, Init, Scope, TraceError, Var, error::TraceErrorKind};

/// Division of a sequence's channels into heads.
#[derive(Clone, Debug)]
pub(super) struct Heads {
    /// Name of the layer whose heads these are.
    pub name: String,
    count: usize,
}

impl Heads {
    pub fn new(name: &str, count: usize) -> Self {
        Self { name: name.to_owned(), count }
    }

    /// Checks that x is a sequence `[n, 1, t, width]`, and returns the error value otherwise.
    pub fn check_sequence<'t>(&self, x: Var<'t>) -> Result<(), Var<'t>> {
        if x.shape().sizes()[1] == 1 {
            return Ok(());
        }
        let words = format!("a sequence must be n × 1 × t × width, not {}", x.shape());
        Err(x.bail(&self.name, words))
    }

    /// Splits `[n, 1, t, width]` into heads, `[n, heads, t, width / heads]`, or returns the error value if they do not
    /// divide the width.
    pub fn split<'t>(&self, x: Var<'t>, what: &str) -> Result<Var<'t>, Var<'t>> {
        let [n, _, t, width] = x.shape().sizes();
        self.check_width(x, width)?;
        let x = self.called(x.reshape([n, t, self.count, width / self.count]), &format!("{what}.reshape"));
        Ok(self.called(x.permute([0, 2, 1, 3]), what))
    }

    fn check_width<'t>(&self, x: Var<'t>, width: usize) -> Result<(), Var<'t>> {
        if self.count != 0 && width.is_multiple_of(self.count) {
            return Ok(());
        }
        let kind = TraceErrorKind::Heads { heads: self.count, width };
        Err(x.try_record(|| Err(TraceError::new(&self.name, kind))))
    }

    /// Merges the heads' results, `[n, heads, t, width / heads]`, to `[n, 1, t, width]`.
    pub fn join<'t>(&self, mixed: Var<'t>) -> Var<'t> {
        let [n, heads, t, width] = mixed.shape().sizes();
        let joined = self.called(mixed.permute([0, 2, 1, 3]), "heads");
        self.called(joined.reshape([n, 1, t, heads * width]), "joined")
    }

    fn called<'t>(&self, var: Var<'t>, what: &str) -> Var<'t> {
        var.named(&format!("{}.{what}", self.name))
    }
}

/// Multi-head self-attention over a sequence `[n, t, width]`. One product computes queries, keys and values, each head
/// attends with width / heads of their channels, and a second product mixes the heads.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, nn::{Module, SelfAttention}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let attention = SelfAttention::new(&mut parameters.at("attention"), 8, 2).causal();
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let y = trainer.evaluate([Input::f32([3, 5, 8], &[0.5; 120])], |[x]| attention.forward(x))?;
/// assert_eq!(y.shape.sizes(), [3, 1, 5, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "MultiheadAttention")]
#[doc(alias = "MultiHeadAttention")]
pub struct SelfAttention {
    heads: Heads,
    inside: Linear,
    out: Linear,
    causal: bool,
}

impl SelfAttention {
    /// Creates the self-attention layer; `heads` must divide `width`. Initialisation is that of PyTorch's
    /// `MultiheadAttention`: Xavier uniform for the first product, ±1/√width for the second, biases 0.
    pub fn new(scope: &mut Scope<'_>, width: usize, heads: usize) -> Self {
        Self::with_init(scope, width, heads, [Init::XavierUniform { gain: 1.0 }, Init::FanIn])
    }

    /// Creates the self-attention layer with other initialisations of both products.
    pub fn with_init(scope: &mut Scope<'_>, width: usize, heads: usize, [inside, out]: [Init; 2]) -> Self {
        Self {
            heads: Heads::new(scope.path(), heads),
            inside: Linear::with_init(&mut scope.at("in"), width, 3 * width, inside),
            out: Linear::with_init(&mut scope.at("out"), width, width, out),
            causal: false,
        }
    }

    /// Makes the attention causal: each position attends to itself and to earlier ones.
    #[must_use]
    pub const fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Applies the self-attention with rotary positions: queries and keys are rotated by `turn`.
    ///
    /// # Errors
    /// See `forward`; also heads of another width than that of the rotation.
    pub fn turned<'t>(&self, x: Var<'t>, turn: &Turn<'t>) -> Var<'t> {
        self.placed(x, Some(turn))
    }

    /// Applies the self-attention under a mask, instead of the causal one: for example [`AttentionMask::Within`] for
    /// sequences of different lengths.
    ///
    /// # Errors
    /// See `forward`; also a mask that does not fit `[n, heads, t, t]`.
    pub fn masked<'t>(&self, x: Var<'t>, mask: AttentionMask<'t>) -> Var<'t> {
        self.attend(x, None, mask)
    }

    pub(crate) fn placed<'t>(&self, x: Var<'t>, turn: Option<&Turn<'t>>) -> Var<'t> {
        self.attend(x, turn, if self.causal { AttentionMask::Causal } else { AttentionMask::None })
    }

    fn attend<'t>(&self, x: Var<'t>, turn: Option<&Turn<'t>>, mask: AttentionMask<'t>) -> Var<'t> {
        match self.parts(x, turn) {
            Ok([q, k, v]) => self.out.forward(self.heads.join(q.attention_with(&self.heads.name, k, v, mask))),
            Err(wrong) => wrong,
        }
    }

    /// Computes queries, keys and values of x `[n, 1, t, width]`, each `[n, heads, t, width / heads]`, or the error
    /// value if x does not fit.
    fn parts<'t>(&self, x: Var<'t>, turn: Option<&Turn<'t>>) -> Result<[Var<'t>; 3], Var<'t>> {
        self.heads.check_sequence(x)?;
        let width = x.shape().channels();
        self.heads.check_width(x, width)?;
        let parts = self.inside.forward(x).split_as(&self.heads.name, 3, &[width; 3]);
        let split = |i: usize, what: &str| self.heads.split(parts[i], what);
        let (q, k, v) = (split(0, "query")?, split(1, "key")?, split(2, "value")?);
        let turned = |x, what: &str| turn.map_or(x, |turn| turn.rotate(x, &format!("{}.{what}", self.heads.name)));
        Ok([turned(q, "query"), turned(k, "key"), v])
    }

    /// Applies the layer to one more position of n sequences, x `[n, 1, 1, width]`. `past` are the keys and values of
    /// earlier positions, each `[n, heads, positions, width / heads]`, with zeros at this position. Returns the result,
    /// and this position's keys and values `[n, heads, 1, width / heads]`.
    pub(crate) fn next<'t>(&self, x: Var<'t>, past: [Var<'t>; 2], step: &DecodeStep<'t>) -> (Var<'t>, [Var<'t>; 2]) {
        let [q, k, v] = match self.parts(x, step.turn.as_ref()) {
            Ok(parts) => parts,
            Err(wrong) => return (wrong, [wrong; 2]),
        };
        let places = step.place.shape().channels();
        let here = step.place.reshape([1, 1, places, 1]);
        let [keys, values] = [(past[0], k), (past[1], v)].map(|(past, new)| past + here * new);
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let scale = (1.0 / (q.shape().channels().max(1) as f64).sqrt()) as f32;
        let scores = q.scale(scale).matmul_transposed(keys) + step.mask;
        (self.out.forward(self.heads.join(scores.softmax().matmul(values))), [k, v])
    }
}

/// Current position of a sequence in [`SelfAttention::next`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodeStep<'t> {
    /// One-hot vector of the current position.
    pub place: Var<'t>,
    /// Mask added to the scores of all positions, `[1, 1, 1, positions]`; it hides those that do not exist yet.
    pub mask: Var<'t>,
    /// Rotation of queries and keys at the current position, if positions are rotary.
    pub turn: Option<Turn<'t>>,
}

impl Module for SelfAttention {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.placed(x, None)
    }
}
