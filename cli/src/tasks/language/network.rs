//! Language models with first values, and windows of text for them.

use crate::{
    data::{Corpus, Order, Random, Sample},
    tasks::{Net, Network, run::BatchInfo},
};
use gradscale::{
    Input, Parameters, Var,
    data::{Candidates, LogUniform},
    models::{BigLstm, BigLstmSize, Decoder, DecoderSize},
    nn::Candidate,
};

/// Number of tokens that the paper's sampled softmax draws for a batch.
const DRAWN: usize = 8192;
/// Number of layers and of heads of a small decoder.
const SMALL_DECODER_LAYERS_HEADS: [usize; 2] = [3, 4];

/// Language model, either bigLSTM or a transformer decoder.
#[derive(Clone, Debug)]
pub enum Model {
    /// bigLSTM, with the number of tokens that a sampled softmax draws for a batch.
    BigLstm(BigLstm, Option<usize>),
    /// Decoder, which keeps no state between windows.
    Decoder(Decoder),
}

/// Returns the size of a bigLSTM network.
pub fn biglstm(Network { width, small, .. }: Network) -> BigLstmSize {
    // Small ones see too little text to need dropout.
    let size = BigLstmSize { width: 4 * width, hidden: 32 * width, projection: 4 * width, layers: 2, dropout: 0.0 };
    if small { size } else { BigLstmSize { dropout: BigLstmSize::PAPER.dropout, ..size } }
}

/// Returns the size of a decoder with a context of `context` tokens.
pub fn decoder(Network { width, small, .. }: Network, context: usize) -> DecoderSize {
    let [layers, heads] = SMALL_DECODER_LAYERS_HEADS;
    let size = DecoderSize { context, width: 8 * width, heads, layers, dropout: 0.0 };
    let DecoderSize { heads, layers, dropout, .. } = DecoderSize::PAPER;
    if small { size } else { DecoderSize { heads, layers, dropout, ..size } }
}

/// Creates a language model for a number of tokens and a window, with parameters initialised by `seed`.
pub fn network(seed: u64, network: Network, tokens: usize, window: usize) -> (Parameters, Model) {
    let mut parameters = Parameters::seeded(seed);
    let model = if network.net.is_decoder() {
        let build = if network.net == Net::DecoderRotary { Decoder::rotary } else { Decoder::new };
        Model::Decoder(build(&mut parameters.at("decoder"), tokens, decoder(network, window)))
    } else {
        let drawn = if network.small { 16 * network.width } else { DRAWN };
        let net = BigLstm::new(&mut parameters.at("biglstm"), tokens, biglstm(network));
        // Of few tokens all cost less than some would.
        Model::BigLstm(net, (tokens > 4 * drawn).then_some(drawn))
    };
    (parameters, model)
}

/// Windows of one batch: rows of tokens, and for each token its next one.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Number of windows in the batch, and of tokens in each.
    pub size: [usize; 2],
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
    /// Candidates of a sampled softmax; `None` for all tokens.
    pub candidates: Option<Candidates>,
    /// True if every window begins with an empty recurrent state.
    pub fresh: bool,
    pub zeros: Vec<u8>,
}

impl Batch {
    /// Creates a batch of windows that begin at these tokens.
    pub fn new(text: &[u32], starts: &[usize], window: usize) -> Self {
        let mut batch = Self { size: [starts.len(), window], ..Self::default() };
        for &start in starts {
            batch.tokens.extend(&text[start..start + window]);
            batch.targets.extend(&text[start + 1..=start + window]);
        }
        batch
    }

    /// Adds `count` sampled tokens for the softmax.
    fn drawn(mut self, count: usize, tokens: usize, random: &mut Random) -> Self {
        self.candidates = Some(LogUniform::new(tokens).draw(random, count, &self.targets));
        self.zeros = vec![0; self.targets.len()];
        self
    }

    /// Returns the inputs of a step: tokens, and the tokens that follow them.
    pub fn inputs(&self) -> [Input<'_>; 2] {
        [Input::u32(self.size, &self.tokens), Input::u32(self.size, &self.targets)]
    }

    /// Returns the inputs of the sampled-softmax loss, in the order of [`candidate`].
    pub fn sampled<'a>(&'a self, drawn: &'a Candidates) -> [Input<'a>; 6] {
        let (n, s) = (self.targets.len(), drawn.classes.len());
        [
            Input::u32([n], &self.targets),
            Input::f32([n], &drawn.of_labels),
            Input::u32([s], &drawn.classes),
            Input::f32([s], &drawn.of_classes),
            Input::u32([n], &drawn.hits),
            Input::u8([n], &self.zeros),
        ]
    }
}

