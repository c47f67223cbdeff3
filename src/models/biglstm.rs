//! BigLSTM, a recurrent language model (Jozefowicz et al. 2016).

use crate::{
    Scope, Shape, Var,
    nn::{Candidate, Embedding, Lstm, Module, SampledSoftmax},
};

/// Sizes of a [`BigLstm`] language model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BigLstmSize {
    /// Width of a token's embedding, the input of the first LSTM layer.
    pub width: usize,
    /// Number of LSTM units of each layer.
    pub hidden: usize,
    /// Number of output values of each layer, after its projection.
    pub projection: usize,
    /// Number of LSTM layers.
    pub layers: usize,
    /// Dropout probability of each layer's input and of the last layer's output.
    pub dropout: f32,
}

impl BigLstmSize {
    /// Sizes of the paper's LSTM-8192-1024 of two layers. Words have an embedding table here, while the largest of the
    /// paper's networks compute embeddings from letters by convolutions.
    pub const PAPER: Self = Self { width: 1024, hidden: 8192, projection: 1024, layers: 2, dropout: 0.25 };
}

/// Language model from tokens to logits of the next token: an embedding table, LSTM layers with projection, and a
/// softmax over all tokens, which is sampled in training.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, models::{BigLstm, BigLstmSize}, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// let size = BigLstmSize { width: 6, hidden: 8, projection: 4, layers: 2, dropout: 0.1 };
/// let net = BigLstm::new(&mut parameters.at("net"), 50, size);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let batch = [Input::u32([2, 3], &[1, 7, 49, 0, 0, 2])];
/// let y = trainer.evaluate(batch, |[tokens]| net.logits(net.features(tokens, None).0))?;
/// assert_eq!(y.shape.sizes(), [2, 1, 3, 50]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BigLstm {
    tokens: Embedding,
    lstm: Lstm,
    softmax: SampledSoftmax,
    size: BigLstmSize,
}

impl BigLstm {
    /// Creates the language model for `tokens` tokens. If training samples the softmax, they must be ordered by
    /// frequency.
    pub fn new(scope: &mut Scope<'_>, tokens: usize, size: BigLstmSize) -> Self {
        let BigLstmSize { width, hidden, projection, layers, dropout } = size;
        Self {
            tokens: Embedding::new(&mut scope.at("tokens"), tokens, width),
            lstm: Lstm::projected(&mut scope.at("lstm"), width, [hidden, projection], layers).dropout(dropout),
            softmax: SampledSoftmax::new(&mut scope.at("softmax"), projection, tokens),
            size,
        }
    }

    /// Returns the shapes of the recurrent state of n sequences: h and c.
    #[must_use]
    pub fn state(&self, n: usize) -> [Shape; 2] {
        let BigLstmSize { hidden, projection, layers, .. } = self.size;
        [projection, hidden].map(|width| Shape::from([layers, n, width]))
    }

    /// Computes the input of the softmax, `[n, 1, t, projection]`, and the last state, from integer tokens `[n, t]` and
    /// a state. Without a state it starts from zeros.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn features<'t>(&self, tokens: Var<'t>, state: Option<[Var<'t>; 2]>) -> (Var<'t>, [Var<'t>; 2]) {
        let (x, state) = self.lstm.sequence(self.dropped(self.tokens.forward(tokens)), state, None);
        (self.dropped(x), state)
    }

    fn dropped<'t>(&self, x: Var<'t>) -> Var<'t> {
        if self.size.dropout > 0.0 { x.dropout(self.size.dropout) } else { x }
    }

    /// Computes the logits of all tokens from the network's features.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn logits<'t>(&self, features: Var<'t>) -> Var<'t> {
        self.softmax.forward(features)
    }

    /// Computes the mean cross-entropy over sampled tokens from the network's features ([`SampledSoftmax::loss`]).
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn sampled_loss<'t>(&self, features: Var<'t>, of: &Candidate<'t>) -> Var<'t> {
        self.softmax.loss(features, of)
    }
}
