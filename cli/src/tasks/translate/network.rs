//! Networks for translation with first values, and batches of sentences for them.

use crate::{
    data::{BEGIN, PAD_TOKEN, Pair},
    tasks::{Net, Network},
};
use gradscale::{CrossEntropy, Input, Parameters, Var, gradscale_core::ops::Divisor, models::Seq2Seq};

/// Dropout probability of networks of every size.
const DROPOUT: f32 = 0.2;
/// Places of a batch are a multiple of this: few programs for a device, and the same results.
const PLACES: usize = 8;

/// Returns the units of a layer, and the number of layers of encoder and decoder.
pub fn sizes(network: Network) -> [usize; 2] {
    let deep = [(Net::Seq2Seq3, 3), (Net::Seq2Seq5, 5)];
    let layers = deep.into_iter().find(|(net, _)| *net == network.net).map_or(1, |(_, layers)| layers);
    [8 * network.width, layers]
}

/// Creates a translation network for the numbers of source and target pieces, with parameters initialised by `seed`.
pub fn network(seed: u64, pieces: [usize; 2], network: Network) -> (Parameters, Seq2Seq) {
    let mut parameters = Parameters::seeded(seed);
    let [units, layers] = sizes(network);
    let net = Seq2Seq::new(&mut parameters.at("seq2seq"), pieces, units, layers).dropout(DROPOUT);
    (parameters, net)
}

/// Rounds a length up to one of a few sizes, so that few programs are compiled.
pub fn room(places: usize) -> usize {
    places.max(1).next_multiple_of(PLACES)
}

/// Source sentences of a batch, padded to one length.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    pub count: usize,
    pub room: usize,
    pub pieces: Vec<u32>,
    pub lengths: Vec<u32>,
}

impl Sources {
    /// Creates a batch of these sources, padded to `rows` with sources of one token.
    pub fn new<'a>(sources: impl Iterator<Item = &'a [u32]>, rows: usize, room: usize) -> Self {
        let mut all = Self { room, ..Self::default() };
        sources.for_each(|source| all.push(source));
        while all.count < rows {
            all.push(&[BEGIN]);
        }
        all
    }

    fn push(&mut self, source: &[u32]) {
        self.count += 1;
        self.lengths.push(u32::try_from(source.len()).unwrap_or(u32::MAX));
        self.pieces.extend_from_slice(source);
        self.pieces.resize(self.count * self.room, PAD_TOKEN);
    }

    /// Returns the inputs about the sources: pieces and lengths.
    pub fn inputs(&self) -> [Input<'_>; 2] {
        [Input::u32([self.count, self.room], &self.pieces), Input::u32([self.count], &self.lengths)]
    }
}

/// Batch of sentence pairs, padded to one length.
#[derive(Clone, Debug)]
pub struct Batch {
    sources: Sources,
    /// Decoder inputs: the begin token, then the target without its end token.
    targets: Vec<u32>,
    /// Label of each decoder input: the next token.
    labels: Vec<u32>,
}

impl Batch {
    /// Creates a batch of these pairs, padded to `rows` with empty ones. Both languages get the same length, so that
    /// there are few sizes.
    pub fn new<'a>(pairs: impl Iterator<Item = &'a Pair> + Clone, rows: usize) -> Self {
        let longest = pairs.clone().flat_map(|pair| pair.pieces.each_ref().map(Vec::len)).max();
        let room = room(longest.unwrap_or(0));
        let sources = Sources::new(pairs.clone().map(|pair| &pair.pieces[0][..]), rows, room);
        let (mut targets, mut labels) = (Vec::new(), Vec::new());
        for (i, pair) in pairs.enumerate() {
            let target = &pair.pieces[1];
            targets.push(BEGIN);
            targets.extend_from_slice(&target[..target.len().saturating_sub(1)]);
            labels.extend_from_slice(target);
            targets.resize((i + 1) * room, PAD_TOKEN);
            labels.resize((i + 1) * room, PAD_TOKEN);
        }
        targets.resize(sources.count * room, PAD_TOKEN);
        labels.resize(sources.count * room, PAD_TOKEN);
        Self { sources, targets, labels }
    }

    /// Returns the inputs of a step: sources, their lengths, targets and labels.
    pub fn inputs(&self) -> [Input<'_>; 4] {
        let [pieces, lengths] = self.sources.inputs();
        let size = [self.sources.count, self.sources.room];
        [pieces, lengths, Input::u32(size, &self.targets), Input::u32(size, &self.labels)]
    }

    /// Returns the number of labels that count in the loss, those without padding.
    pub fn counted(&self) -> usize {
        self.labels.iter().filter(|&&label| label != PAD_TOKEN).count()
    }
}

/// Returns the cross-entropy of all pieces of the targets.
pub fn loss<'t>(net: &Seq2Seq, [sources, lengths, targets, labels]: [Var<'t>; 4], divisor: Divisor) -> Var<'t> {
    let counted = CrossEntropy { weights: None, ignore: Some(PAD_TOKEN), divisor };
    net.logits(sources, lengths, targets).cross_entropy_with(labels, &counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// However many lengths there are, batches have few sizes: one program for a device each.
    #[test]
    fn sizes_are_few() {
        let sizes: BTreeSet<usize> = (0..=64).map(room).collect();
        assert_eq!(sizes.into_iter().collect::<Vec<_>>(), [8, 16, 24, 32, 40, 48, 56, 64]);
    }

    #[test]
    fn what_is_read_and_what_follows() {
        let pair = |source: &[u32], target: &[u32]| Pair {
            texts: ["", ""].map(str::to_owned),
            pieces: [source.to_vec(), target.to_vec()],
        };
        let pairs = [pair(&[5, 6, 2], &[7, 2]), pair(&[4, 2], &[8, 9, 10, 2])];
        let batch = Batch::new(pairs.iter(), 3);
        assert_eq!((batch.sources.count, batch.sources.room, batch.counted()), (3, 8, 6));
        assert_eq!(batch.sources.lengths, [3, 2, 1]);
        assert_eq!(batch.sources.pieces[..16], [5, 6, 2, 0, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(batch.targets[8..14], [1, 8, 9, 10, 0, 0]);
        assert_eq!(batch.labels[8..14], [8, 9, 10, 2, 0, 0]);
        assert!(batch.labels[16..].iter().chain(&batch.targets[16..]).all(|&piece| piece == 0));
        assert_eq!(batch.labels.len(), 24);
    }
}
