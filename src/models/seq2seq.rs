//! Translation by two recurrent networks with attention.

use crate::{
    Init, Parameter, Scope, Var,
    nn::{Embedding, Linear, Lstm, Module},
};

/// Translation network from a source sequence to a target sequence: an LSTM encoder, an LSTM decoder with the same
/// number of layers, and attention between them. The decoder starts with the encoder's last state.
///
/// Embeddings have the width of a layer. The attention is *general* and *global* in the terms of Luong et al. (2015). h
/// are the outputs of the decoder, s those of the encoder. The weights are softmax(s·Wh) over the source positions, c
/// is the mean of s with these weights, and logits are a linear function of tanh(W′·(c, h)). It is not fed into the
/// next step, so all steps of a target are one product.
///
/// Positions after the end of a source have no influence: the encoder uses packed sequences, and attention masks them.
///
/// ```
/// use gradscale::{Input, Cpu, Method, Parameters, Trainer, models::Seq2Seq, optim::Sgd};
/// let mut parameters = Parameters::seeded(1);
/// // 9 source words, 7 target words, one layer of 4 units in each network.
/// let net = Seq2Seq::new(&mut parameters.at("net"), [9, 7], 4, 1);
/// let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.1), Method::mixed())?;
/// let source = [3, 4, 5, 2, 6, 2, 0, 0];
/// let batch = [Input::u32([2, 4], &source), Input::u32([2], &[4, 2]), Input::u32([2, 3], &[1, 3, 4, 1, 5, 0])];
/// let y = trainer.evaluate(batch, |[source, lengths, target]| net.logits(source, lengths, target))?;
/// assert_eq!(y.shape.sizes(), [2, 1, 3, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Seq2Seq {
    name: String,
    /// Word embeddings of the source language, and of the target language.
    words: [Embedding; 2],
    /// Recurrent layers of the encoder, and of the decoder.
    networks: [Lstm; 2],
    /// Name and weights of the first product of attention, which has no bias, like the second.
    inside: (String, Parameter),
    out: (String, Parameter),
    generator: Linear,
    dropout: f32,
}

/// Encoded source sentences, from which the decoder translates.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'t> {
    /// Outputs of the encoder for all source positions, `[n, 1, s, units]`.
    pub memory: Var<'t>,
    /// Lengths of the source sentences, integers `[n]`.
    pub lengths: Var<'t>,
    /// State h and c, `[layers, n, units]`, with which the decoder starts or continues.
    pub state: [Var<'t>; 2],
}

impl Seq2Seq {
    /// Creates the translation network with these numbers of source and target words, units of a layer, and layers of
    /// encoder and decoder. Weights are initialised like those of PyTorch's layers.
    pub fn new(scope: &mut Scope<'_>, [source, target]: [usize; 2], units: usize, layers: usize) -> Self {
        let name = scope.path().to_owned();
        let words = [("source", source), ("target", target)];
        let words = words.map(|(name, words)| Embedding::new(&mut scope.at(name), words, units));
        let networks = ["encoder", "decoder"].map(|name| Lstm::new(&mut scope.at(name), units, units, layers));
        let mut weight = |name: &str, inputs: usize| {
            let mut scope = scope.at(name);
            (scope.path().to_owned(), scope.weight("weight", [units, inputs], Init::within_root(inputs)))
        };
        let (inside, out) = (weight("attention.inside", units), weight("attention.out", 2 * units));
        let generator = Linear::new(&mut scope.at("generator"), units, target);
        Self { name, words, networks, inside, out, generator, dropout: 0.0 }
    }

    /// Sets the dropout probability of embeddings, of the inputs of layers, and of the input of the logits, in
    /// training.
    #[must_use]
    pub fn dropout(mut self, p: f32) -> Self {
        self.dropout = p;
        self.networks = self.networks.map(|network| network.dropout(p));
        self
    }

    /// Computes logits `[n, 1, t, target words]` of the word after each one of the target `[n, t]`, which starts with a
    /// begin-of-sequence word. The source is `[n, s]`, with lengths of its sequences (integers `[n]`, at least 1).
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn logits<'t>(&self, source: Var<'t>, lengths: Var<'t>, target: Var<'t>) -> Var<'t> {
        self.decode(target, self.encode(source, lengths)).0
    }

    /// Encodes source sentences `[n, s]` with lengths for the decoder.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn encode<'t>(&self, source: Var<'t>, lengths: Var<'t>) -> Encoded<'t> {
        let x = self.dropped(self.words[0].forward(source), "source.dropout");
        let (memory, state) = self.networks[0].sequence(x, None, Some(lengths));
        Encoded { memory, lengths, state }
    }

    /// Computes the logits of the words after those of the target `[n, t]`, starting from a state, and the state after
    /// them. A translation continues word by word with t = 1.
    ///
    /// # Errors
    /// Shapes that do not fit.
    pub fn decode<'t>(&self, target: Var<'t>, from: Encoded<'t>) -> (Var<'t>, Encoded<'t>) {
        let called = |var: Var<'t>, what: &str| var.named(&format!("{}.{what}", self.name));
        let product =
            |x: Var<'t>, (name, weight): &(String, Parameter)| x.linear(name, x.tape().parameter(weight), None);
        let x = self.dropped(self.words[1].forward(target), "target.dropout");
        let (h, state) = self.networks[1].sequence(x, Some(from.state), None);
        let scores = called(product(h, &self.inside).matmul_transposed(from.memory), "attention.scores");
        let weights = called(scores.softmax_within(from.lengths), "attention.weights");
        let context = called(weights.matmul(from.memory), "attention.context");
        let both = called(context.concat(&[h], 3), "attention.both");
        let seen = called(product(both, &self.out).tanh(), "attention.tanh");
        let logits = self.generator.forward(self.dropped(seen, "attention.dropout"));
        (logits, Encoded { state, ..from })
    }

    fn dropped<'t>(&self, x: Var<'t>, what: &str) -> Var<'t> {
        if self.dropout > 0.0 { x.dropout(self.dropout).named(&format!("{}.{what}", self.name)) } else { x }
    }
}
