//! Speech data as a [`Dataset`].

use super::{REPORT_SAMPLES, training::SpeechTraining};
use crate::{
    Failure,
    data::{LoadNotes, Speech},
    metrics::ErrorRate,
    tasks::{Dataset, EvaluationBaseline, Samples, Settings, TrainingConfig, TrainingRun, run, samples},
};
use gradscale::optim::Optimizer;
use std::collections::BTreeSet;

/// Number of texts among which the best constant answer is searched.
const TEXTS: usize = 100;

impl Dataset for Speech {
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

    /// Returns the frames of the longest recording, and the number of frequencies.
    fn size(&self) -> [usize; 2] {
        [self.train.iter().map(|one| one.frames).max().unwrap_or(0), self.frequencies]
    }

    fn counts(&self) -> [usize; 2] {
        [self.train.len(), self.test.len()]
    }

    fn validation_count(&self) -> Option<usize> {
        self.validation.as_ref().map(Vec::len)
    }

    fn loss_of(&self) -> &'static str {
        "loss of a recording"
    }

    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        settings.recipe.optimizer(settings.pixels.ratio(settings.batch))
    }

    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        run::start(opening, |settings, seed| SpeechTraining::new(self, settings, seed))
    }

    /// Returns the error rate of the best constant text.
    fn baseline(&self) -> EvaluationBaseline {
        let texts: BTreeSet<&str> = self.train.iter().map(|one| one.text.as_str()).collect();
        let errors = |said: &str| {
            let mut rate = ErrorRate::default();
            self.test.iter().for_each(|one| rate.add(&one.text, said));
            rate.share()
        };
        // Saying nothing has all letters wrong.
        EvaluationBaseline { constant: texts.into_iter().take(TEXTS).map(errors).fold(1.0, f64::min), answers: None }
    }

    fn samples(&self) -> Samples {
        let one = |i: usize| [self.test[i].name.clone(), self.test[i].text.clone()];
        Samples::Texts(samples(self.test.len(), REPORT_SAMPLES).map(one).collect())
    }
}
