//! A training of a speech network: batches, loss, scores.

use super::{
    REPORT_SAMPLES,
    network::{Batch, SpeechNet},
};
use crate::{
    Failure,
    data::{Order, Sample, Speech, Spoken},
    metrics::{ErrorRate, Metrics},
    tasks::{Classes, LossDivisor, On, Predictions, Settings, SoundInput, Transcript, run, samples},
};
use gradscale::{
    Error, Gradients, Parameters, Prefetched, Trainer, Var,
    gradscale_core::{backend::Backend, ops::Ctc},
    optim::Optimizer,
};

/// Number of recordings that are evaluated at once.
const CHUNK: usize = 32;

#[derive(Debug)]
pub struct SpeechTraining<'a> {
    data: &'a Speech,
    settings: Settings,
    net: SpeechNet,
    order: Order,
    /// Indices of the training recordings, the shortest first.
    sorted: Vec<usize>,
}

impl<'a> SpeechTraining<'a> {
    pub fn new(data: &'a Speech, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let (parameters, net) = SpeechNet::new(seed, data.frequencies, settings.network, data.letters.len() + 1);
        let optimizer = settings.recipe.optimizer(settings.pixels.ratio(settings.batch))?;
        let order = Order::new(data.train.len(), seed);
        let mut sorted: Vec<usize> = (0..data.train.len()).collect();
        sorted.sort_by_key(|&i| data.train[i].frames);
        Ok((Self { data, settings, net, order, sorted }, parameters, optimizer))
    }

    /// Draws the next recordings: for Deep Speech 2 in the first epoch by length (SortaGrad, Amodei et al. 2016, section
    /// 3.3), otherwise in the order of the seed.
    fn draw(&mut self) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.settings.batch);
        for _ in 0..self.settings.batch {
            let sorts = matches!(self.net, SpeechNet::DeepSpeech2(_));
            let place = usize::try_from(Order::position(&self.order)).ok().filter(|_| sorts);
            let Some(drawn) = self.order.next() else { break };
            let index = place.and_then(|place| self.sorted.get(place)).copied().unwrap_or(drawn.index);
            samples.push(Sample { index, ..drawn });
        }
        samples
    }

    /// Returns the loss of a batch, which training minimises.
    fn loss<'t>(&self, all: [Var<'t>; 5]) -> Var<'t> {
        let losses = self.net.losses(all, !self.data.keeps_infinite_losses);
        match self.settings.pixels {
            LossDivisor::Batch => losses.mean(),
            LossDivisor::Fixed(divisor) => losses.sum() * (1.0 / divisor as f32),
        }
    }

    /// Transcribes recordings by the greedy decoder and by beam search.
    fn heard<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, recordings: &[&Spoken],
    ) -> Result<Vec<Transcript>, Failure> {
        let mut texts = Vec::new();
        for part in recordings.chunks(CHUNK) {
            let batch = Batch::new(part.iter().copied(), self.data.frequencies, &self.data.letters, &self.net);
            let logits = trainer.evaluate(batch.inputs(), |[x, frames, steps]| self.net.logits(x, frames, steps))?;
            texts.extend(batch.texts(&logits.data, &self.data.letters));
        }
        Ok(texts)
    }
}

impl run::SampleLosses for SpeechTraining<'_> {
    fn draw_samples(&mut self) -> Vec<Sample> {
        self.draw()
    }

    /// Returns true for spectra with infinite or missing values, and for a recording that is too short for its transcript
    /// if its loss stays infinite.
    fn has_unusable_data(&self, sample: Sample) -> Result<bool, Failure> {
        let Spoken { text, frames, spectra, .. } = &self.data.train[sample.index];
        let letters: Vec<u32> = text.chars().map(u32::from).collect();
        let steps = self.net.steps(u32::try_from(*frames).unwrap_or(u32::MAX));
        let is_short = (steps as usize) < Ctc::least_frames(&letters);
        Ok(is_short && self.data.keeps_infinite_losses || spectra.iter().any(|value| !value.is_finite()))
    }

    fn sample_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, sample: Sample,
    ) -> Result<f32, Failure> {
        let recording = std::iter::once(&self.data.train[sample.index]);
        let batch = Batch::new(recording, self.data.frequencies, &self.data.letters, &self.net);
        run::loss_of(trainer, batch.with_targets(), |all| self.loss(all))
    }

    fn sample_source(&self, index: usize) -> Option<String> {
        self.data.train.get(index).map(|recording| recording.name.clone())
    }
}

impl run::TrainingTask for SpeechTraining<'_> {
    type Batch = Prefetched<5>;

    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Prefetched<5>, Failure> {
        let samples = self.draw();
        let recordings = samples.iter().map(|sample| &self.data.train[sample.index]);
        let batch = Batch::new(recordings, self.data.frequencies, &self.data.letters, &self.net);
        Ok(trainer.prefetch(batch.with_targets())?)
    }

    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<5>,
    ) -> Result<Gradients, Error<B::Error>> {
        trainer.backward(batch, |all| self.loss(all))
    }

    fn ratio(&self) -> f64 {
        self.settings.pixels.ratio(self.settings.batch)
    }

    /// Evaluates the network on a split, with running statistics in batch norm.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let recordings = match (on, &self.data.validation) {
            (On::Validation, Some(validation)) => validation,
            (On::Validation | On::Test, _) => &self.data.test,
        };
        // Recordings of similar length are in one batch, which needs less padding.
        let mut recordings: Vec<&Spoken> = recordings.iter().collect();
        recordings.sort_by_key(|one| one.frames);
        let (mut rates, mut whole) = ([ErrorRate::default(); 2], 0usize);
        for (spoken, texts) in recordings.iter().zip(self.heard(trainer, &recordings)?) {
            let Transcript { text, greedy } = texts;
            rates[0].add(&spoken.text, &greedy);
            rates[1].add(&spoken.text, &text);
            whole += usize::from(text.trim() == spoken.text.trim());
        }
        Ok(Metrics::of_texts(rates, whole as f64 / recordings.len().max(1) as f64))
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure> {
        let test = &self.data.test;
        let shown: Vec<&Spoken> = samples(test.len(), REPORT_SAMPLES).map(|i| &test[i]).collect();
        self.heard(trainer, &shown).map(Predictions::Texts)
    }

    fn position(&self) -> u64 {
        self.order.position()
    }

    fn seek(&mut self, position: u64) {
        self.order = self.order.clone().at(position);
    }

    fn classes(&self) -> Classes {
        Classes {
            names: self.data.letters.iter().map(char::to_string).collect(),
            sound: Some(SoundInput { rate: self.data.rate, frequencies: self.data.frequencies }),
            ..Classes::default()
        }
    }
}
