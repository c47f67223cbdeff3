//! Text corpus as a [`Dataset`].

use super::training::{LanguageTraining, report_texts};
use crate::{
    Failure,
    data::{Corpus, LoadNotes},
    tasks::{Dataset, EvaluationBaseline, Samples, Settings, TrainingConfig, TrainingRun, run},
};
use gradscale::optim::Optimizer;

impl Dataset for Corpus {
    fn name(&self) -> &str {
        &self.name
    }

    fn notes(&self) -> &LoadNotes {
        &self.notes
    }

    /// Returns no classes, because the network predicts tokens.
    fn classes(&self) -> &[String] {
        &[]
    }

    /// Returns the size of a sample: a window of tokens.
    fn size(&self) -> [usize; 2] {
        [1, self.window]
    }

    fn counts(&self) -> [usize; 2] {
        [&self.train, &self.test].map(|part| self.windows(part))
    }

    fn validation_count(&self) -> Option<usize> {
        self.validation.as_ref().map(|part| self.windows(part))
    }

    fn loss_of(&self) -> &'static str {
        "loss of a token"
    }

    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        settings.recipe.optimizer(settings.pixels.ratio(settings.batch * self.window))
    }

    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
        run::start(opening, |settings, seed| LanguageTraining::new(self, settings, seed))
    }

    /// Returns the baseline of a unigram model, against which 0 bits are saved.
    fn baseline(&self) -> EvaluationBaseline {
        EvaluationBaseline { constant: 0.0, answers: None }
    }

    fn samples(&self) -> Samples {
        let text = |tokens: &[u32]| self.vocabulary.text(tokens);
        Samples::Continued(report_texts(self).map(|[prompt, truth]| [text(prompt), text(truth)]).collect())
    }
}
