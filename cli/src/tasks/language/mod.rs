//! Language: which token comes next, by a network of layers over time or by one of attention.

mod data;
mod network;
pub(super) mod training;
mod writing;

pub use writing::Choice;

use super::{
    CheckpointInfo, Dataset, DetectedNetwork, Export, InferenceModel, LossDivisor, Net, Network, Predictions, TaskSpec,
    inference::WeightLoader,
};
use crate::{
    Failure,
    data::{Corpus, DataOptions, IMAGES, Vocabulary},
    device::Work,
    optimizer::{Moments, Rule},
};
use gradscale::{
    Cpu, Input, Method, Parameters, PlanRow, Trainer,
    gradscale_core::backend::Backend,
    models::{BigLstmSize, DecoderSize},
    optim::Sgd,
};
use network::{Model, network};
use safetensors::SafeTensors;
use std::path::Path;
use writing::continued;

/// Number of texts that a report shows.
const REPORT_SAMPLES: usize = 6;
/// Default learning rate of SGD, with which both kinds of networks learn slowly.
const LR: f64 = 0.5;
/// Default learning rate of decoders with SGD.
const DECODER_LR: f64 = 0.1;
/// Default learning rate with `AdamW`.
const ADAM_LR: f64 = 0.003;
/// Default maximum norm of the gradients of layers over time.
const CLIP: f64 = 1.0;

/// Task `language`: the next token of a text.
pub(super) struct Language;

impl TaskSpec for Language {
    fn net(&self) -> Net {
        Net::BigLstm
    }

    fn batch(&self) -> usize {
        16
    }

    fn lr(&self, net: Net) -> f64 {
        if net.is_decoder() { DECODER_LR } else { LR }
    }

    fn default_optimizer(&self) -> Option<(Rule, f64)> {
        Some((Rule::AdamW(Moments::default()), ADAM_LR))
    }

    fn clip(&self, _: Net) -> Option<f64> {
        Some(CLIP)
    }

    fn divisor(&self) -> LossDivisor {
        LossDivisor::Batch
    }

    fn sample_noun(&self) -> &'static str {
        "windows"
    }

    fn loss_denominator(&self, batch: usize, window: usize) -> (&'static str, usize) {
        ("tokens", batch * window)
    }

    fn network(&self, of: Network) -> String {
        if of.net.is_decoder() {
            let DecoderSize { width, heads, layers, .. } = network::decoder(of, 1);
            let rotary = if of.net == Net::DecoderRotary { ", rotary positions" } else { "" };
            format!("Decoder ({layers} layers of width {width}, {heads} heads{rotary})")
        } else {
            let BigLstmSize { hidden, projection, layers, .. } = network::biglstm(of);
            format!("bigLSTM ({layers} layers of {hidden} units, projected to {projection})")
        }
    }

    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        reading.refuse("text", IMAGES)?;
        Ok(Box::new(match path {
            Some(path) => Corpus::load(path, reading)?,
            None => Corpus::synthetic(seed, reading)?,
        }))
    }

    fn layers(&self, of: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        let (parameters, model) = network(0, of, 8, 4);
        let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
        let trainer = Trainer::new(device, parameters, Sgd::default(), method)?;
        let batch = [Input::u32([1, 4], &[0; 4]), Input::u32([1, 4], &[0; 4])];
        Ok(trainer.plan(batch, |[tokens, targets]| match &model {
            Model::BigLstm(net, _) => net.logits(net.features(tokens, None).0).cross_entropy(targets),
            Model::Decoder(net) => net.logits(tokens).cross_entropy(targets),
        })?)
    }

    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure> {
        let text = trained.classes.text;
        let text = text.ok_or_else(|| Failure::at("checkpoint", "lacks the vocabulary of its network"))?;
        let vocabulary = Vocabulary::named(text.tokens, trained.classes.names.clone());
        let (mut parameters, model) = network(0, trained.network, vocabulary.len(), text.window);
        fill(&mut parameters, &[])?;
        let CheckpointInfo { device, threads, method, .. } = trained;
        device.open(threads, Loading { parameters, model, method, vocabulary })
    }

    /// Returns no network, because weights do not determine their tokens.
    fn recognise(&self, _: &SafeTensors<'_>) -> Option<DetectedNetwork> {
        None
    }
}

/// Loaded language model that is still to be placed on its device.
struct Loading {
    parameters: Parameters,
    model: Model,
    method: Method,
    vocabulary: Vocabulary,
}

impl Work for Loading {
    type Output = Box<dyn InferenceModel>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn InferenceModel>, Failure> {
        let Self { parameters, model, method, vocabulary } = self;
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), method)?;
        Ok(Box::new(Writing { trainer, model, vocabulary }))
    }
}

struct Writing<B: Backend> {
    trainer: Trainer<B>,
    model: Model,
    vocabulary: Vocabulary,
}

impl<B: Backend<Error: 'static>> InferenceModel for Writing<B> {
    fn predict(&mut self, _: [usize; 3], _: &[u8]) -> Result<Predictions, Failure> {
        Err(Failure::at("image", "the network reads text"))
    }

    fn onnx(&mut self, &Export { batch, length, half, .. }: &Export) -> Result<Vec<u8>, Failure> {
        let words = vec![0; batch * length];
        let tokens = Input::u32([batch, length], &words);
        Ok(match &self.model {
            Model::Decoder(net) => self.trainer.onnx([tokens], half, |[tokens]| net.logits(tokens))?,
            Model::BigLstm(net, _) => {
                let state = net.state(batch);
                let zeros = state.map(|shape| vec![0.0; shape.len()]);
                let [h, c] = [0, 1].map(|i| Input::f32(state[i], &zeros[i]));
                self.trainer.onnx([tokens, h, c], half, |[tokens, h, c]| {
                    let (features, [h, c]) = net.features(tokens, Some([h, c]));
                    let _ = (h.output("h"), c.output("c"));
                    net.logits(features)
                })?
            }
        })
    }

    fn go_on(&mut self, prompt: &str, length: usize, choice: Choice) -> Result<String, Failure> {
        let tokens = self.vocabulary.read(prompt).map_err(|cause| Failure::at("prompt", cause))?;
        if tokens.is_empty() {
            return Err(Failure::at("prompt", "no token to continue from"));
        }
        let written = continued(&mut self.trainer, &self.model, std::slice::from_ref(&tokens), length, choice)?;
        // Everything between the two belongs to the text.
        let all: Vec<u32> = tokens.iter().chain(written.iter().flatten()).copied().collect();
        Ok(self.vocabulary.text(&all))
    }
}
