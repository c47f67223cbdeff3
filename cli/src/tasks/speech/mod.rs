//! Speech: from recordings to letters, by Deep Speech 2 or by convolutions.

mod convolutions;
mod data;
mod decode;
mod network;
pub(super) mod training;

use super::{
    CheckpointInfo, Dataset, DetectedNetwork, Export, InferenceModel, LossDivisor, Net, Network, Predictions,
    SoundInput, TaskSpec, inference::WeightLoader,
};
use crate::{
    Failure,
    build_feature::BuildFeature,
    data::{DataOptions, IMAGES, Speech},
    data_messages::with_program_options,
    device::Work,
};
pub use convolutions::Convolutions;
use gradscale::{Cpu, Input, Method, Parameters, PlanRow, Trainer, gradscale_core::backend::Backend, optim::Sgd};
use network::{Batch, SpeechNet, sizes};
use safetensors::SafeTensors;
use std::path::Path;

/// Number of recordings that a report shows.
const REPORT_SAMPLES: usize = 12;
/// Default learning rate of the speech network.
const LR: f64 = 0.01;

/// Task `speech`: training a network that transcribes recordings.
pub(super) struct Speaking;

impl TaskSpec for Speaking {
    fn net(&self) -> Net {
        Net::DeepSpeech2
    }

    fn batch(&self) -> usize {
        16
    }

    fn lr(&self, _: Net) -> f64 {
        LR
    }

    fn divisor(&self) -> LossDivisor {
        LossDivisor::Batch
    }

    fn sample_noun(&self) -> &'static str {
        "recordings"
    }

    fn loss_denominator(&self, batch: usize, _: usize) -> (&'static str, usize) {
        ("recordings", batch)
    }

    fn network(&self, network: Network) -> String {
        let [channels, units, layers] = sizes(network);
        if network.net == Net::ConvCtc {
            return format!("Convolutions with CTC ({channels} channels, blocks of {units})");
        }
        format!("Deep Speech 2 ({channels} channels, {layers} layers of {units} units)")
    }

    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        // The recordings of the demonstration are generated as spectra.
        if path.is_some() || !reading.short_recordings {
            BuildFeature::Speech.check()?;
        }
        reading.refuse("recordings", IMAGES)?;
        Ok(Box::new(match path {
            Some(path) => Speech::load(path, reading)?,
            None if reading.short_recordings => Speech::with_short_recordings(seed),
            None => Speech::synthetic(seed, reading)
                .map_err(|cause| Failure::at("synthetic words", with_program_options(&cause)))?,
        }))
    }

    fn layers(&self, network: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        let (parameters, net) = SpeechNet::new(0, 81, network, 3);
        let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
        let trainer = Trainer::new(device, parameters, Sgd::default(), method)?;
        let batch = Batch::of_one(&[0.0; 4 * 81], 81, &net);
        Ok(trainer.plan(batch.with_targets(), |all| net.losses(all, true).mean())?)
    }

    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure> {
        let sound = trained.classes.sound;
        let sound =
            sound.ok_or_else(|| Failure::at("checkpoint", "lacks the sample rate and letters of its network"))?;
        let letters: Vec<char> = trained.classes.names.iter().filter_map(|name| name.chars().next()).collect();
        let (mut parameters, net) = SpeechNet::new(0, sound.frequencies, trained.network, letters.len() + 1);
        fill(&mut parameters, &[])?;
        let CheckpointInfo { device, threads, method, .. } = trained;
        device.open(threads, Loading { parameters, net, method, sound, letters })
    }

    /// Returns no network, because PyTorch's implementations order frequencies differently.
    fn recognise(&self, _: &SafeTensors<'_>) -> Option<DetectedNetwork> {
        None
    }
}

/// Loaded speech network that is still to be placed on its device.
struct Loading {
    parameters: Parameters,
    net: SpeechNet,
    method: Method,
    sound: SoundInput,
    letters: Vec<char>,
}

impl Work for Loading {
    type Output = Box<dyn InferenceModel>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn InferenceModel>, Failure> {
        let Self { parameters, net, method, sound, letters } = self;
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), method)?;
        Ok(Box::new(Listening { trainer, net, sound, letters }))
    }
}

struct Listening<B: Backend> {
    trainer: Trainer<B>,
    net: SpeechNet,
    sound: SoundInput,
    letters: Vec<char>,
}

impl<B: Backend<Error: 'static>> InferenceModel for Listening<B> {
    /// Transcribes recordings, whose spectra are f32 values in `bytes`.
    fn predict(&mut self, [_, frequencies, _]: [usize; 3], bytes: &[u8]) -> Result<Predictions, Failure> {
        if frequencies != self.sound.frequencies {
            let cause = format!("{frequencies} frequencies, but the network takes {}", self.sound.frequencies);
            return Err(Failure::at("spectra", cause));
        }
        let net = &self.net;
        let batch = Batch::of_one(&super::run::numbers(bytes), frequencies, net);
        let logits = self.trainer.evaluate(batch.inputs(), |[x, frames, steps]| net.logits(x, frames, steps))?;
        Ok(Predictions::Texts(batch.texts(&logits.data, &self.letters)))
    }

    fn onnx(&mut self, &Export { batch, length, half, .. }: &Export) -> Result<Vec<u8>, Failure> {
        let (net, frequencies) = (&self.net, self.sound.frequencies);
        let frames = u32::try_from(length).map_err(|error| Failure::at("--length", error))?;
        let (sound, frames, steps) =
            (vec![0.0; batch * length * frequencies], vec![frames; batch], vec![net.steps(frames); batch]);
        let sound = Input::f32([batch, length, frequencies, 1], &sound);
        let inputs = [sound, Input::u32([batch], &frames), Input::u32([batch], &steps)];
        Ok(self.trainer.onnx(inputs, half, |[x, frames, steps]| net.logits(x, frames, steps))?)
    }
}
