//! Attention.

use super::{Linear, Module};
use crate::{Init, Scope, TraceError, Var, error::TraceErrorKind};

/// Self-attention of several heads over a sequence `[n, t, width]`: one product makes queries, keys and values, each
/// head attends with width / heads of their channels, and a second product mixes the heads.
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
pub struct SelfAttention {
    name: String,
    inside: Linear,
    out: Linear,
    heads: usize,
    causal: bool,
}

impl SelfAttention {
    /// `heads` must divide `width`. First values as PyTorch's `MultiheadAttention`: Xavier's uniform ones for the first
    /// product, ±1/√width for the second, biases from 0.
    pub fn new(scope: &mut Scope<'_>, width: usize, heads: usize) -> Self {
        Self {
            name: scope.path().to_owned(),
            inside: Linear::with_init(&mut scope.at("in"), width, 3 * width, Init::XavierUniform { gain: 1.0 }),
            out: Linear::with_init(&mut scope.at("out"), width, width, Init::FanIn),
            heads,
            causal: false,
        }
    }

    /// Each place sees itself and those before it.
    #[must_use]
    pub const fn causal(mut self) -> Self {
        self.causal = true;
        self
    }
}

impl Module for SelfAttention {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let [n, h, t, width] = x.shape().sizes();
        if h != 1 {
            let words = format!("a sequence is n × 1 × t × width, not {}", x.shape());
            return x.refused(&self.name, words);
        }
        if self.heads == 0 || !width.is_multiple_of(self.heads) {
            let kind = TraceErrorKind::Heads { heads: self.heads, width };
            return x.traced(|| Err(TraceError::new(&self.name, kind)));
        }
        let part = |var: Var<'t>, what: &str| var.named(&format!("{}.{what}", self.name));
        // [n, 1, t, width] and [n, heads, t, width / heads], there and back.
        let split = |x: Var<'t>, what: &str| -> Var<'t> {
            let x = part(x.reshape([n, t, self.heads, width / self.heads]), &format!("{what}.reshape"));
            part(x.permute([0, 2, 1, 3]), what)
        };
        let parts = self.inside.forward(x).split_as(&self.name, 3, &[width; 3]);
        let [q, k, v] = [(0, "query"), (1, "key"), (2, "value")].map(|(i, what)| split(parts[i], what));
        let mixed = q.attention(&self.name, k, v, self.causal);
        let joined = part(mixed.permute([0, 2, 1, 3]), "heads");
        self.out.forward(part(joined.reshape([n, 1, t, width]), "joined"))
    }
}
