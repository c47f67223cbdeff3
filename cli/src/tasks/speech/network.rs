//! Networks for speech with first values, and batches of recordings for them.

use super::{Convolutions, decode};
use crate::{
    data::Spoken,
    tasks::{Net, Network, Transcript},
};
use gradscale::{Input, Parameters, Var, models::DeepSpeech};

/// Network for speech.
#[derive(Debug)]
pub enum SpeechNet {
    DeepSpeech2(Box<DeepSpeech>),
    Convolutions(Box<Convolutions>),
}

impl SpeechNet {
    /// Creates a speech network with its parameters; `seed` determines the initial values.
    pub fn new(seed: u64, frequencies: usize, network: Network, characters: usize) -> (Parameters, Self) {
        let mut parameters = Parameters::seeded(seed);
        let net = if network.net == Net::ConvCtc {
            let [channels, width, _] = sizes(network);
            let sizes = [channels, width];
            Self::Convolutions(Box::new(Convolutions::new(&mut parameters.at("net"), frequencies, sizes, characters)))
        } else {
            let mut scope = parameters.at("deepspeech");
            Self::DeepSpeech2(Box::new(DeepSpeech::new(&mut scope, frequencies, sizes(network), characters)))
        };
        (parameters, net)
    }

    /// Returns the number of output steps of so many frames.
    pub fn steps(&self, frames: u32) -> u32 {
        match self {
            Self::DeepSpeech2(_) => DeepSpeech::steps(frames),
            Self::Convolutions(_) => word(Convolutions::steps(frames as usize)),
        }
    }

    /// Returns the logits of each step, from spectra, frames and steps of each recording.
    pub fn logits<'t>(&self, x: Var<'t>, frames: Var<'t>, steps: Var<'t>) -> Var<'t> {
        match self {
            Self::DeepSpeech2(net) => net.logits(x, frames, steps),
            Self::Convolutions(net) => net.logits(x),
        }
    }

    /// Returns the CTC loss of each recording. That of a recording which is too short for its transcript is 0 with
    /// `zero_infinity`, and otherwise ∞.
    pub fn losses<'t>(&self, [x, frames, steps, targets, letters]: [Var<'t>; 5], zero_infinity: bool) -> Var<'t> {
        self.logits(x, frames, steps).ctc_losses(targets, steps, letters, 0, zero_infinity)
    }
}

/// Returns the channels of the convolutions, the units of a layer or block, and the number of recurrent layers.
pub fn sizes(network: Network) -> [usize; 3] {
    let Network { width, small, .. } = network;
    [width.div_ceil(2).min(32), 4 * width, if small { 2 } else { 5 }]
}

/// Frames of a batch are a multiple of this: fewer programs for a device, and the same results.
const FRAMES: usize = 16;

/// Batch of recordings; those shorter than the longest are padded with zeros.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    frequencies: usize,
    longest: usize,
    room: usize,
    spectra: Vec<f32>,
    frames: Vec<u32>,
    steps: Vec<u32>,
    targets: Vec<u32>,
    letters: Vec<u32>,
}

impl Batch {
    /// Creates a batch of recordings, whose letters are numbered from 1.
    pub fn new<'a>(
        recordings: impl Iterator<Item = &'a Spoken> + Clone, frequencies: usize, alphabet: &[char], net: &SpeechNet,
    ) -> Self {
        let longest = recordings.clone().map(|one| one.frames).max().unwrap_or(0).next_multiple_of(FRAMES);
        let texts = recordings.clone().map(|one| one.text.chars().count());
        let mut batch = Self { frequencies, longest, room: texts.max().unwrap_or(0), ..Self::default() };
        for one in recordings {
            batch.push(one.frames, &one.spectra, net);
            let number = |letter: char| alphabet.binary_search(&letter).map_or(u32::MAX, word);
            let letters: Vec<u32> = one.text.chars().map(|letter| number(letter).saturating_add(1)).collect();
            batch.letters.push(word(letters.len()));
            batch.targets.extend(&letters);
            batch.targets.resize(batch.letters.len() * batch.room, 0);
        }
        batch
    }

    /// Creates a batch of one recording without a transcript.
    pub fn of_one(spectra: &[f32], frequencies: usize, net: &SpeechNet) -> Self {
        let frames = spectra.len().checked_div(frequencies).unwrap_or(0);
        let mut batch = Self { frequencies, longest: frames.next_multiple_of(FRAMES), ..Self::default() };
        batch.push(frames, spectra, net);
        batch.letters.push(0);
        batch
    }

    fn push(&mut self, frames: usize, spectra: &[f32], net: &SpeechNet) {
        self.frames.push(word(frames));
        self.steps.push(net.steps(word(frames)));
        self.spectra.extend_from_slice(spectra);
        self.spectra.resize(self.frames.len() * self.longest * self.frequencies, 0.0);
    }

    /// Returns the inputs of the network: spectra, frames, steps.
    pub fn inputs(&self) -> [Input<'_>; 3] {
        let n = self.frames.len();
        let x = Input::f32([n, self.longest, self.frequencies, 1], &self.spectra);
        [x, Input::u32([n], &self.frames), Input::u32([n], &self.steps)]
    }

    /// Returns the inputs of the network, the targets and their lengths.
    pub fn with_targets(&self) -> [Input<'_>; 5] {
        let (n, [x, frames, steps]) = (self.frames.len(), self.inputs());
        [x, frames, steps, Input::u32([n, self.room], &self.targets), Input::u32([n], &self.letters)]
    }

    /// Decodes logits `[n, steps, characters]` to transcripts.
    pub fn texts(&self, logits: &[f32], alphabet: &[char]) -> Vec<Transcript> {
        let (n, characters) = (self.frames.len(), alphabet.len() + 1);
        let each = logits.len().checked_div(n).unwrap_or(0);
        let text =
            |said: Vec<usize>| said.into_iter().filter_map(|number| alphabet.get(number - 1)).collect::<String>();
        let one = |(logits, &steps): (&[f32], &u32)| {
            let logits = &logits[..(steps as usize * characters).min(logits.len())];
            let greedy = text(decode::greedy(logits, characters));
            Transcript { text: text(decode::beam(logits, characters, decode::BEAM)), greedy }
        };
        logits.chunks(each.max(1)).zip(&self.steps).map(one).collect()
    }
}

/// Converts a number of frames or letters to u32; memory holds fewer than 2^32.
fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
