//! Multi-head attention of one sequence to another.

use super::{Linear, Module, attention::Heads};
use crate::{AttentionMask, Init, Scope, Var};

/// Multi-head attention of a sequence `[n, t, width]` to a memory `[n, s, memory]`, for example of a decoder to an
/// encoder. Products compute queries from the sequence, and keys and values from the memory. Each head attends with
/// width / heads of their channels, and a last product mixes the heads. The parameters are those of PyTorch's
/// `MultiheadAttention` with `kdim` and `vdim`: layers `query`, `key`, `value` and `out`.
///
/// ```
/// use gradscale::{AttentionMask, Input, Cpu, Method, Parameters, Trainer, nn::CrossAttention, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let attention = CrossAttention::new(&mut parameters.at("attention"), 8, 6, 2);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// // Two memories of seven positions, of which the second one ends after four.
/// let batch = [Input::f32([2, 5, 8], &[0.5; 80]), Input::f32([2, 7, 6], &[0.25; 84]), Input::u32([2], &[7, 4])];
/// let y = trainer.evaluate(batch, |[x, memory, lengths]| {
///     attention.forward(x, memory, AttentionMask::Within(lengths))
/// })?;
/// assert_eq!(y.shape.sizes(), [2, 1, 5, 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "MultiheadAttention")]
#[doc(alias = "MultiHeadAttention")]
pub struct CrossAttention {
    heads: Heads,
    query: Linear,
    key: Linear,
    value: Linear,
    out: Linear,
}

impl CrossAttention {
    /// Creates the layer for a memory with `memory` channels; `heads` must divide `width`. Initialisation is that of
    /// PyTorch's `MultiheadAttention`: Xavier uniform for queries, keys and values, ±1/√width for the last product,
    /// biases 0.
    pub fn new(scope: &mut Scope<'_>, width: usize, memory: usize, heads: usize) -> Self {
        let init = Init::XavierUniform { gain: 1.0 };
        Self {
            heads: Heads::new(scope.path(), heads),
            query: Linear::with_init(&mut scope.at("query"), width, width, init),
            key: Linear::with_init(&mut scope.at("key"), memory, width, init),
            value: Linear::with_init(&mut scope.at("value"), memory, width, init),
            out: Linear::with_init(&mut scope.at("out"), width, width, Init::FanIn),
        }
    }

    /// Attends with each position of x to the positions of the memory that the mask shows it. The result has the shape
    /// of x.
    ///
    /// # Errors
    /// Shapes that do not fit, heads that do not divide the width, or a mask that does not fit `[n, heads, t, s]`.
    pub fn forward<'t>(&self, x: Var<'t>, memory: Var<'t>, mask: AttentionMask<'t>) -> Var<'t> {
        for sequence in [x, memory] {
            if let Err(wrong) = self.heads.check_sequence(sequence) {
                return wrong;
            }
        }
        let (q, k, v) = (self.query.forward(x), self.key.forward(memory), self.value.forward(memory));
        // Other names than those of the products, which have sites of their own.
        let [q, k, v] = [(q, "queries"), (k, "keys"), (v, "values")].map(|(x, what)| self.heads.split(x, what));
        match (q, k, v) {
            (Ok(q), Ok(k), Ok(v)) => self.out.forward(self.heads.join(q.attention_with(&self.heads.name, k, v, mask))),
            (Err(wrong), ..) | (_, Err(wrong), _) | (.., Err(wrong)) => wrong,
        }
    }
}
