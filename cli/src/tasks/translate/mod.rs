//! Translation: recurrent networks with attention, from sentences to sentences.

mod beam;
mod data;
mod decode;
mod network;
pub(super) mod training;

use super::{
    CheckpointInfo, Dataset, DetectedNetwork, Export, InferenceModel, LossDivisor, Net, Network, Predictions,
    Sentences, TaskSpec, Transcript, inference::WeightLoader,
};
use crate::{
    Failure,
    build_feature::BuildFeature,
    data::{DataOptions, IMAGES, PIECES, Pair, Parallel, Pieces},
    data_messages::with_program_options,
    device::Work,
    optimizer::{Moments, Rule},
};
use decode::Translator;
use gradscale::{
    Cpu, Input, Method, Parameters, PlanRow, Trainer,
    gradscale_core::{backend::Backend, ops::Divisor},
    models::Seq2Seq,
    optim::Sgd,
};
use network::{Batch, loss, network, sizes};
use safetensors::SafeTensors;
use std::path::Path;

/// Number of sentences that a report shows.
const REPORT_SAMPLES: usize = 12;
/// Default learning rate of SGD, with which the network learns slowly.
const LR: f64 = 0.5;
/// Default learning rate with `AdamW`.
const ADAM_LR: f64 = 0.003;
/// Maximum number of tokens in a sentence to translate, because attention's memory grows with its square.
const MAX_SOURCE_TOKENS: usize = 1024;

/// Task `translate`: training a network that translates sentences.
pub(super) struct Translating;

impl TaskSpec for Translating {
    fn net(&self) -> Net {
        Net::Seq2Seq1
    }

    fn batch(&self) -> usize {
        32
    }

    fn lr(&self, _: Net) -> f64 {
        LR
    }

    fn default_optimizer(&self) -> Option<(Rule, f64)> {
        Some((Rule::AdamW(Moments::default()), ADAM_LR))
    }

    fn divisor(&self) -> LossDivisor {
        LossDivisor::Batch
    }

    fn sample_noun(&self) -> &'static str {
        "sentences"
    }

    fn loss_denominator(&self, batch: usize, pieces: usize) -> (&'static str, usize) {
        ("pieces", batch * pieces)
    }

    fn network(&self, network: Network) -> String {
        let [units, layers] = sizes(network);
        let layers = if layers == 1 { "1 layer".to_owned() } else { format!("{layers} layers") };
        let of = if network.is_paper() { ", the paper's" } else { "" };
        format!("seq2seq with attention ({layers} of {units} units in encoder and decoder{of})")
    }

    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        BuildFeature::Translation.check()?;
        reading.refuse("sentences", IMAGES)?;
        Ok(Box::new(match path {
            Some(path) => Parallel::load(path, reading)?,
            None => Parallel::synthetic(seed, reading)
                .map_err(|cause| Failure::at("synthetic numbers", with_program_options(&cause)))?,
        }))
    }

    fn layers(&self, network: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        let (parameters, net) = network::network(0, [PIECES.into(); 2], network);
        let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
        let trainer = Trainer::new(device, parameters, Sgd::default(), method)?;
        let pair = Pair { texts: ["", ""].map(str::to_owned), pieces: [vec![5; 6], vec![5; 6]] };
        let batch = Batch::new([pair].iter(), 1);
        Ok(trainer.plan(batch.inputs(), |all| loss(&net, all, Divisor::Rows))?)
    }

    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure> {
        let sentences = trained.classes.sentences.clone();
        let sentences = sentences.ok_or_else(|| Failure::at("checkpoint", "lacks the vocabulary of its network"))?;
        let count = sentences.pieces.each_ref().map(Pieces::count);
        let (mut parameters, net) = network(0, count, trained.network);
        fill(&mut parameters, &[])?;
        let CheckpointInfo { device, threads, network, method, .. } = trained;
        device.open(threads, Loading { parameters, net, sizes: sizes(network), method, sentences })
    }

    /// Returns no network, because a file of PyTorch does not contain its vocabulary.
    fn recognise(&self, _: &SafeTensors<'_>) -> Option<DetectedNetwork> {
        None
    }
}

/// Loaded translation network that is still to be placed on its device.
struct Loading {
    parameters: Parameters,
    net: Seq2Seq,
    sizes: [usize; 2],
    method: Method,
    sentences: Sentences,
}

impl Work for Loading {
    type Output = Box<dyn InferenceModel>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn InferenceModel>, Failure> {
        let Self { parameters, net, sizes, method, sentences } = self;
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), method)?;
        Ok(Box::new(Interpreter { trainer, net, sizes, sentences }))
    }
}

struct Interpreter<B: Backend> {
    trainer: Trainer<B>,
    net: Seq2Seq,
    sizes: [usize; 2],
    sentences: Sentences,
}

impl<B: Backend<Error: 'static>> InferenceModel for Interpreter<B> {
    /// Translates each line of UTF-8 text; an empty one has an empty translation.
    fn predict(&mut self, _: [usize; 3], bytes: &[u8]) -> Result<Predictions, Failure> {
        let text = std::str::from_utf8(bytes).map_err(|error| Failure::at("text", error))?;
        let [source, target] = &self.sentences.pieces;
        let apart: Vec<Vec<u32>> = text.lines().map(|line| source.apart(line)).collect();
        if let Some(long) = apart.iter().position(|pieces| pieces.len() > MAX_SOURCE_TOKENS) {
            let cause =
                format!("{} tokens, more than the maximum of {MAX_SOURCE_TOKENS}; split the line", apart[long].len());
            return Err(Failure::at(format!("line {}", long + 1), cause));
        }
        // A source of the end token alone has no content.
        let sources: Vec<&[u32]> = apart.iter().map(|pieces| &pieces[..]).filter(|pieces| pieces.len() > 1).collect();
        let mut found = Translator::new(&mut self.trainer, &self.net, self.sizes).texts(&sources, target)?.into_iter();
        let of =
            |pieces: &Vec<u32>| if pieces.len() > 1 { found.next().unwrap_or_default() } else { Transcript::default() };
        Ok(Predictions::Texts(apart.iter().map(of).collect()))
    }

    fn onnx(&mut self, &Export { batch, length, half, .. }: &Export) -> Result<Vec<u8>, Failure> {
        let (net, words) = (&self.net, vec![0; batch * length]);
        let longest = u32::try_from(length).map_err(|error| Failure::at("--length", error))?;
        let lengths = vec![longest; batch];
        let [source, target] = [Input::u32([batch, length], &words), Input::u32([batch, length], &words)];
        let inputs = [source, Input::u32([batch], &lengths), target];
        Ok(self.trainer.onnx(inputs, half, |[source, lengths, target]| net.logits(source, lengths, target))?)
    }
}
