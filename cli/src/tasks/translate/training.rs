//! A training of a network for translation: batches, loss, scores.

use super::{
    REPORT_SAMPLES,
    decode::Translator,
    network::{Batch, loss, network, sizes},
};
use crate::{
    Failure,
    data::{Buckets, Pair, Parallel, Sample},
    metrics::{Bleu, Metrics, Perplexity},
    tasks::{Classes, LossDivisor, On, Predictions, Sentences, Settings, Transcript, run, samples},
};
use gradscale::{
    Error, Gradients, Parameters, Prefetched, Trainer,
    gradscale_core::{backend::Backend, ops::Divisor},
    models::Seq2Seq,
    optim::Optimizer,
};

/// Number of sentence pairs in one evaluation of the loss.
const CHUNK: usize = 64;

#[derive(Debug)]
pub struct TranslateTraining<'a> {
    data: &'a Parallel,
    settings: Settings,
    net: Seq2Seq,
    order: Buckets,
}

impl<'a> TranslateTraining<'a> {
    pub fn new(data: &'a Parallel, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let pieces = data.pieces.each_ref().map(crate::data::Pieces::count);
        let (parameters, net) = network(seed, pieces, settings.network);
        let optimizer = crate::tasks::Dataset::optimizer(data, &settings)?;
        let longest = |pair: &Pair| pair.pieces[0].len().max(pair.pieces[1].len());
        let order = Buckets::new(data.train.iter().map(longest).collect(), settings.batch, seed);
        Ok((Self { data, settings, net, order }, parameters, optimizer))
    }

    /// Translates the source sentences of some pairs.
    fn translated<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, pairs: &[&Pair],
    ) -> Result<Vec<Transcript>, Failure> {
        let sources: Vec<&[u32]> = pairs.iter().map(|pair| &pair.pieces[0][..]).collect();
        Translator::new(trainer, &self.net, sizes(self.settings.network)).texts(&sources, &self.data.pieces[1])
    }

    fn perplexity<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, pairs: &[&Pair],
    ) -> Result<f64, Failure> {
        let mut sorted = pairs.to_vec();
        sorted.sort_by_key(|pair| pair.pieces[0].len().max(pair.pieces[1].len()));
        let mut perplexity = Perplexity::default();
        for part in sorted.chunks(CHUNK) {
            let batch = Batch::new(part.iter().copied(), CHUNK);
            let nats = trainer.evaluate(batch.inputs(), |all| loss(&self.net, all, Divisor::Rows))?;
            perplexity.add(nats.data.first().copied().unwrap_or(f32::NAN), batch.counted() as u64);
        }
        Ok(perplexity.value())
    }
}

impl run::SampleLosses for TranslateTraining<'_> {
    fn draw_samples(&mut self) -> Vec<Sample> {
        self.order.draw().into_iter().map(|index| Sample { index, word: 0 }).collect()
    }

    fn sample_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, sample: Sample,
    ) -> Result<f32, Failure> {
        let batch = Batch::new(std::iter::once(&self.data.train[sample.index]), 1);
        run::loss_of(trainer, batch.inputs(), |all| loss(&self.net, all, self.settings.pixels.divisor()))
    }
}

impl run::TrainingTask for TranslateTraining<'_> {
    type Batch = Prefetched<4>;

    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Prefetched<4>, Failure> {
        let pairs = self.order.draw();
        let batch = Batch::new(pairs.iter().map(|&i| &self.data.train[i]), pairs.len());
        Ok(trainer.prefetch(batch.inputs())?)
    }

    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<4>,
    ) -> Result<Gradients, Error<B::Error>> {
        let divisor = self.settings.pixels.divisor();
        trainer.backward(batch, |all| loss(&self.net, all, divisor))
    }

    fn ratio(&self) -> f64 {
        match self.settings.pixels {
            LossDivisor::Batch => 1.0,
            LossDivisor::Fixed(_) => {
                let pieces = crate::tasks::Dataset::size(self.data)[0];
                self.settings.pixels.ratio(self.settings.batch * pieces)
            }
        }
    }

    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let pairs = match (on, &self.data.validation) {
            (On::Validation, Some(validation)) => validation,
            (On::Validation | On::Test, _) => &self.data.test,
        };
        let pairs: Vec<&Pair> = pairs.iter().collect();
        let perplexity = self.perplexity(trainer, &pairs)?;
        let texts = self.translated(trainer, &pairs)?;
        let (mut bleu, mut right) = ([Bleu::default(); 2], 0usize);
        for (pair, Transcript { text, greedy }) in pairs.iter().zip(&texts) {
            let meant = &pair.texts[1];
            bleu[0].add(meant, greedy);
            bleu[1].add(meant, text);
            right += usize::from(text == meant);
        }
        let same = texts.len() > 1 && texts.windows(2).all(|both| both[0].text == both[1].text);
        Ok(Metrics::of_translations(bleu, perplexity, right as f64 / pairs.len().max(1) as f64).all_the_same(same))
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure> {
        let test = &self.data.test;
        let shown: Vec<&Pair> = samples(test.len(), REPORT_SAMPLES).map(|i| &test[i]).collect();
        self.translated(trainer, &shown).map(Predictions::Texts)
    }

    fn position(&self) -> u64 {
        self.order.position()
    }

    fn seek(&mut self, position: u64) {
        self.order.seek(position);
    }

    fn classes(&self) -> Classes {
        let Parallel { languages, pieces, .. } = self.data;
        Classes {
            sentences: Some(Sentences { languages: languages.clone(), pieces: pieces.clone() }),
            ..Classes::default()
        }
    }
}