impl BatchInfo for Batch {
    fn sizes(&self) -> Vec<usize> {
        self.size.to_vec()
    }
}

/// Returns the features before the softmax; the next state is available as outputs `h` and `c`.
pub fn features<'t>(net: &BigLstm, [tokens, h, c]: [Var<'t>; 3]) -> Var<'t> {
    let (features, [h, c]) = net.features(tokens, Some([h, c]));
    let _ = (h.output("h"), c.output("c"));
    features
}

/// Returns the values of [`Batch::sampled`] as inputs of the sampled softmax.
pub const fn candidate<'t>([labels, of_labels, classes, of_classes, hits, first]: [Var<'t>; 6]) -> Candidate<'t> {
    Candidate { labels, of_labels, classes, of_classes, hits, first }
}

/// Sequence of a training's batches of windows.
#[derive(Clone, Debug)]
pub struct Windows {
    seed: u64,
    /// Number of token windows in a batch.
    rows: usize,
    order: Order,
    /// True if each window of a batch continues where that of the last batch ended.
    contiguous: bool,
    position: u64,
}

impl Windows {
    /// Creates the batches of a training text with `rows` windows each. A network that keeps its state reads `rows`
    /// places of the text in order; any other reads windows in a random order of the seed.
    pub fn new(data: &Corpus, model: &Model, rows: usize, seed: u64) -> Self {
        let contiguous = matches!(model, Model::BigLstm(..));
        Self { seed, rows, order: Order::new(data.windows(&data.train), seed), contiguous, position: 0 }
    }

    /// Returns the number of windows taken so far.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Moves to the given number of windows since the begin of the training.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
        self.order = self.order.clone().at(position);
    }

    /// Draws the windows of a batch in random order, without advancing the position.
    pub fn draw(&mut self) -> Vec<Sample> {
        self.order.by_ref().take(self.rows.max(1)).collect()
    }

    /// Returns the next training batch, and advances the position.
    pub fn next(&mut self, data: &Corpus, model: &Model) -> Batch {
        let rows = self.rows.max(1);
        let each = data.windows(&data.train) / rows;
        let step = usize::try_from(self.position / rows as u64).unwrap_or(0).checked_rem(each).unwrap_or(0);
        let starts: Vec<usize> = if self.contiguous {
            (0..rows).map(|row| (row * each + step) * data.window).collect()
        } else {
            self.draw().into_iter().map(|window| window.index * data.window).collect()
        };
        let mut batch = Batch::new(&data.train, &starts, data.window);
        batch.fresh = step == 0;
        if let Model::BigLstm(_, Some(drawn)) = model {
            // Of its place in the training: the same when a step is repeated or resumed.
            batch = batch.drawn(*drawn, data.vocabulary.len(), &mut Random::from_key(&[self.seed, self.position]));
        }
        self.position += rows as u64;
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataOptions;

    fn starts(batch: &Batch) -> Vec<u32> {
        batch.tokens.iter().step_by(batch.size[1]).copied().collect()
    }

    #[test]
    fn rows_go_on_and_begin_anew() {
        let reading = DataOptions { window: Some(4), ..DataOptions::default() };
        let mut data = Corpus::synthetic(0, &reading).expect("made up");
        data.train = (0..42).collect();
        // Ten windows of four tokens and the next one: three for each of three rows.
        let (_, model) = network(0, Network::small(Net::BigLstm, 2), 200, 4);
        let mut windows = Windows::new(&data, &model, 3, 0);
        let mut first = Vec::new();
        for (step, expected) in [[0, 12, 24], [4, 16, 28], [8, 20, 32], [0, 12, 24]].iter().enumerate() {
            let batch = windows.next(&data, &model);
            assert_eq!((starts(&batch), batch.fresh), (expected.to_vec(), step % 3 == 0));
            assert!(batch.targets.iter().zip(&batch.tokens).all(|(target, token)| *target == token + 1));
            first.push(batch.candidates);
        }
        // Drawn anew for each step, and again for the same.
        assert!(first[0].is_some() && first[0] != first[3]);
        windows.seek(6);
        let again = windows.next(&data, &model);
        assert_eq!((starts(&again), &again.candidates), (vec![8, 20, 32], &first[2]));

        let (_, model) = network(0, Network::small(Net::Decoder, 2), 42, 4);
        let mut windows = Windows::new(&data, &model, 5, 0);
        let mut epoch: Vec<u32> = (0..2).flat_map(|_| starts(&windows.next(&data, &model))).collect();
        epoch.sort_unstable();
        assert_eq!(epoch, (0..10).map(|i| 4 * i).collect::<Vec<_>>());
    }
}
