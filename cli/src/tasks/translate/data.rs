//! Parallel text as a [`Dataset`].

use super::{REPORT_SAMPLES, training::TranslateTraining};
use crate::{
    Failure,
    data::{LoadNotes, Parallel},
    metrics::Bleu,
    tasks::{Dataset, EvaluationBaseline, Samples, Settings, TrainingConfig, TrainingRun, run, samples},
};
use gradscale::optim::Optimizer;

/// Number of sentences among which the best constant answer is searched.
const SENTENCES: usize = 20;

impl Dataset for Parallel {
    fn name(&self) -> &str {
        &self.name
    }

    fn notes(&self) -> &LoadNotes {
        &self.notes
    }

    /// Returns no classes, because the network predicts texts.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// Returns the mean number of pieces of a target: of these the loss is a mean.
    fn size(&self) -> [usize; 2] {
        let all: usize = self.train.iter().map(|pair| pair.pieces[1].len()).sum();
        [all.div_ceil(self.train.len().max(1)), 1]
    }

    fn counts(&self) -> [usize; 2] {
        [self.train.len(), self.test.len()]
    }

    fn validation_count(&self) -> Option<usize> {
        self.validation.as_ref().map(Vec::len)
    }

    fn loss_of(&self) -> &'static str {
        "loss of a piece"
    }

    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        settings.recipe.optimizer(settings.pixels.ratio(settings.batch * self.size()[0]))
    }

    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        run::start(opening, |settings, seed| TranslateTraining::new(self, settings, seed))
    }

    /// Returns the best BLEU that one sentence reaches as the translation of all.
    fn baseline(&self) -> EvaluationBaseline {
        let score = |said: &str| {
            let mut bleu = Bleu::default();
            self.test.iter().for_each(|pair| bleu.add(&pair.texts[1], said));
            bleu.score()
        };
        let some = samples(self.train.len(), SENTENCES).map(|i| score(&self.train[i].texts[1]));
        EvaluationBaseline { constant: some.fold(0.0, f64::max), answers: None }
    }

    fn samples(&self) -> Samples {
        Samples::Sentences(samples(self.test.len(), REPORT_SAMPLES).map(|i| self.test[i].texts.clone()).collect())
    }
}
