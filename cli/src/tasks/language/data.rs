//! Text corpus as a [`Dataset`].

use super::training::LanguageTraining;
use crate::{
    Failure,
    data::{Corpus, LoadNotes, Tokens},
    tasks::{Dataset, EvaluationBaseline, Samples, Settings, TrainingConfig, TrainingRun, run},
};
use gradscale::optim::Optimizer;

impl Corpus {
    /// Returns true if the vocabulary's tokens are characters, false for words.
    pub(super) fn are_characters(&self) -> bool {
        self.vocabulary.tokens() == Tokens::Characters
    }

    /// Returns the perplexity of a text by how often training has each token, each counted once more, so that none is
    /// impossible.
    pub(super) fn unigram(&self, text: &[u32]) -> f64 {
        let all = self.counts.iter().sum::<u64>() as f64 + self.counts.len() as f64;
        let behind = &text[1.min(text.len())..];
        let log = |&token: &u32| ((self.counts.get(token as usize).copied().unwrap_or(0) as f64 + 1.0) / all).ln();
        (-behind.iter().map(log).sum::<f64>() / behind.len().max(1) as f64).exp()
    }
}

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
        Samples::Continued(self.shown().map(|[prompt, truth]| [text(prompt), text(truth)]).collect())
    }
}
