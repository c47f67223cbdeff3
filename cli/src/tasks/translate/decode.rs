//! Translations of sentences: the encoder runs once, the decoder word by word, with many sequences in one batch.

use super::{
    beam::{DecoderInput, Search},
    network::{Sources, room},
};
use crate::{
    Failure,
    data::{BEGIN, END, Pieces},
    tasks::Transcript,
};
use gradscale::{
    Input, InputType, Program, ProgramKind, Trainer,
    gradscale_core::backend::Backend,
    models::{Encoded, Seq2Seq},
};
use std::collections::BTreeMap;

/// Number of sequences that beam search keeps for each sentence.
pub const BEAM: usize = 4;
/// Maximum number of sequences that are decoded in one batch.
const ROWS: usize = 128;
/// Id of the first piece that is text; those before it are special.
const TEXT: u32 = 4;

/// Translation network in use, with the programs compiled for each size of source and width.
#[derive(Debug)]
pub struct Translator<'a, B: Backend> {
    trainer: &'a mut Trainer<B>,
    net: &'a Seq2Seq,
    /// Number of units of a layer, and number of layers.
    sizes: [usize; 2],
    programs: BTreeMap<(usize, usize), (Program<2>, Program<5>)>,
}

impl<'a, B: Backend<Error: 'static>> Translator<'a, B> {
    pub fn new(trainer: &'a mut Trainer<B>, net: &'a Seq2Seq, sizes: [usize; 2]) -> Self {
        Self { trainer, net, sizes, programs: BTreeMap::new() }
    }

    /// Returns both texts of each source, in their order: the most likely sequence by a beam, and that of the most
    /// likely pieces.
    pub fn texts(&mut self, sources: &[&[u32]], pieces: &Pieces) -> Result<Vec<Transcript>, Failure> {
        let [beam, greedy] = [self.translated(sources, BEAM)?, self.translated(sources, 1)?];
        let text = |pieces_of: &Vec<u32>| pieces.text(pieces_of);
        Ok(beam
            .iter()
            .zip(&greedy)
            .map(|(beam, greedy)| Transcript { text: text(beam), greedy: text(greedy) })
            .collect())
    }

    /// Translates each source by beam search and returns the best sequence.
    fn translated(&mut self, sources: &[&[u32]], width: usize) -> Result<Vec<Vec<u32>>, Failure> {
        // Sentences of similar length form a batch.
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|&i| sources[i].len());
        let mut found = vec![Vec::new(); sources.len()];
        for part in order.chunks(ROWS / width) {
            let some: Vec<&[u32]> = part.iter().map(|&i| sources[i]).collect();
            for (&i, words) in part.iter().zip(self.part(&some, width)?) {
                found[i] = words;
            }
        }
        Ok(found)
    }

    fn part(&mut self, sources: &[&[u32]], width: usize) -> Result<Vec<Vec<u32>>, Failure> {
        let places = room(sources.iter().map(|source| source.len()).max().unwrap_or(0));
        let [units, layers] = self.sizes;
        self.compile(places, width)?;
        let Some((encode, decode)) = self.programs.get(&(places, width)) else { return Ok(Vec::new()) };
        let batch = Sources::new(sources.iter().copied(), ROWS / width, places);
        let memory = self.trainer.evaluate_compiled(encode, batch.inputs())?.data;
        // Repeats each sentence for its sequences, which are adjacent.
        let repeated = |all: &[f32], each: usize| -> Vec<f32> {
            all.chunks(each.max(1)).flat_map(|one| std::iter::repeat_n(one, width)).flatten().copied().collect()
        };
        let memory = repeated(&memory, places * units);
        let lengths: Vec<u32> = batch.lengths.iter().flat_map(|&len| [len].repeat(width)).collect();
        let mut state = Vec::new();
        for name in ["h", "c"] {
            state.push(repeated(&self.trainer.output(name)?.data, units));
        }
        let longest: Vec<usize> = sources.iter().map(|source| 2 * source.len() + 10).collect();
        let search = Search { width, longest: &longest, ends: [BEGIN, END], first: TEXT };
        search.run(|DecoderInput { mut words, mut from }| {
            // Rows that no sentence has.
            words.resize(ROWS, BEGIN);
            from.extend(from.len()..ROWS);
            for one in &mut state {
                *one = (0..layers)
                    .flat_map(|layer| from.iter().map(move |row| (layer * ROWS + row) * units))
                    .flat_map(|first| &one[first..first + units])
                    .copied()
                    .collect();
            }
            let size = [layers, ROWS, units];
            let inputs = [
                Input::u32([ROWS, 1], &words),
                Input::f32([ROWS, 1, places, units], &memory),
                Input::u32([ROWS], &lengths),
                Input::f32(size, &state[0]),
                Input::f32(size, &state[1]),
            ];
            let mut logs = self.trainer.evaluate_compiled(decode, inputs)?.data;
            for (one, name) in state.iter_mut().zip(["h", "c"]) {
                *one = self.trainer.output(name)?.data;
            }
            // Of the sentences' rows.
            logs.truncate(logs.len() / ROWS * sources.len() * width);
            Ok(logs)
        })
    }

    fn compile(&mut self, places: usize, width: usize) -> Result<(), Failure> {
        if self.programs.contains_key(&(places, width)) {
            return Ok(());
        }
        let (net, [units, layers], rows) = (self.net, self.sizes, ROWS / width);
        let sources = [InputType::u32([rows, places]), InputType::u32([rows])];
        let encode = self.trainer.compile(ProgramKind::Evaluation, sources, |[sources, lengths]| {
            let Encoded { memory, state: [h, c], .. } = net.encode(sources, lengths);
            let _ = (h.output("h"), c.output("c"));
            memory
        })?;
        let state = InputType::f32([layers, ROWS, units]);
        let memory = InputType::f32([ROWS, 1, places, units]);
        let inputs = [InputType::u32([ROWS, 1]), memory, InputType::u32([ROWS]), state, state];
        let decode = self.trainer.compile(ProgramKind::Evaluation, inputs, |[words, memory, lengths, h, c]| {
            let (logits, Encoded { state: [h, c], .. }) = net.decode(words, Encoded { memory, lengths, state: [h, c] });
            let _ = (h.output("h"), c.output("c"));
            logits.log_softmax()
        })?;
        self.programs.insert((places, width), (encode, decode));
        Ok(())
    }
}
